package quant

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEncodeMatchesLlamaCpp(t *testing.T) {
	for _, g := range goldens {
		want := goldenBytes(t, g.format)
		got := make([]byte, len(want))
		Encode(got, g.format, ramp(len(want)/g.format.BlockBytes()*g.format.BlockLen()))
		assert.Equal(t, want, got, g.format)
	}
}

// samples are blocks of many kinds: bell-shaped, one-sided, sparse, tiny, large, constant, zero.
func samples(n int) [][]float32 {
	rng := rand.New(rand.NewPCG(7, 8))
	make256 := func(f func(i int) float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(f(i))
		}
		return x
	}
	return [][]float32{
		make256(func(int) float64 { return rng.NormFloat64() }),
		make256(func(int) float64 { return rng.NormFloat64() * 0.02 }),
		make256(func(int) float64 { return rng.Float64() + 5 }),
		make256(func(int) float64 { return -rng.Float64() }),
		make256(func(i int) float64 { return float64(i%37/36) * 3 }),
		make256(func(i int) float64 { return rng.NormFloat64() * math.Pow(2, float64(i/32)) }),
		make256(func(int) float64 { return rng.NormFloat64() * 1e-4 }),
		make256(func(int) float64 { return rng.NormFloat64() * 1e4 }),
		make256(func(int) float64 { return 0.7 }),
		make256(func(int) float64 { return -0.7 }),
		make256(func(int) float64 { return 0 }),
	}
}

// The error of an element is at most half a step of its block, plus what the
// half-precision scale loses; the search of the K formats may trade more at
// single elements, so the bound there is on the root of the mean square.
func TestEncodeErrorBounds(t *testing.T) {
	for _, f := range []Format{F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K} {
		for s, x := range samples(256) {
			b, y := make([]byte, f.Bytes(256)), make([]float32, 256)
			Encode(b, f, x)
			Decode(y, f, b)
			group := min(f.BlockLen(), 32)
			for at := 0; at < 256; at += group {
				lo, hi := bounds(x[at : at+group])
				most := float64(max(-lo, hi))
				span := float64(hi - lo)
				var bound float64 // of an element
				switch f {
				case F32:
					bound = 0
				case F16:
					bound = most*0x1p-11 + 0x1p-25
				case BF16:
					bound = most * 0x1p-8
				case Q4_0: // the side opposite to the extreme ends at 7 of 8 steps
					bound = most/8 + most*0x1p-10 + 1e-6
				case Q5_0:
					bound = most/16 + most*0x1p-10 + 1e-6
				case Q4_1:
					bound = span/30 + (span+most)*0x1p-10 + 1e-6
				case Q5_1:
					bound = span/62 + (span+most)*0x1p-10 + 1e-6
				case Q8_0:
					bound = most/254 + most*0x1p-10 + 4e-6
				default:
					continue
				}
				for i := at; i < at+group; i++ {
					require.LessOrEqual(t, math.Abs(float64(x[i]-y[i])), bound, "%v, sample %d, element %d of %v", f, s, i, x[i])
				}
			}
			var sum, all float64
			for i := range x {
				sum += math.Pow(float64(x[i]-y[i]), 2)
				all += math.Pow(float64(x[i]), 2)
			}
			relative := map[Format]float64{Q4_K: 0.1, Q5_K: 0.05, Q6_K: 0.03}
			if bound, ok := relative[f]; ok {
				require.LessOrEqual(t, math.Sqrt(sum), bound*math.Sqrt(all)+1e-9, "%v, sample %d", f, s)
			}
		}
	}
}

// More bits give no larger an error on ordinary weights.
func TestMoreBitsFitBetter(t *testing.T) {
	x := samples(2048)[0]
	var last float64
	for _, f := range []Format{Q4_0, Q4_1, Q4_K, Q5_K, Q6_K, Q8_0, BF16, F16, F32} {
		b, y := make([]byte, f.Bytes(len(x))), make([]float32, len(x))
		Encode(b, f, x)
		Decode(y, f, b)
		var sum float64
		for i := range x {
			sum += math.Pow(float64(x[i]-y[i]), 2)
		}
		if f != Q4_0 && f != BF16 {
			require.Less(t, sum, last, f)
		}
		last = sum
	}
}

// With a scale of 1 the integers of Q8_0 are the values, halves away from zero.
func TestQ8_0RoundsHalvesAwayFromZero(t *testing.T) {
	x, b := make([]float32, 32), make([]byte, 34)
	copy(x, []float32{127, 0.5, 1.5, -0.5, -2.5, 0.49999997, -126.5})
	Encode(b, Q8_0, x)
	for i, want := range []int8{127, 1, 2, -1, -3, 0, -127, 0} {
		require.Equal(t, want, int8(b[2+i]), "%v", x[i])
	}
}

// Values that the format holds exactly come back as the same bytes.
func TestEncodeDecodeIsIdempotent(t *testing.T) {
	for _, f := range []Format{F32, F16, BF16, Q4_0, Q5_0, Q8_0} {
		for s, x := range samples(256) {
			b, again, y := make([]byte, f.Bytes(256)), make([]byte, f.Bytes(256)), make([]float32, 256)
			Encode(b, f, x)
			Decode(y, f, b)
			Encode(again, f, y)
			z := make([]float32, 256)
			Decode(z, f, again)
			require.Equal(t, y, z, "%v, sample %d", f, s)
		}
	}
}

