package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Value types, by their numbers in a file.
const (
	typeUint8 uint32 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// valueSize returns the least number of bytes that a value of the type takes,
// and whether there is such a type.
func valueSize(typ uint32) (n int, ok bool) {
	switch typ {
	case typeUint8, typeInt8, typeBool:
		return 1, true
	case typeUint16, typeInt16:
		return 2, true
	case typeUint32, typeInt32, typeFloat32:
		return 4, true
	case typeUint64, typeInt64, typeFloat64, typeString:
		return 8, true
	case typeArray:
		return 12, true
	}
	return 0, false
}

// value reads a type and a value of it.
func (d *decoder) value() any {
	typ := d.u32()
	if typ == typeArray {
		return d.array()
	}
	if typ == typeString {
		return d.str(maxStringLen)
	}
	size, ok := valueSize(typ)
	if !ok && d.err == nil {
		d.err = fmt.Errorf("value type %d does not exist", typ)
	}
	b := d.next(size)
	if d.err != nil {
		return nil
	}
	switch typ {
	case typeUint8:
		return b[0]
	case typeInt8:
		return int8(b[0])
	case typeUint16:
		return getUint16(b)
	case typeInt16:
		return getInt16(b)
	case typeUint32:
		return getUint32(b)
	case typeInt32:
		return getInt32(b)
	case typeFloat32:
		return getFloat32(b)
	case typeBool:
		return d.bool(b)
	case typeUint64:
		return getUint64(b)
	case typeInt64:
		return getInt64(b)
	}
	return getFloat64(b)
}

// array reads an element type, a count and the elements.
func (d *decoder) array() any {
	typ, count := d.u32(), d.u64()
	if d.err != nil {
		return nil
	}
	size, ok := valueSize(typ)
	switch {
	case !ok:
		d.err = fmt.Errorf("array of value type %d, which does not exist", typ)
	case typ == typeArray:
		d.err = fmt.Errorf("array of arrays")
	case count > maxArrayLen:
		d.err = fmt.Errorf("array of %d elements, at most %d allowed", count, maxArrayLen)
	case count > d.left()/uint64(size):
		d.err = fmt.Errorf("array of %d elements does not fit in the %d bytes left", count, d.left())
	}
	if d.err != nil {
		return nil
	}
	n := int(count)
	switch typ {
	case typeUint8:
		return elements(d, n, size, func(b []byte) uint8 { return b[0] })
	case typeInt8:
		return elements(d, n, size, func(b []byte) int8 { return int8(b[0]) })
	case typeUint16:
		return elements(d, n, size, getUint16)
	case typeInt16:
		return elements(d, n, size, getInt16)
	case typeUint32:
		return elements(d, n, size, getUint32)
	case typeInt32:
		return elements(d, n, size, getInt32)
	case typeFloat32:
		return elements(d, n, size, getFloat32)
	case typeBool:
		return elements(d, n, size, d.bool)
	case typeString:
		return d.strings(n)
	case typeUint64:
		return elements(d, n, size, getUint64)
	case typeInt64:
		return elements(d, n, size, getInt64)
	}
	return elements(d, n, size, getFloat64)
}

func getUint16(b []byte) uint16   { return binary.LittleEndian.Uint16(b) }
func getInt16(b []byte) int16     { return int16(getUint16(b)) }
func getUint32(b []byte) uint32   { return binary.LittleEndian.Uint32(b) }
func getInt32(b []byte) int32     { return int32(getUint32(b)) }
func getFloat32(b []byte) float32 { return math.Float32frombits(getUint32(b)) }
func getUint64(b []byte) uint64   { return binary.LittleEndian.Uint64(b) }
func getInt64(b []byte) int64     { return int64(getUint64(b)) }
func getFloat64(b []byte) float64 { return math.Float64frombits(getUint64(b)) }

// bool returns the bool in b[0], which is 0 or 1.
func (d *decoder) bool(b []byte) bool {
	if b[0] > 1 && d.err == nil {
		d.err = fmt.Errorf("bool of value %d, want 0 or 1", b[0])
	}
	return b[0] == 1
}

// elements reads n elements of the given size. The caller has checked that the
// file has as many bytes left.
func elements[T any](d *decoder, n, size int, get func([]byte) T) []T {
	out := make([]T, 0, n)
	for len(out) < n && d.err == nil {
		b := d.next(size * min(n-len(out), len(d.buf)/size))
		for ; len(b) > 0; b = b[size:] {
			out = append(out, get(b))
		}
	}
	return out
}

// strings reads n strings. A vocabulary has hundreds of thousands: they share
// the memory of a few long strings.
func (d *decoder) strings(n int) []string {
	out := make([]string, 0, n)
	const share = 1 << 16 // bytes
	var text []byte
	var ends []int // of strings in text, not yet in out
	for i := range n {
		text = d.appendBytes(text, d.length(maxStringLen))
		if d.err != nil {
			d.err = fmt.Errorf("string %d of %d: %w", i, n, d.err)
			return nil
		}
		ends = append(ends, len(text))
		if len(text) < share && i < n-1 && len(ends) < share {
			continue
		}
		whole, start := string(text), 0
		for _, end := range ends {
			out = append(out, whole[start:end])
			start = end
		}
		text, ends = text[:0], ends[:0]
	}
	return out
}
