// Package safetensors reads and writes safetensors files, alone or as the
// shards of a model folder.
//
// Opening reads and checks headers; tensor bytes are read later, a part at a
// time. Every check of the reference library is made, before anything is
// allocated: a damaged or hostile file gives an error that names the tensor.
//
// The package knows the container and nothing of what tensors mean to a model.
// A File owns its open file handles; the caller closes it.
//
// The format: https://github.com/huggingface/safetensors
package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// File is the headers of a safetensors file or of all shards of a model, with
// the sources kept open for reading. It may be read from several goroutines.
type File struct {
	Tensors  []Tensor          // in the order of their bytes, shard after shard
	Metadata map[string]string // of the first shard; empty if it has none

	index   map[string]int // name to position in Tensors
	sources []source       // one per shard
}

// Tensor says where a tensor lies and what it holds.
type Tensor struct {
	Name   string
	DType  DType
	Shape  []int // row-major; empty for a scalar
	Offset int64 // bytes from the start of the file that holds it
	Size   int64 // bytes

	shard int
}

// source is the bytes of one shard.
type source struct {
	r     io.ReaderAt
	close func() error
}

// Elements returns the number of elements.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

const (
	modelName = "model.safetensors"
	indexName = "model.safetensors.index.json"
)

// Open reads and checks the headers of the model at path: a safetensors file,
// an index (*.safetensors.index.json), or a folder that holds
// model.safetensors or model.safetensors.index.json.
func Open(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	if info.IsDir() {
		if path, err = inFolder(path); err != nil {
			return nil, err
		}
	}
	if strings.HasSuffix(path, ".index.json") {
		return openIndex(path)
	}
	f, err := openOne(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", path, err)
	}
	return f, nil
}

// inFolder returns the path of the model in a folder.
func inFolder(dir string) (string, error) {
	for _, name := range []string{modelName, indexName} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("safetensors: %w", err)
		}
	}
	return "", fmt.Errorf("safetensors: %s has neither %s nor %s", dir, modelName, indexName)
}

// openOne opens and parses one file.
func openOne(path string) (*File, error) {
	r, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(r, size)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	f.sources[0].close = r.Close
	return f, nil
}

// openRegular opens the file at path and returns its size.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	// Before opening: opening a pipe blocks, and a device has no size to check against.
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("not a regular file (%v)", info.Mode().Type())
	}
	r, err := os.Open(path)
	return r, info.Size(), err
}

// Parse reads and checks the header of the safetensors file in the first size
// bytes of r, which it keeps for ReadAt.
func Parse(r io.ReaderAt, size int64) (*File, error) {
	f, err := parse(r, size)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return f, nil
}

// Tensor returns the tensor with the given name, and whether there is one.
func (f *File) Tensor(name string) (*Tensor, bool) {
	i, ok := f.index[name]
	if !ok {
		return nil, false
	}
	return &f.Tensors[i], true
}

// ReadAt fills dst with the bytes of t, a tensor of f, from byte off on. It
// refuses types whose bytes mean nothing without a scale (F8, F6, F4) and C64.
func (f *File) ReadAt(t *Tensor, dst []byte, off int64) error {
	if !dtypes[t.DType].raw {
		return fmt.Errorf("safetensors: tensor %q has type %v, which Graft cannot read; convert the model to F32, F16 or BF16", t.Name, t.DType)
	}
	if off < 0 || off > t.Size || int64(len(dst)) > t.Size-off {
		return fmt.Errorf("safetensors: tensor %q: %d bytes from %d on, but it has %d", t.Name, len(dst), off, t.Size)
	}
	if n, err := f.sources[t.shard].r.ReadAt(dst, t.Offset+off); n < len(dst) {
		if err == io.EOF {
			err = fmt.Errorf("the file ends early; was it changed? %w", io.ErrUnexpectedEOF)
		}
		return fmt.Errorf("safetensors: tensor %q: %w", t.Name, err)
	}
	return nil
}

// Decode writes all elements of t, a tensor of f, to dst. len(dst) is t.Elements().
func (f *File) Decode(t *Tensor, dst []float32) error {
	if int64(len(dst)) != t.Elements() {
		return fmt.Errorf("safetensors: tensor %q: destination of %d elements, but it has %d", t.Name, len(dst), t.Elements())
	}
	return f.DecodeAt(t, dst, 0)
}

// DecodeAt fills dst with the elements of t, a tensor of f of type F32, F16 or
// BF16, from element first on.
func (f *File) DecodeAt(t *Tensor, dst []float32, first int64) error {
	var width int
	switch t.DType {
	case F32:
		width = 4
	case F16, BF16:
		width = 2
	default:
		return fmt.Errorf("safetensors: tensor %q has type %v, want F32, F16 or BF16", t.Name, t.DType)
	}
	if first < 0 || first > t.Elements() {
		return fmt.Errorf("safetensors: tensor %q: element %d of %d", t.Name, first, t.Elements())
	}
	const chunk = 1 << 14 // elements
	buf := make([]byte, width*min(chunk, len(dst)))
	for off := first * int64(width); len(dst) > 0; off += int64(len(buf)) {
		n := min(chunk, len(dst))
		buf = buf[:width*n]
		if err := f.ReadAt(t, buf, off); err != nil {
			return err
		}
		decode(dst[:n], t.DType, buf)
		dst = dst[n:]
	}
	return nil
}

// decode writes the elements in src, of type F32, F16 or BF16, to dst.
func decode(dst []float32, d DType, src []byte) {
	for i := range dst {
		switch d {
		case F32:
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		case BF16:
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		default:
			dst[i] = half(binary.LittleEndian.Uint16(src[2*i:]))
		}
	}
}

// half returns the value of the IEEE half with the given bits, exactly.
func half(h uint16) float32 {
	sign, exp, man := uint32(h&0x8000)<<16, uint32(h>>10)&31, uint32(h)&0x3ff
	switch exp {
	case 0: // zero and subnormals: man·2⁻²⁴, exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(man)*0x1p-24))
	case 31: // infinities and NaN
		exp = 255 - 112
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

// Close closes the files that Open opened.
func (f *File) Close() error {
	var errs []error
	for i := range f.sources {
		if c := f.sources[i].close; c != nil {
			errs = append(errs, c())
			f.sources[i].close = nil
		}
	}
	return errors.Join(errs...)
}
