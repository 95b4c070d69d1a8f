// Package quant is the number formats that weights are stored in: how many
// bytes a block of elements takes, what the bytes mean, and how to make them.
//
// Decode and Encode are the reference. They define the value of every stored
// weight, to the bit and on every platform; faster decoders elsewhere are
// tested against them. The layouts are those of GGUF files, and Encode chooses
// the same bytes as the reference quantizers of ggml.
//
// The package knows no tensors, no files and no devices, and it has no state.
package quant

import (
	"fmt"
	"strings"
)

// Format is the storage format of a run of weights. The zero value is F32.
type Format uint8

// The formats, by their public names. The Q formats hold blocks of 32
// elements, the K formats super-blocks of 256; a block is the smallest run
// that can be decoded by itself.
const (
	F32  Format = iota // IEEE single, little-endian
	F16                // IEEE half, little-endian
	BF16               // high half of an IEEE single, little-endian
	Q4_0               // w = (q−8)·d
	Q4_1               // w = q·d + m
	Q5_0               // w = (q−16)·d
	Q5_1               // w = q·d + m
	Q8_0               // w = q·d
	Q4_K               // w = d·sc·q − dmin·m, sc and m per 32 elements
	Q5_K               // w = d·sc·q − dmin·m, sc and m per 32 elements
	Q6_K               // w = d·sc·(q−32), sc per 16 elements
)

// layout is one row of the format table.
type layout struct {
	name       string
	ggml       uint32 // type id in GGUF files
	blockLen   int    // elements
	blockBytes int
}

// layouts is indexed by Format. The sizes and ids are those of ggml.h.
var layouts = [...]layout{
	F32:  {"F32", 0, 1, 4},
	F16:  {"F16", 1, 1, 2},
	BF16: {"BF16", 30, 1, 2},
	Q4_0: {"Q4_0", 2, 32, 2 + 16},
	Q4_1: {"Q4_1", 3, 32, 2 + 2 + 16},
	Q5_0: {"Q5_0", 6, 32, 2 + 4 + 16},
	Q5_1: {"Q5_1", 7, 32, 2 + 2 + 4 + 16},
	Q8_0: {"Q8_0", 8, 32, 2 + 32},
	Q4_K: {"Q4_K", 12, 256, 2 + 2 + 12 + 128},
	Q5_K: {"Q5_K", 13, 256, 2 + 2 + 12 + 32 + 128},
	Q6_K: {"Q6_K", 14, 256, 128 + 64 + 16 + 2},
}

// Formats returns every format, in the order of the constants.
func Formats() []Format {
	all := make([]Format, len(layouts))
	for i := range all {
		all[i] = Format(i)
	}
	return all
}

// FromGGML returns the format with the given ggml type id, and whether there is one.
func FromGGML(id uint32) (Format, bool) {
	for f, l := range layouts {
		if l.ggml == id {
			return Format(f), true
		}
	}
	return 0, false
}

// ParseFormat returns the format with the given public name, in either case,
// and whether there is one.
func ParseFormat(name string) (Format, bool) {
	for f, l := range layouts {
		if strings.EqualFold(l.name, name) {
			return Format(f), true
		}
	}
	return 0, false
}

// String returns the public name of f, such as "Q4_K".
func (f Format) String() string {
	if int(f) >= len(layouts) {
		return fmt.Sprintf("Format(%d)", uint8(f))
	}
	return layouts[f].name
}

// GGML returns the ggml type id of f.
func (f Format) GGML() uint32 { return f.layout().ggml }

// BlockLen returns the number of elements of a block.
func (f Format) BlockLen() int { return f.layout().blockLen }

// BlockBytes returns the number of bytes of a block.
func (f Format) BlockBytes() int { return f.layout().blockBytes }

// BitsPerWeight returns the mean number of bits of a stored element, scales included.
func (f Format) BitsPerWeight() float64 {
	l := f.layout()
	return float64(8*l.blockBytes) / float64(l.blockLen)
}

// Bytes returns the number of bytes of n elements; n is a multiple of BlockLen.
func (f Format) Bytes(n int) int {
	l := f.layout()
	if n < 0 || n%l.blockLen != 0 {
		panic(fmt.Sprintf("quant: %v: %d elements, want a multiple of %d", f, n, l.blockLen))
	}
	return n / l.blockLen * l.blockBytes
}

func (f Format) layout() *layout {
	if int(f) >= len(layouts) {
		panic(fmt.Sprintf("quant: %v is not a format", f))
	}
	return &layouts[f]
}
