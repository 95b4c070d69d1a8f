package quant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Decode writes the values of the blocks in src to dst. len(dst) is a multiple
// of f.BlockLen and len(src) is f.Bytes(len(dst)).
func Decode(dst []float32, f Format, src []byte) {
	if want := f.Bytes(len(dst)); len(src) != want {
		panic(fmt.Sprintf("quant: Decode %v: %d bytes for %d elements, want %d", f, len(src), len(dst), want))
	}
	switch f {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
		return
	case F16:
		for i := range dst {
			dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
		return
	case BF16:
		for i := range dst {
			dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
		return
	}
	n, size := f.BlockLen(), f.BlockBytes()
	for ; len(dst) > 0; dst, src = dst[n:], src[size:] {
		decodeBlock(dst[:n], f, src[:size])
	}
}

// decodeBlock decodes one block of a quantized format.
func decodeBlock(dst []float32, f Format, b []byte) {
	switch f {
	case Q4_0:
		decodeQ4_0((*[32]float32)(dst), (*[18]byte)(b))
	case Q4_1:
		decodeQ4_1((*[32]float32)(dst), (*[20]byte)(b))
	case Q5_0:
		decodeQ5_0((*[32]float32)(dst), (*[22]byte)(b))
	case Q5_1:
		decodeQ5_1((*[32]float32)(dst), (*[24]byte)(b))
	case Q8_0:
		decodeQ8_0((*[32]float32)(dst), (*[34]byte)(b))
	case Q4_K:
		decodeQ4_K((*[256]float32)(dst), (*[144]byte)(b))
	case Q5_K:
		decodeQ5_K((*[256]float32)(dst), (*[176]byte)(b))
	case Q6_K:
		decodeQ6_K((*[256]float32)(dst), (*[210]byte)(b))
	default:
		panic(fmt.Sprintf("quant: Decode: no decoder for %v", f))
	}
}

// halfAt returns the value of the little-endian half at the start of b.
func halfAt(b []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(b)) }

func decodeQ4_0(dst *[32]float32, b *[18]byte) {
	d := halfAt(b[:])
	for j, q := range b[2:] {
		dst[j] = float32(int(q&15)-8) * d
		dst[j+16] = float32(int(q>>4)-8) * d
	}
}

func decodeQ4_1(dst *[32]float32, b *[20]byte) {
	d, m := halfAt(b[:]), halfAt(b[2:])
	for j, q := range b[4:] {
		dst[j] = float32(float32(q&15)*d) + m
		dst[j+16] = float32(float32(q>>4)*d) + m
	}
}

func decodeQ5_0(dst *[32]float32, b *[22]byte) {
	d, high := halfAt(b[:]), binary.LittleEndian.Uint32(b[2:])
	for j, q := range b[6:] {
		dst[j] = float32(int(q&15)+int(high>>j&1)<<4-16) * d
		dst[j+16] = float32(int(q>>4)+int(high>>(j+16)&1)<<4-16) * d
	}
}

func decodeQ5_1(dst *[32]float32, b *[24]byte) {
	d, m, high := halfAt(b[:]), halfAt(b[2:]), binary.LittleEndian.Uint32(b[4:])
	for j, q := range b[8:] {
		dst[j] = float32(float32(int(q&15)+int(high>>j&1)<<4)*d) + m
		dst[j+16] = float32(float32(int(q>>4)+int(high>>(j+16)&1)<<4)*d) + m
	}
}

func decodeQ8_0(dst *[32]float32, b *[34]byte) {
	d := halfAt(b[:])
	for j, q := range b[2:] {
		dst[j] = float32(int8(q)) * d
	}
}

// scaleMin returns the 6-bit scale and minimum of sub-block j of a Q4_K or Q5_K
// block. The low four sub-blocks keep theirs in the low six bits of bytes 0-7;
// the high four are split between bytes 8-11 and the top two bits of 0-7.
func scaleMin(s *[12]byte, j int) (sc, m byte) {
	if j < 4 {
		return s[j] & 63, s[j+4] & 63
	}
	return s[j+4]&15 | s[j-4]>>6<<4, s[j+4]>>4 | s[j]>>6<<4
}

func decodeQ4_K(dst *[256]float32, b *[144]byte) {
	d, dmin, scales := halfAt(b[:]), halfAt(b[2:]), (*[12]byte)(b[4:])
	for c := range 4 { // chunk of 64 elements: low nibbles, then high nibbles
		out, qs := (*[64]float32)(dst[64*c:]), (*[32]byte)(b[16+32*c:])
		sc, m := scaleMin(scales, 2*c)
		d0, m0 := float32(d*float32(sc)), float32(dmin*float32(m))
		sc, m = scaleMin(scales, 2*c+1)
		d1, m1 := float32(d*float32(sc)), float32(dmin*float32(m))
		for l, q := range qs {
			out[l] = float32(d0*float32(q&15)) - m0
			out[l+32] = float32(d1*float32(q>>4)) - m1
		}
	}
}

func decodeQ5_K(dst *[256]float32, b *[176]byte) {
	d, dmin, scales := halfAt(b[:]), halfAt(b[2:]), (*[12]byte)(b[4:])
	high := (*[32]byte)(b[16:])
	for c := range 4 {
		out, qs := (*[64]float32)(dst[64*c:]), (*[32]byte)(b[48+32*c:])
		sc, m := scaleMin(scales, 2*c)
		d0, m0 := float32(d*float32(sc)), float32(dmin*float32(m))
		sc, m = scaleMin(scales, 2*c+1)
		d1, m1 := float32(d*float32(sc)), float32(dmin*float32(m))
		for l, q := range qs {
			bits := high[l] >> (2 * c)
			out[l] = float32(d0*float32(q&15|bits&1<<4)) - m0
			out[l+32] = float32(d1*float32(q>>4|bits>>1&1<<4)) - m1
		}
	}
}

func decodeQ6_K(dst *[256]float32, b *[210]byte) {
	d := halfAt(b[208:])
	for h := range 2 { // halves of 128 elements
		out := (*[128]float32)(dst[128*h:])
		low, high := (*[64]byte)(b[64*h:]), (*[32]byte)(b[128+32*h:])
		scales := (*[8]byte)(b[192+8*h:])
		for l, hi := range high {
			k := l / 16
			out[l] = d * float32(int8(scales[k])) * float32(int(low[l]&15|hi&3<<4)-32)
			out[l+32] = d * float32(int8(scales[2+k])) * float32(int(low[l+32]&15|hi>>2&3<<4)-32)
			out[l+64] = d * float32(int8(scales[4+k])) * float32(int(low[l]>>4|hi>>4&3<<4)-32)
			out[l+96] = d * float32(int8(scales[6+k])) * float32(int(low[l+32]>>4|hi>>6<<4)-32)
		}
	}
}