func TestEncodeTakesAnyFloat(t *testing.T) {
	bad := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32}
	for _, f := range Formats() {
		x := make([]float32, 256)
		for i := range x {
			x[i] = bad[i%len(bad)]
		}
		b, y := make([]byte, f.Bytes(256)), make([]float32, 256)
		require.NotPanics(t, func() { Encode(b, f, x); Decode(y, f, b) }, f)
	}
	require.Panics(t, func() { Encode(make([]byte, 17), Q4_0, make([]float32, 32)) })
}

// Every half is the same after a trip through float32, and the nearest of the
// two neighbours of every midpoint is the even one.
func TestHalvesRoundTrip(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := F16ToF32(h)
		if f != f {
			require.Equal(t, h|0x200, F32ToF16(f), "NaN %#x", h)
		} else {
			require.Equal(t, h, F32ToF16(f), "%#x", h)
		}
		if up := F16ToF32(h + 1); h&0x7fff < 0x7bff {
			mid := float32((float64(f) + float64(up)) / 2)
			require.Equal(t, (h+1)&^1, F32ToF16(mid), "after %#x", h)
			require.Equal(t, h, F32ToF16(math.Nextafter32(mid, f)), "after %#x", h)
			require.Equal(t, h+1, F32ToF16(math.Nextafter32(mid, up)), "after %#x", h)
		}
		g := BF16ToF32(h)
		if g != g {
			require.Equal(t, h|0x40, F32ToBF16(g), "NaN %#x", h)
			continue
		}
		require.Equal(t, h, F32ToBF16(g), "%#x", h)
		if h&0x7fff < 0x7f7f {
			mid := math.Float32frombits(uint32(h)<<16 | 0x8000)
			require.Equal(t, (h+1)&^1, F32ToBF16(mid), "after %#x", h)
		}
	}
	require.EqualValues(t, 0x7bff, F32ToF16(65519.99))
	require.EqualValues(t, 0x7c00, F32ToF16(65520))
	require.EqualValues(t, 0xfc00, F32ToF16(float32(math.Inf(-1))))
	require.EqualValues(t, 0, F32ToF16(0x1p-25), "a tie with zero")
	require.EqualValues(t, 0x7f80, F32ToBF16(math.MaxFloat32))
}

func TestFormatTable(t *testing.T) {
	bpw := map[Format]float64{F32: 32, F16: 16, BF16: 16, Q4_0: 4.5, Q4_1: 5, Q5_0: 5.5, Q5_1: 6, Q8_0: 8.5, Q4_K: 4.5, Q5_K: 5.5, Q6_K: 6.5625}
	require.Len(t, bpw, len(Formats()))
	for _, f := range Formats() {
		require.Equal(t, bpw[f], f.BitsPerWeight(), f)
		got, ok := FromGGML(f.GGML())
		require.True(t, ok)
		require.Equal(t, f, got)
		got, ok = ParseFormat(f.String())
		require.True(t, ok)
		require.Equal(t, f, got)
		require.Equal(t, 3*f.BlockBytes(), f.Bytes(3*f.BlockLen()))
	}
	f, ok := ParseFormat("q4_k")
	require.True(t, ok)
	require.Equal(t, Q4_K, f)
	_, ok = ParseFormat("Q4_K_M")
	require.False(t, ok, "a mix of formats is no format")
	_, ok = FromGGML(17)
	require.False(t, ok)
	require.Panics(t, func() { Q4_0.Bytes(33) })
	require.Panics(t, func() { Format(99).BlockLen() })
	require.Equal(t, "Format(99)", Format(99).String())
}

func FuzzDecode(f *testing.F) {
	for _, g := range Formats() {
		f.Add(uint8(g), make([]byte, g.BlockBytes()))
	}
	f.Fuzz(func(t *testing.T, format uint8, b []byte) {
		g := Format(format % uint8(len(layouts)))
		blocks := len(b) / g.BlockBytes()
		x := make([]float32, blocks*g.BlockLen())
		Decode(x, g, b[:blocks*g.BlockBytes()])
		Encode(b[:blocks*g.BlockBytes()], g, x)
	})
}

// The bytes and the values of every platform are those of the one this hash was
// made on: a compiler that fuses a product with a sum fails here.
func TestSameBitsEverywhere(t *testing.T) {
	want := map[Format]string{
		F32: "7c4f433050a1bbec", F16: "1403b1972e34aac6", BF16: "264e8abebf00e9b5", Q4_0: "6d896c97a63601c5",
		Q4_1: "3d122945928698b5", Q5_0: "fb2982bd13a6bc30", Q5_1: "3fddf8755ffb6ed3", Q8_0: "65fd1d6e0ca10a6b",
		Q4_K: "2b6513f4bae76795", Q5_K: "545ba5bc8b747b3e", Q6_K: "d088891b21d10318",
	}
	for _, f := range Formats() {
		s, h := uint32(1), sha256.New()
		for block := range 64 {
			x := make([]float32, 256)
			for i := range x {
				s = s*1664525 + 1013904223
				x[i] = float32(int32(s)>>8) * 0x1p-23 * float32(1+block%7)
				if block%3 == 0 {
					x[i] *= x[i] // one-sided
				}
			}
			b := make([]byte, f.Bytes(256))
			Encode(b, f, x)
			Decode(x, f, b)
			h.Write(b)
			require.NoError(t, binary.Write(h, binary.LittleEndian, x))
		}
		assert.Equal(t, want[f], fmt.Sprintf("%x", h.Sum(nil)[:8]), f)
	}
}
