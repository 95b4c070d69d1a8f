package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"

	"graft/kernels/quant"
)

// Limits of the format, as llama.cpp sets them.
const (
	magic            = 0x46554747 // "GGUF"
	defaultAlignment = 32
	maxKeyLen        = 1<<16 - 1
	maxNameLen       = 63 // of a tensor, in bytes
	maxDims          = 4
	maxStringLen     = 1 << 30
	maxArrayLen      = 1 << 30
	minKVBytes       = 8 + 1 + 4 + 1         // key length, key, type, value
	minTensorBytes   = 8 + 1 + 4 + 8 + 4 + 8 // name length, name, n_dims, one dim, type, offset
)

// parse reads the header of one file.
func parse(r io.ReaderAt, size int64) (*File, error) {
	if size < 0 {
		return nil, fmt.Errorf("a size of %d bytes", size)
	}
	d := &decoder{r: r, size: size, buf: make([]byte, min(bufferSize, size))}
	f := &File{sources: []source{{r: r}}}
	if m := d.u32(); d.err == nil && m != magic {
		return nil, fmt.Errorf("not a GGUF file (starts with %08x)", bits.ReverseBytes32(m))
	}
	f.Version = d.u32()
	switch {
	case d.err != nil:
		return nil, d.err
	case f.Version&0xffff == 0:
		return nil, fmt.Errorf("the file is big-endian (version reads as %#x); convert it to little-endian", f.Version)
	case f.Version < 2 || f.Version > 3:
		return nil, fmt.Errorf("version %d; versions 2 and 3 can be read", f.Version)
	}
	tensors, kvs := d.u64(), d.u64()
	if d.err == nil && kvs > d.left()/minKVBytes {
		return nil, fmt.Errorf("%d keys do not fit in the %d bytes left", kvs, d.left())
	}
	if d.err == nil && tensors > d.left()/minTensorBytes {
		return nil, fmt.Errorf("%d tensors do not fit in the %d bytes left", tensors, d.left())
	}
	f.readKVs(d, kvs)
	if d.err != nil {
		return nil, d.err
	}
	if err := f.setAlignment(); err != nil {
		return nil, err
	}
	f.readTensors(d, tensors)
	if d.err != nil {
		return nil, d.err
	}
	return f, f.place(d.pos, size)
}

// readKVs reads n key-value pairs.
func (f *File) readKVs(d *decoder, n uint64) {
	f.KV = make(map[string]any, min(n, 1024))
	for i := uint64(0); i < n && d.err == nil; i++ {
		key := d.str(maxKeyLen)
		if d.err != nil {
			d.err = fmt.Errorf("key %d of %d: %w", i, n, d.err)
			return
		}
		if key == "" {
			d.err = fmt.Errorf("key %d of %d is empty", i, n)
			return
		}
		if _, ok := f.KV[key]; ok {
			d.err = fmt.Errorf("key %q appears twice", key)
			return
		}
		value := d.value()
		if d.err != nil {
			d.err = fmt.Errorf("key %q: %w", key, d.err)
			return
		}
		f.KV[key] = value
		f.Keys = append(f.Keys, key)
	}
}

// setAlignment takes the alignment from the keys.
func (f *File) setAlignment() error {
	f.Alignment = defaultAlignment
	v, ok := f.KV["general.alignment"]
	if !ok {
		return nil
	}
	a, ok := v.(uint32)
	if !ok {
		return fmt.Errorf("general.alignment is %s, want uint32", typeOf(v))
	}
	if a == 0 || a&(a-1) != 0 || a > math.MaxInt32 {
		return fmt.Errorf("general.alignment is %d, want a power of two", a)
	}
	f.Alignment = int(a)
	return nil
}

