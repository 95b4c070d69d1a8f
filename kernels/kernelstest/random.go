package kernelstest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"graft/kernels/quant"
)

// scales says where a block keeps its half-precision scales, and how large the codes that they
// multiply are: random codes times a scale of 1 have a standard deviation of about spread.
type scales struct {
	at     []int // byte offsets; a second one scales the minimum
	spread float64
}

var scalesOf = map[quant.Format]scales{
	quant.Q4_0: {[]int{0}, 4.6},
	quant.Q4_1: {[]int{0, 2}, 4.6},
	quant.Q5_0: {[]int{0}, 9.2},
	quant.Q5_1: {[]int{0, 2}, 9.2},
	quant.Q8_0: {[]int{0}, 74},
	quant.Q4_K: {[]int{0, 2}, 260}, // code × 6-bit scale
	quant.Q5_K: {[]int{0, 2}, 520}, // code × 6-bit scale
	quant.Q6_K: {[]int{208}, 1370}, // (code−32) × 8-bit scale
}

// RandomRaw makes n elements in the file layout of a format: every code is as likely as any other,
// scales differ from block to block and have both signs, and the values have about the given
// standard deviation.
func RandomRaw(r *rand.Rand, f quant.Format, n int, std float64) []byte {
	raw := make([]byte, f.Bytes(n))
	switch f {
	case quant.F32:
		for i := range n {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(float32(std*r.NormFloat64())))
		}
	case quant.F16:
		for i := range n {
			binary.LittleEndian.PutUint16(raw[2*i:], quant.F32ToF16(float32(std*r.NormFloat64())))
		}
	case quant.BF16:
		for i := range n {
			binary.LittleEndian.PutUint16(raw[2*i:], quant.F32ToBF16(float32(std*r.NormFloat64())))
		}
	default:
		randomBlocks(r, raw, f, std)
	}
	return raw
}

func randomBlocks(r *rand.Rand, raw []byte, f quant.Format, std float64) {
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	s, size := scalesOf[f], f.BlockBytes()
	for b := 0; b < len(raw); b += size {
		d := std / s.spread * (0.6 + 0.8*r.Float64())
		if r.IntN(4) == 0 {
			d = -d
		}
		binary.LittleEndian.PutUint16(raw[b+s.at[0]:], quant.F32ToF16(float32(d)))
		if len(s.at) > 1 {
			m := -d * s.spread * (1 + r.Float64()) // near the middle of the codes
			if f == quant.Q4_K || f == quant.Q5_K {
				m = math.Abs(d) * s.spread / 32 // dmin × 6-bit
			}
			binary.LittleEndian.PutUint16(raw[b+s.at[1]:], quant.F32ToF16(float32(m)))
		}
	}
}
