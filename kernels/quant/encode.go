package quant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Encode writes the blocks that hold the values of src, nearest in the sense of
// ggml's reference quantizers, to dst. len(src) is a multiple of f.BlockLen and
// len(dst) is f.Bytes(len(src)). The values are finite and small enough for a
// half-precision scale; others give blocks that decode to NaN or infinities.
func Encode(dst []byte, f Format, src []float32) {
	if want := f.Bytes(len(src)); len(dst) != want {
		panic(fmt.Sprintf("quant: Encode %v: %d bytes for %d elements, want %d", f, len(dst), len(src), want))
	}
	switch f {
	case F32:
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
		return
	case F16:
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToF16(x))
		}
		return
	case BF16:
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16(x))
		}
		return
	}
	n, size := f.BlockLen(), f.BlockBytes()
	for ; len(src) > 0; dst, src = dst[size:], src[n:] {
		encodeBlock(dst[:size], f, src[:n])
	}
}

// encodeBlock encodes one block of a quantized format.
func encodeBlock(b []byte, f Format, src []float32) {
	switch f {
	case Q4_0:
		encodeQ4_0((*[18]byte)(b), (*[32]float32)(src))
	case Q4_1:
		encodeQ4_1((*[20]byte)(b), (*[32]float32)(src))
	case Q5_0:
		encodeQ5_0((*[22]byte)(b), (*[32]float32)(src))
	case Q5_1:
		encodeQ5_1((*[24]byte)(b), (*[32]float32)(src))
	case Q8_0:
		encodeQ8_0((*[34]byte)(b), (*[32]float32)(src))
	case Q4_K:
		encodeQ4_K((*[144]byte)(b), (*[256]float32)(src))
	case Q5_K:
		encodeQ5_K((*[176]byte)(b), (*[256]float32)(src))
	case Q6_K:
		encodeQ6_K((*[210]byte)(b), (*[256]float32)(src))
	default:
		panic(fmt.Sprintf("quant: Encode: no encoder for %v", f))
	}
}

// putHalf writes x as a little-endian half.
func putHalf(b []byte, x float32) { binary.LittleEndian.PutUint16(b, F32ToF16(x)) }

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// inverse returns 1/d, or 0 for 0.
func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// level returns x without its fraction as an integer in [0, top]; 0 for NaN. The
// conversion of other values to an integer would depend on the platform.
func level(x float32, top int) byte {
	switch {
	case !(x > 0):
		return 0
	case x >= float32(top):
		return byte(top)
	}
	return byte(x)
}

// extreme returns the element of largest magnitude, the first of equals.
func extreme(x []float32) float32 {
	var most, magnitude float32
	for _, v := range x {
		if a := abs(v); a > magnitude {
			most, magnitude = v, a
		}
	}
	return most
}

// bounds returns the smallest and the largest element.
func bounds(x []float32) (lo, hi float32) {
	lo, hi = x[0], x[0]
	for _, v := range x {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	return lo, hi
}

func encodeQ4_0(b *[18]byte, x *[32]float32) {
	d := extreme(x[:]) / -8
	inv := inverse(d)
	putHalf(b[:], d)
	for j := range 16 {
		q0 := level(float32(x[j]*inv)+8.5, 15)
		q1 := level(float32(x[j+16]*inv)+8.5, 15)
		b[2+j] = q0 | q1<<4
	}
}

func encodeQ4_1(b *[20]byte, x *[32]float32) {
	lo, hi := bounds(x[:])
	d := (hi - lo) / 15
	inv := inverse(d)
	putHalf(b[:], d)
	putHalf(b[2:], lo)
	for j := range 16 {
		q0 := level(float32((x[j]-lo)*inv)+0.5, 15)
		q1 := level(float32((x[j+16]-lo)*inv)+0.5, 15)
		b[4+j] = q0 | q1<<4
	}
}

func encodeQ5_0(b *[22]byte, x *[32]float32) {
	d := extreme(x[:]) / -16
	inv := inverse(d)
	putHalf(b[:], d)
	var high uint32
	for j := range 16 {
		q0 := level(float32(x[j]*inv)+16.5, 31)
		q1 := level(float32(x[j+16]*inv)+16.5, 31)
		b[6+j] = q0&15 | q1<<4
		high |= uint32(q0>>4)<<j | uint32(q1>>4)<<(j+16)
	}
	binary.LittleEndian.PutUint32(b[2:], high)
}

func encodeQ5_1(b *[24]byte, x *[32]float32) {
	lo, hi := bounds(x[:])
	d := (hi - lo) / 31
	inv := inverse(d)
	putHalf(b[:], d)
	putHalf(b[2:], lo)
	var high uint32
	for j := range 16 {
		q0 := level(float32((x[j]-lo)*inv)+0.5, 31)
		q1 := level(float32((x[j+16]-lo)*inv)+0.5, 31)
		b[8+j] = q0&15 | q1<<4
		high |= uint32(q0>>4)<<j | uint32(q1>>4)<<(j+16)
	}
	binary.LittleEndian.PutUint32(b[4:], high)
}

func encodeQ8_0(b *[34]byte, x *[32]float32) {
	d := abs(extreme(x[:])) / 127
	inv := inverse(d)
	putHalf(b[:], d)
	for j, v := range x {
		// |v·inv| rounded half away from zero: its float32 sum with ½ would round once more
		q := int8(level(float32(math.Floor(float64(abs(v*inv))+0.5)), 127))
		if v < 0 {
			q = -q
		}
		b[2+j] = byte(q)
	}
}
