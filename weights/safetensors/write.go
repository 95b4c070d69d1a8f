package safetensors

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"graft/weights/durable"
	"io"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// TensorData is a tensor to write. WriteTo writes its bytes, as many as DType
// and Shape say; it is called once, when its turn comes.
type TensorData struct {
	Name    string
	DType   DType
	Shape   []int // row-major; empty for a scalar
	WriteTo func(io.Writer) error
}

// Float32s returns a tensor of type F32 with the given values. It keeps values,
// which must stay as they are until they are written.
func Float32s(name string, shape []int, values []float32) TensorData {
	return TensorData{Name: name, DType: F32, Shape: shape, WriteTo: func(w io.Writer) error {
		const chunk = 1 << 14 // elements
		b := make([]byte, 0, 4*min(chunk, len(values)))
		for part := range slices.Chunk(values, chunk) {
			b = b[:0]
			for _, x := range part {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return nil
	}}
}

// WriteFile writes a safetensors file to path. It is written aside, synced and
// renamed: path holds the whole file or what it held before.
func WriteFile(path string, tensors []TensorData, metadata map[string]string) error {
	err := durable.WriteFile(path, func(w io.Writer) error { return write(w, tensors, metadata) })
	if err != nil {
		return fmt.Errorf("safetensors: %s: %w", path, err)
	}
	return nil
}

// Write writes a safetensors file to w. The bytes depend on nothing but the
// tensors and the metadata, not on the order of tensors: as the reference
// library does, Write puts later types of DType first and sorts by name within
// a type. The keys of metadata are sorted; if it is empty there is none.
func Write(w io.Writer, tensors []TensorData, metadata map[string]string) error {
	if err := write(w, tensors, metadata); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

func write(w io.Writer, tensors []TensorData, metadata map[string]string) error {
	tensors = slices.Clone(tensors)
	slices.SortStableFunc(tensors, func(a, b TensorData) int {
		return cmp.Or(cmp.Compare(b.DType, a.DType), cmp.Compare(a.Name, b.Name))
	})
	header, sizes, err := encodeHeader(tensors, metadata)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(w, 1<<20)
	if _, err := b.Write(header); err != nil {
		return err
	}
	for i, t := range tensors {
		c := &counter{w: b, left: sizes[i]}
		if err := t.WriteTo(c); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if c.left != 0 {
			return fmt.Errorf("tensor %q: %d bytes written, want %d", t.Name, sizes[i]-c.left, sizes[i])
		}
	}
	return b.Flush()
}

// encodeHeader returns the length and the JSON of the header, padded with spaces
// to a multiple of 8, and the size of each tensor.
func encodeHeader(tensors []TensorData, metadata map[string]string) (header []byte, sizes []int64, err error) {
	b := bytes.NewBuffer(make([]byte, 8))
	b.WriteByte('{')
	if len(metadata) > 0 {
		fmt.Fprintf(b, "%q:{", metadataKey)
		for i, key := range slices.Sorted(maps.Keys(metadata)) {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := errors.Join(quote(b, key), b.WriteByte(':'), quote(b, metadata[key])); err != nil {
				return nil, nil, err
			}
		}
		b.WriteByte('}')
	}
	seen := make(map[string]bool, len(tensors))
	next := int64(0)
	for _, t := range tensors {
		if seen[t.Name] || t.Name == metadataKey {
			return nil, nil, fmt.Errorf("tensor %q appears twice, or has a name that is taken", t.Name)
		}
		seen[t.Name] = true
		if len(t.Shape) > maxDims || slices.ContainsFunc(t.Shape, func(n int) bool { return n < 0 }) {
			return nil, nil, fmt.Errorf("tensor %q: shape %d", t.Name, t.Shape)
		}
		size, err := sizeOf(t.DType, t.Shape)
		if err == nil && size > math.MaxInt64-next {
			err = errors.New("offsets overflow")
		}
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if b.Len() > 9 {
			b.WriteByte(',')
		}
		if err := quote(b, t.Name); err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(b, `:{"dtype":"%v","shape":[`, t.DType)
		for i, n := range t.Shape {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprint(b, n)
		}
		fmt.Fprintf(b, `],"data_offsets":[%d,%d]}`, next, next+size)
		next += size
		sizes = append(sizes, size)
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len()-8 > maxHeader {
		return nil, nil, fmt.Errorf("a header of %d bytes, at most %d allowed", b.Len()-8, maxHeader)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-8))
	return b.Bytes(), sizes, nil
}

// quote writes s as a JSON string.
func quote(b *bytes.Buffer, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%q is not UTF-8", s)
	}
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false) // the reference library does not
	if err := enc.Encode(s); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the encoder's newline
	return nil
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