// readTensors reads n tensor infos. Offsets stay relative to the data section.
func (f *File) readTensors(d *decoder, n uint64) {
	f.Tensors = make([]Tensor, 0, min(n, 1<<16))
	f.index = make(map[string]int, min(n, 1<<16))
	dims := make([]uint64, 0, maxDims*min(n, 1<<16)) // all tensors' Dims, one allocation
	for i := uint64(0); i < n; i++ {
		t := Tensor{Name: d.str(maxNameLen)}
		if d.err != nil {
			d.err = fmt.Errorf("name of tensor %d of %d: %w", i, n, d.err)
			return
		}
		if t.Name == "" {
			d.err = fmt.Errorf("tensor %d of %d has no name", i, n)
			return
		}
		if _, ok := f.index[t.Name]; ok {
			d.err = fmt.Errorf("tensor %q appears twice", t.Name)
			return
		}
		nd := d.u32()
		if d.err == nil && (nd < 1 || nd > maxDims) {
			d.err = fmt.Errorf("%d dimensions, want 1 to %d", nd, maxDims)
		}
		if d.err == nil {
			at := len(dims)
			for range nd {
				dims = append(dims, d.u64())
			}
			t.Dims = dims[at:len(dims):len(dims)]
		}
		t.Type = d.u32()
		offset := d.u64()
		if d.err == nil {
			d.err = t.measure()
		}
		if d.err == nil && offset > math.MaxInt64 {
			d.err = fmt.Errorf("offset %d is beyond any file", offset)
		}
		if d.err != nil {
			d.err = fmt.Errorf("tensor %q: %w", t.Name, d.err)
			return
		}
		t.Offset = int64(offset)
		f.index[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
	}
}

// measure sets Format and Size from Type and Dims.
func (t *Tensor) measure() error {
	format, ok := quant.FromGGML(t.Type)
	if !ok {
		return fmt.Errorf("type %s, which Graft cannot read; convert the model to one of %v", typeName(t.Type), quant.Formats())
	}
	elements := uint64(1)
	for i, n := range t.Dims {
		if n == 0 {
			return fmt.Errorf("dimension %d of %d is 0", i, t.Dims)
		}
		hi, lo := bits.Mul64(elements, n)
		if hi != 0 || lo > math.MaxInt64 {
			return fmt.Errorf("dimensions %d overflow", t.Dims)
		}
		elements = lo
	}
	block := uint64(format.BlockLen())
	if t.Dims[0]%block != 0 {
		return fmt.Errorf("rows of %d elements do not divide into the %d-element blocks of %v", t.Dims[0], block, format)
	}
	hi, size := bits.Mul64(elements/block, uint64(format.BlockBytes()))
	if hi != 0 || size > math.MaxInt64 {
		return fmt.Errorf("dimensions %d of %v overflow", t.Dims, format)
	}
	t.Format, t.Size = format, int64(size)
	return nil
}

// place finds the data section after a header of the given length, checks that
// the tensors fill it in order, each padded to the alignment, and makes their
// offsets absolute.
func (f *File) place(header, size int64) error {
	var ok bool
	if f.DataOffset, ok = padded(header, f.Alignment); !ok {
		return fmt.Errorf("the header of %d bytes overflows with alignment %d", header, f.Alignment)
	}
	next := int64(0) // of the data section
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Offset != next {
			return fmt.Errorf("tensor %q: offset %d, want %d, the end of the tensor before it", t.Name, t.Offset, next)
		}
		// No overflow: the tensors before this one lie within the file.
		if t.Size > size-f.DataOffset-t.Offset {
			return fmt.Errorf("tensor %q: %d bytes from %d on, but the data section has %d; is the download complete?", t.Name, t.Size, t.Offset, max(size-f.DataOffset, 0))
		}
		if next, ok = padded(next+t.Size, f.Alignment); !ok {
			return fmt.Errorf("tensor %q: offsets overflow", t.Name)
		}
		t.Offset += f.DataOffset
	}
	return nil
}

// padded returns n rounded up to a multiple of the alignment, and whether that fits.
func padded(n int64, alignment int) (int64, bool) {
	a := int64(alignment)
	if n < 0 || n > math.MaxInt64-(a-1) {
		return 0, false
	}
	return (n + a - 1) / a * a, true
}

// bufferSize is how much of a header is read at once: most are a few megabytes.
const bufferSize = 1 << 18

// decoder reads a header in order. The first error sticks and every later read
// returns zero.
type decoder struct {
	r    io.ReaderAt
	size int64 // of the file
	pos  int64 // of the next byte to hand out
	buf  []byte
	lo   int // buf[lo:hi] are the bytes at pos
	hi   int
	err  error
}

// left returns the number of bytes from pos to the end of the file.
func (d *decoder) left() uint64 { return uint64(d.size - d.pos) }

// next returns the next n bytes, valid until the next call, or nil after an
// error. n is at most bufferSize.
func (d *decoder) next(n int) []byte {
	if d.err != nil {
		return nil
	}
	if uint64(n) > d.left() {
		d.err = fmt.Errorf("the file ends at byte %d, %d more bytes wanted: %w", d.size, n, io.ErrUnexpectedEOF)
		return nil
	}
	if d.hi-d.lo < n {
		d.hi = copy(d.buf, d.buf[d.lo:d.hi])
		d.lo = 0
		at := d.pos + int64(d.hi)
		got, err := d.r.ReadAt(d.buf[d.hi:min(int64(len(d.buf)), int64(d.hi)+d.size-at)], at)
		d.hi += got
		if d.hi < n {
			d.err = fmt.Errorf("reading at byte %d: %w", at, err)
			return nil
		}
	}
	b := d.buf[d.lo : d.lo+n]
	d.lo += n
	d.pos += int64(n)
	return b
}

func (d *decoder) u32() uint32 {
	if b := d.next(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.next(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// length reads the length of a string of at most limit bytes.
func (d *decoder) length(limit uint64) int {
	n := d.u64()
	if d.err == nil && n > limit {
		d.err = fmt.Errorf("string of %d bytes, at most %d allowed", n, limit)
	}
	if d.err == nil && n > d.left() {
		d.err = fmt.Errorf("string of %d bytes, but %d bytes are left", n, d.left())
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

// str reads a string of at most limit bytes.
func (d *decoder) str(limit uint64) string {
	return string(d.appendBytes(nil, d.length(limit)))
}

// appendBytes appends the next n bytes to dst.
func (d *decoder) appendBytes(dst []byte, n int) []byte {
	for n > 0 && d.err == nil {
		part := min(n, len(d.buf))
		dst = append(dst, d.next(part)...)
		n -= part
	}
	return dst
}
