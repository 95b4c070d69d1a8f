package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"graft/kernels/quant"
	"graft/weights/durable"
)

// KV is a key and its value, of one of the types that File.KV lists.
type KV struct {
	Key   string
	Value any
}

// TensorData is a tensor to write. WriteTo writes its bytes, as many as Format
// and Dims say; it is called once, when its turn comes.
type TensorData struct {
	Name    string
	Dims    []uint64 // GGUF order: Dims[0] is the length of a contiguous row
	Format  quant.Format
	WriteTo func(io.Writer) error
}

// writeVersion is the version of the format that Write writes.
const writeVersion = 3

// WriteFile writes a GGUF file to path, with keys and tensors in the given
// order. The file is written aside, synced and renamed: path holds the whole
// file or what it held before.
func WriteFile(path string, kvs []KV, tensors []TensorData) error {
	err := durable.WriteFile(path, func(w io.Writer) error { return write(w, kvs, tensors) })
	if err != nil {
		return fmt.Errorf("gguf: %s: %w", path, err)
	}
	return nil
}

// Write writes a GGUF file to w, with keys and tensors in the given order. The
// alignment is that of the key general.alignment, or 32. Write checks what the
// reader checks before it writes the first byte.
func Write(w io.Writer, kvs []KV, tensors []TensorData) error {
	if err := write(w, kvs, tensors); err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	return nil
}

func write(w io.Writer, kvs []KV, tensors []TensorData) error {
	alignment, err := checkKVs(kvs)
	if err != nil {
		return err
	}
	infos, err := checkTensors(tensors, alignment)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(w, 1<<20)
	if err := writeAll(b, kvs, infos, tensors, int64(alignment)); err != nil {
		return err
	}
	return b.Flush()
}

// checkKVs checks keys and values and returns the alignment.
func checkKVs(kvs []KV) (alignment int, err error) {
	f := File{KV: map[string]any{}}
	for _, kv := range kvs {
		if kv.Key == "" || len(kv.Key) > maxKeyLen {
			return 0, fmt.Errorf("a key of %d bytes, want 1 to %d", len(kv.Key), maxKeyLen)
		}
		if _, ok := f.KV[kv.Key]; ok {
			return 0, fmt.Errorf("key %q appears twice", kv.Key)
		}
		if _, err := appendValue(nil, kv.Value); err != nil {
			return 0, fmt.Errorf("key %q: %w", kv.Key, err)
		}
		f.KV[kv.Key] = kv.Value
	}
	err = f.setAlignment()
	return f.Alignment, err
}

// checkTensors checks names and shapes and lays the tensors out.
func checkTensors(tensors []TensorData, alignment int) ([]Tensor, error) {
	infos := make([]Tensor, len(tensors))
	seen := make(map[string]bool, len(tensors))
	next := int64(0)
	for i, t := range tensors {
		if t.Name == "" || len(t.Name) > maxNameLen {
			return nil, fmt.Errorf("tensor %q: a name of %d bytes, want 1 to %d", t.Name, len(t.Name), maxNameLen)
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor %q appears twice", t.Name)
		}
		seen[t.Name] = true
		if len(t.Dims) < 1 || len(t.Dims) > maxDims {
			return nil, fmt.Errorf("tensor %q: %d dimensions, want 1 to %d", t.Name, len(t.Dims), maxDims)
		}
		info := Tensor{Name: t.Name, Dims: t.Dims, Type: t.Format.GGML(), Offset: next}
		err := info.measure()
		if end, ok := padded(next+info.Size, alignment); err == nil && !ok {
			err = errors.New("offsets overflow")
		} else {
			next = end
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		infos[i] = info
	}
	return infos, nil
}

func writeAll(w io.Writer, kvs []KV, infos []Tensor, tensors []TensorData, alignment int64) error {
	b := binary.LittleEndian.AppendUint32(nil, magic)
	b = binary.LittleEndian.AppendUint32(b, writeVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(infos)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(kvs)))
	for _, kv := range kvs {
		b = appendString(b, kv.Key)
		var err error
		if b, err = appendValue(b, kv.Value); err != nil {
			return err
		}
	}
	for _, t := range infos {
		b = appendString(b, t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Dims)))
		for _, d := range t.Dims {
			b = binary.LittleEndian.AppendUint64(b, d)
		}
		b = binary.LittleEndian.AppendUint32(b, t.Type)
		b = binary.LittleEndian.AppendUint64(b, uint64(t.Offset))
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	if err := pad(w, int64(len(b)), alignment); err != nil {
		return err
	}
	for i, t := range tensors {
		c := &counter{w: w, left: infos[i].Size}
		if err := t.WriteTo(c); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if c.left != 0 {
			return fmt.Errorf("tensor %q: %d bytes written, want %d", t.Name, infos[i].Size-c.left, infos[i].Size)
		}
		if err := pad(w, infos[i].Size, alignment); err != nil {
			return err
		}
	}
	return nil
}

