package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

const (
	maxHeader   = 100_000_000 // bytes, as in the reference library
	maxDims     = 64          // far above any real tensor
	metadataKey = "__metadata__"
)

// parse reads the header of one file.
func parse(r io.ReaderAt, size int64) (*File, error) {
	if size < 8 {
		return nil, fmt.Errorf("not a safetensors file: %d bytes", size)
	}
	var length [8]byte
	if n, err := r.ReadAt(length[:], 0); n < len(length) {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, fmt.Errorf("not a safetensors file: a header of %d bytes, at most %d allowed", n, maxHeader)
	}
	if n > uint64(size-8) {
		return nil, fmt.Errorf("a header of %d bytes in a file of %d; is the download complete?", n, size)
	}
	header := make([]byte, n)
	if got, err := r.ReadAt(header, 8); got < len(header) {
		return nil, err
	}
	f := &File{Metadata: map[string]string{}, index: map[string]int{}, sources: []source{{r: r}}}
	if err := f.readHeader(header); err != nil {
		return nil, err
	}
	return f, f.place(8+int64(n), size)
}

// readHeader fills f from the JSON of a header. Offsets stay relative to the data.
func (f *File) readHeader(header []byte) error {
	if len(header) == 0 || header[0] != '{' {
		return fmt.Errorf("the header is not a JSON object")
	}
	if !utf8.Valid(header) {
		return fmt.Errorf("the header is not UTF-8")
	}
	p := newParser(header)
	hasMetadata := false
	err := p.object(func(key string) error {
		if key == metadataKey {
			if hasMetadata {
				return fmt.Errorf("appears twice")
			}
			hasMetadata = true
			return p.stringMap(f.Metadata)
		}
		if _, ok := f.index[key]; ok {
			return fmt.Errorf("appears twice")
		}
		t, err := p.tensor()
		if err != nil {
			return err
		}
		t.Name = key
		f.index[key] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
		return nil
	})
	if err != nil {
		return fmt.Errorf("header: %w", err)
	}
	return p.end()
}

// place checks that the tensors cover the data exactly, with neither hole nor
// overlap, puts them in order and makes their offsets absolute.
func (f *File) place(data, size int64) error {
	slices.SortFunc(f.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name))
	})
	next := int64(0)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Offset != next {
			return fmt.Errorf("tensor %q starts at byte %d of the data, want %d, the end of the tensor before it", t.Name, t.Offset, next)
		}
		if t.Size > size-data-next {
			return fmt.Errorf("tensor %q ends after the file: %d bytes from %d on, of %d; is the download complete?", t.Name, t.Size, next, size-data)
		}
		next += t.Size
		t.Offset += data
		f.index[t.Name] = i
	}
	if next != size-data {
		return fmt.Errorf("the tensors end at byte %d of the data, which has %d", next, size-data)
	}
	return nil
}

// sizeOf returns the number of bytes of a tensor.
func sizeOf(d DType, shape []int) (int64, error) {
	n := uint64(1)
	for _, dim := range shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("shape %d overflows", shape)
		}
		n = lo
	}
	hi, lo := bits.Mul64(n, dtypes[d].bits)
	if hi != 0 || lo > math.MaxInt64 {
		return 0, fmt.Errorf("shape %d of %v overflows", shape, d)
	}
	if lo%8 != 0 {
		return 0, fmt.Errorf("shape %d of %v does not fill whole bytes", shape, d)
	}
	return int64(lo / 8), nil
}

// parser reads JSON token by token: nesting deeper than the format's is an
// error at once, duplicate keys are seen, and numbers stay exact.
type parser struct {
	src []byte
	dec *json.Decoder
}

func newParser(src []byte) *parser {
	dec := json.NewDecoder(bytes.NewReader(src))
	dec.UseNumber()
	return &parser{src: src, dec: dec}
}

// delim reads the given delimiter.
func (p *parser) delim(want json.Delim) error {
	tok, err := p.dec.Token()
	if err != nil {
		return err
	}
	if tok != want {
		return fmt.Errorf("found %v, want %v", tok, want)
	}
	return nil
}

// str reads a string.
func (p *parser) str() (string, error) {
	tok, err := p.dec.Token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", fmt.Errorf("found %v, want a string", tok)
	}
	return s, nil
}

// object reads an object, calling value to read the value of each key.
func (p *parser) object(value func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	for p.dec.More() {
		key, err := p.str()
		if err != nil {
			return err
		}
		if err := value(key); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	return p.delim('}')
}

// stringMap reads an object of strings into m.
func (p *parser) stringMap(m map[string]string) error {
	return p.object(func(key string) error {
		if _, ok := m[key]; ok {
			return fmt.Errorf("appears twice")
		}
		s, err := p.str()
		m[key] = s
		return err
	})
}

// naturals reads an array of at most limit non-negative integers.
func (p *parser) naturals(limit int) ([]int, error) {
	if err := p.delim('['); err != nil {
		return nil, err
	}
	out := []int{}
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return nil, err
		}
		num, ok := tok.(json.Number)
		if !ok {
			return nil, fmt.Errorf("found %v, want a number", tok)
		}
		n, err := strconv.ParseUint(num.String(), 10, 63)
		if err != nil || n > math.MaxInt {
			return nil, fmt.Errorf("%s is not a natural number below 2⁶³", num)
		}
		if len(out) == limit {
			return nil, fmt.Errorf("more than %d numbers", limit)
		}
		out = append(out, int(n))
	}
	return out, p.delim(']')
}

// tensor reads {"dtype":…,"shape":[…],"data_offsets":[begin,end]}.
func (p *parser) tensor() (Tensor, error) {
	var t Tensor
	var offsets []int
	seen := map[string]bool{}
	err := p.object(func(key string) (err error) {
		if seen[key] {
			return fmt.Errorf("appears twice")
		}
		seen[key] = true
		switch key {
		case "dtype":
			name, err := p.str()
			if err != nil {
				return err
			}
			var ok bool
			if t.DType, ok = ParseDType(name); !ok {
				return fmt.Errorf("type %q does not exist", name)
			}
		case "shape":
			t.Shape, err = p.naturals(maxDims)
		case "data_offsets":
			offsets, err = p.naturals(2)
		default:
			return fmt.Errorf("not a field of a tensor")
		}
		return err
	})
	if err != nil {
		return t, err
	}
	if len(seen) != 3 {
		return t, fmt.Errorf("dtype, shape and data_offsets are needed")
	}
	if len(offsets) != 2 || offsets[1] < offsets[0] {
		return t, fmt.Errorf("data_offsets are %d, want [begin, end]", offsets)
	}
	t.Offset, t.Size = int64(offsets[0]), int64(offsets[1]-offsets[0])
	want, err := sizeOf(t.DType, t.Shape)
	if err != nil {
		return t, err
	}
	if t.Size != want {
		return t, fmt.Errorf("%d bytes, but %v of shape %d takes %d", t.Size, t.DType, t.Shape, want)
	}
	return t, nil
}

// skip reads one value of any kind.
func (p *parser) skip() error {
	for depth := 0; ; {
		tok, err := p.dec.Token()
		if err != nil {
			return err
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// end checks that only white space is left.
func (p *parser) end() error {
	rest := p.src[p.dec.InputOffset():]
	if len(bytes.TrimLeft(rest, " \t\r\n")) != 0 {
		return fmt.Errorf("bytes after the JSON of the header")
	}
	return nil
}
