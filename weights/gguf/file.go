// Package gguf reads and writes GGUF model files, versions 2 and 3.
//
// Opening a file reads and checks its header: keys, values and the place of
// every tensor. Tensor bytes are read later, a part at a time, so that packing
// a model never holds it twice. Every length in a file is checked against the
// bytes that are left before anything is allocated; a damaged or hostile file
// gives an error that names the key or tensor, never a crash.
//
// The package knows the container and nothing of what keys and tensors mean to
// a model. A File owns its open file handles; the caller closes it.
//
// The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
package gguf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"graft/kernels/quant"
)

// File is the header of a GGUF model, whole or in shards, with its sources
// kept open for reading tensors. It may be read from several goroutines.
type File struct {
	Version uint32
	// KV maps a key to its value: uint8, int8, uint16, int16, uint32, int32,
	// float32, bool, string, uint64, int64, float64, or a slice of one of these.
	KV         map[string]any
	Keys       []string // in file order
	Tensors    []Tensor // in file order, those of later shards after those of earlier ones
	Alignment  int      // bytes
	DataOffset int64    // where the data section starts (in the first shard)

	index   map[string]int // name to position in Tensors
	sources []source       // one per shard
}

// Tensor says where a tensor lies and how to decode it.
type Tensor struct {
	Name   string
	Dims   []uint64 // GGUF order: Dims[0] is the length of a contiguous row
	Format quant.Format
	Type   uint32 // ggml type id of Format
	Offset int64  // bytes from the start of the file that holds it
	Size   int64  // bytes

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
	for _, d := range t.Dims {
		n *= int64(d)
	}
	return n
}

// Shape returns the dimensions in row-major order, slowest first: those of Dims reversed.
func (t *Tensor) Shape() []int {
	shape := make([]int, len(t.Dims))
	for i, d := range t.Dims {
		shape[len(shape)-1-i] = int(d)
	}
	return shape
}

// Open reads and checks the header of the model at path. Of a model in shards
// (NAME-00001-of-00005.gguf) path may be any shard; all are opened.
func Open(path string) (*File, error) {
	paths, err := shardPaths(path)
	if err != nil {
		return nil, err
	}
	parts := make([]*File, 0, len(paths))
	for i, p := range paths {
		part, err := openOne(p)
		if err == nil {
			parts = append(parts, part)
			err = part.checkSplit(i, len(paths))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("gguf: %s: %w", p, err), closeAll(parts))
		}
	}
	f, err := join(parts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gguf: %s: %w", path, err), closeAll(parts))
	}
	return f, nil
}

// openOne opens and parses one file.
func openOne(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	// Before opening: opening a pipe blocks, and a device has no size to check against.
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file (%v)", info.Mode().Type())
	}
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(r, info.Size())
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	f.sources[0].close = r.Close
	return f, nil
}

// Parse reads and checks the header of the GGUF file in the first size bytes
// of r, which it keeps for ReadAt. It refuses a shard, which Open puts together
// with its siblings.
func Parse(r io.ReaderAt, size int64) (*File, error) {
	f, err := parse(r, size)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	if err := f.checkSplit(0, 1); err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
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

// ReadAt fills dst with the bytes of t, a tensor of f, from byte off on.
func (f *File) ReadAt(t *Tensor, dst []byte, off int64) error {
	if off < 0 || off > t.Size || int64(len(dst)) > t.Size-off {
		return fmt.Errorf("gguf: tensor %q: %d bytes from %d on, but it has %d", t.Name, len(dst), off, t.Size)
	}
	if n, err := f.sources[t.shard].r.ReadAt(dst, t.Offset+off); n < len(dst) {
		if err == io.EOF {
			err = fmt.Errorf("the file ends early; was it changed? %w", io.ErrUnexpectedEOF)
		}
		return fmt.Errorf("gguf: tensor %q: %w", t.Name, err)
	}
	return nil
}

// Decode writes all elements of t, a tensor of f, to dst as float32.
// len(dst) is t.Elements().
func (f *File) Decode(t *Tensor, dst []float32) error {
	if int64(len(dst)) != t.Elements() {
		return fmt.Errorf("gguf: tensor %q: destination of %d elements, but it has %d", t.Name, len(dst), t.Elements())
	}
	return f.DecodeAt(t, dst, 0)
}

// DecodeAt fills dst with the elements of t, a tensor of f, from element first
// on. Both first and len(dst) are multiples of t.Format.BlockLen(), as the
// length of a row is.
func (f *File) DecodeAt(t *Tensor, dst []float32, first int64) error {
	block, size := int64(t.Format.BlockLen()), int64(t.Format.BlockBytes())
	if first < 0 || first > t.Elements() || first%block != 0 || int64(len(dst))%block != 0 {
		return fmt.Errorf("gguf: tensor %q: %d elements from %d on, of %d in blocks of %d", t.Name, len(dst), first, t.Elements(), block)
	}
	const chunk = 1 << 14 // elements: a whole number of blocks of every format
	buf := make([]byte, t.Format.Bytes(min(chunk, len(dst))))
	for off := first / block * size; len(dst) > 0; off += int64(len(buf)) {
		n := min(chunk, len(dst))
		buf = buf[:t.Format.Bytes(n)]
		if err := f.ReadAt(t, buf, off); err != nil {
			return err
		}
		quant.Decode(dst[:n], t.Format, buf)
		dst = dst[n:]
	}
	return nil
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

func closeAll(files []*File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// join makes one File of the shards of a model. The keys are those of the first.
func join(parts []*File) (*File, error) {
	f := parts[0]
	if len(parts) == 1 {
		return f, nil
	}
	for i, part := range parts[1:] {
		for _, t := range part.Tensors {
			if _, ok := f.index[t.Name]; ok {
				return nil, fmt.Errorf("tensor %q is in two shards", t.Name)
			}
			t.shard = i + 1
			f.index[t.Name] = len(f.Tensors)
			f.Tensors = append(f.Tensors, t)
		}
	}
	if want, err := f.IntOr("split.tensors.count", len(f.Tensors)); err != nil {
		return nil, err
	} else if want != len(f.Tensors) {
		return nil, fmt.Errorf("%d shards hold %d tensors, but split.tensors.count is %d", len(parts), len(f.Tensors), want)
	}
	for _, part := range parts[1:] {
		f.sources = append(f.sources, part.sources...)
	}
	f.Tensors = slices.Clip(f.Tensors)
	return f, nil
}