// pad writes the zeros from n to the next multiple of the alignment.
func pad(w io.Writer, n, alignment int64) error {
	_, err := io.CopyN(w, zeros{}, (alignment-n%alignment)%alignment)
	return err
}

// zeros reads as zeros without end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// counter passes on at most left bytes.
type counter struct {
	w    io.Writer
	left int64
}

func (c *counter) Write(b []byte) (int, error) {
	if int64(len(b)) > c.left {
		return 0, fmt.Errorf("%d bytes more than the tensor has", int64(len(b))-c.left)
	}
	n, err := c.w.Write(b)
	c.left -= int64(n)
	return n, err
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

// appendValue appends the type and the bytes of v.
func appendValue(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case uint8:
		return append(appendType(b, typeUint8), v), nil
	case int8:
		return append(appendType(b, typeInt8), byte(v)), nil
	case uint16:
		return appendUint16(appendType(b, typeUint16), v), nil
	case int16:
		return appendInt16(appendType(b, typeInt16), v), nil
	case uint32:
		return appendUint32(appendType(b, typeUint32), v), nil
	case int32:
		return appendInt32(appendType(b, typeInt32), v), nil
	case float32:
		return appendFloat32(appendType(b, typeFloat32), v), nil
	case bool:
		return appendBool(appendType(b, typeBool), v), nil
	case string:
		return appendString(appendType(b, typeString), v), nil
	case uint64:
		return appendUint64(appendType(b, typeUint64), v), nil
	case int64:
		return appendInt64(appendType(b, typeInt64), v), nil
	case float64:
		return appendFloat64(appendType(b, typeFloat64), v), nil
	case []uint8:
		return appendArray(b, typeUint8, v, func(b []byte, x uint8) []byte { return append(b, x) }), nil
	case []int8:
		return appendArray(b, typeInt8, v, func(b []byte, x int8) []byte { return append(b, byte(x)) }), nil
	case []uint16:
		return appendArray(b, typeUint16, v, appendUint16), nil
	case []int16:
		return appendArray(b, typeInt16, v, appendInt16), nil
	case []uint32:
		return appendArray(b, typeUint32, v, appendUint32), nil
	case []int32:
		return appendArray(b, typeInt32, v, appendInt32), nil
	case []float32:
		return appendArray(b, typeFloat32, v, appendFloat32), nil
	case []bool:
		return appendArray(b, typeBool, v, appendBool), nil
	case []string:
		return appendArray(b, typeString, v, appendString), nil
	case []uint64:
		return appendArray(b, typeUint64, v, appendUint64), nil
	case []int64:
		return appendArray(b, typeInt64, v, appendInt64), nil
	case []float64:
		return appendArray(b, typeFloat64, v, appendFloat64), nil
	}
	return nil, fmt.Errorf("a value of type %T cannot be stored", v)
}

func appendType(b []byte, typ uint32) []byte { return appendUint32(b, typ) }

func appendArray[T any](b []byte, typ uint32, v []T, one func([]byte, T) []byte) []byte {
	b = appendUint32(appendType(b, typeArray), typ)
	b = appendUint64(b, uint64(len(v)))
	for _, x := range v {
		b = one(b, x)
	}
	return b
}

func appendUint16(b []byte, x uint16) []byte   { return binary.LittleEndian.AppendUint16(b, x) }
func appendInt16(b []byte, x int16) []byte     { return appendUint16(b, uint16(x)) }
func appendUint32(b []byte, x uint32) []byte   { return binary.LittleEndian.AppendUint32(b, x) }
func appendInt32(b []byte, x int32) []byte     { return appendUint32(b, uint32(x)) }
func appendUint64(b []byte, x uint64) []byte   { return binary.LittleEndian.AppendUint64(b, x) }
func appendInt64(b []byte, x int64) []byte     { return appendUint64(b, uint64(x)) }
func appendFloat32(b []byte, x float32) []byte { return appendUint32(b, math.Float32bits(x)) }
func appendFloat64(b []byte, x float64) []byte { return appendUint64(b, math.Float64bits(x)) }

func appendBool(b []byte, x bool) []byte {
	if x {
		return append(b, 1)
	}
	return append(b, 0)
}
