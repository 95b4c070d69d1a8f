package vec

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// hardFloats yields float32 whose products and sums meet ties, cancellation,
// subnormals and overflow.
func hardFloats(rng *rand.Rand) float32 {
	sign := uint32(rng.IntN(2)) << 31
	switch rng.IntN(8) {
	case 0: // few bits, so that sums end in halves
		return math.Float32frombits(sign | uint32(100+rng.IntN(60))<<23 | uint32(rng.IntN(8))<<20 | uint32(rng.IntN(4)))
	case 1: // subnormal
		return math.Float32frombits(sign | rng.Uint32()&(1<<23-1))
	case 2:
		special := []float32{0, 1, math.MaxFloat32, math.SmallestNonzeroFloat32, 0x1p-126, 0x1p-127, 0x1p-75, 0x1p64, 1 + 0x1p-12, 1 + 0x1p-23}
		return math.Float32frombits(sign | math.Float32bits(special[rng.IntN(len(special))]))
	case 3: // large
		return math.Float32frombits(sign | uint32(240+rng.IntN(15))<<23 | rng.Uint32()&(1<<23-1))
	case 4: // near 2⁻⁷⁵, whose squares are subnormal
		return math.Float32frombits(sign | uint32(45+rng.IntN(12))<<23 | rng.Uint32()&(1<<23-1))
	default:
		return math.Float32frombits(sign | uint32(115+rng.IntN(24))<<23 | rng.Uint32()&(1<<23-1))
	}
}

// exactFMA rounds a·b + c once, in big.Float; the product is exact in float64.
func exactFMA(a, b, c float32) float32 {
	sum := new(big.Float).SetPrec(1200).SetFloat64(float64(a) * float64(b))
	s, _ := sum.Add(sum, big.NewFloat(float64(c))).Float32()
	return s
}

func TestFMARoundsOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	twice := 0
	for range 300000 {
		a, b, c := hardFloats(rng), hardFloats(rng), hardFloats(rng)
		if rng.IntN(3) == 0 { // c near half a unit of the product, or its opposite
			p := float32(a * b)
			c = p * []float32{-1, 0x1p-24, -0x1p-24, 0x1p-25, 0x1p24, 0x1p23, -0x1p24}[rng.IntN(7)]
			if math.IsInf(float64(c), 0) || c != c {
				continue
			}
		}
		got, want := fma32(a, b, c), exactFMA(a, b, c)
		if want == 0 && got == 0 && (a == 0 || b == 0 || c == 0 || float64(a)*float64(b) == -float64(c)) {
			want = float32(float64(a)*float64(b) + float64(c)) // the sign of an exact zero is IEEE's
		}
		require.Equal(t, math.Float32bits(want), math.Float32bits(got), "fma(%x, %x, %x): want %x, got %x", a, b, c, want, got)
		if float32(math.FMA(float64(a), float64(b), float64(c))) != got {
			twice++
		}
	}
	require.Greater(t, twice, 20, "too few cases in which rounding twice is wrong")
}

// TestFMAEqualsHardware runs one step of 16 chains, most of them near a half.
func TestFMAEqualsHardware(t *testing.T) {
	eachISA(t, func(t *testing.T, k *Kernels) {
		rng := rand.New(rand.NewPCG(23, 24))
		for range 20000 {
			var b, c, want [Lanes]float32
			a := hardFloats(rng)
			for lane := range b {
				b[lane], c[lane] = hardFloats(rng), hardFloats(rng)
				if lane%2 == 0 {
					c[lane] = float32(a*b[lane]) * []float32{-1, 0x1p-24, 0x1p-25, 0x1p24, -0x1p23}[rng.IntN(5)]
				}
				want[lane] = fma32(a, b[lane], c[lane])
			}
			got, lanes := c, c
			k.Gemm(&GemmArgs{A: unsafe.Pointer(&a), B: unsafe.Pointer(&b), C: unsafe.Pointer(&got), M: 1, P: 1, K: 1, Keep: 1})
			fmaLanes(&lanes, a, &b)
			for lane, w := range want {
				if w == w || got[lane] == got[lane] || lanes[lane] == lanes[lane] {
					require.Equal(t, math.Float32bits(w), math.Float32bits(got[lane]), "fma(%x, %x, %x)", a, b[lane], c[lane])
					require.Equal(t, math.Float32bits(w), math.Float32bits(lanes[lane]), "fmaLanes(%x, %x, %x)", a, b[lane], c[lane])
				}
			}
		}
	})
}

// Cases worked by hand: the exact sum lies just beside a half.
func TestFMAHardCases(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct{ a, b, c, want float32 }{
		{1 + 0x1p-12, 1 + 0x1p-12, 0x1p-80, 1 + 0x1p-11 + 0x1p-23}, // 1+2⁻¹¹+2⁻²⁴ and a little more: up
		{1 + 0x1p-12, 1 + 0x1p-12, -0x1p-80, 1 + 0x1p-11},          // and a little less: down
		{1 + 0x1p-12, 1 + 0x1p-12, 0, 1 + 0x1p-11},                 // the half itself: even
		{0x1p-75, 0x1p-75, 0, 0},                                   // 2⁻¹⁵⁰, half the least subnormal: even
		{0x1p-75, 0x1p-75 + 0x1p-98, 0, 0x1p-149},                  // above the half
		{0x1p-75, 0x1.8p-74, 0x1p-149, 0x1p-148},                   // 2⁻¹⁴⁹ + 1.5·2⁻¹⁴⁹: a half above 2, to even
		// 2⁻¹⁵⁰(1−2⁻⁴⁶), just below half of the last bit of a subnormal that is odd
		{0x1p-75 + 0x1p-98, 0x1p-75 - 0x1p-98, 0x1p-127 + 0x1p-149, 0x1p-127 + 0x1p-149},
		{math.MaxFloat32, 1, 0x1p103, inf}, // half a unit above the largest: overflow
		{math.MaxFloat32, 1, math.MaxFloat32 * 0x1p-26, math.MaxFloat32},
		{math.MaxFloat32, 2, -math.MaxFloat32, math.MaxFloat32}, // no overflow in between
	} {
		require.Equal(t, math.Float32bits(c.want), math.Float32bits(fma32(c.a, c.b, c.c)), "fma(%x, %x, %x)", c.a, c.b, c.c)
		require.Equal(t, math.Float32bits(-c.want), math.Float32bits(fma32(-c.a, c.b, -c.c))|btoi(c.want == 0)<<31, "fma(%x, %x, %x)", -c.a, c.b, -c.c)
	}
	require.True(t, math.Signbit(float64(fma32(-1, 0, float32(math.Copysign(0, -1))))))
	require.False(t, math.Signbit(float64(fma32(1, 2, -2))))
	require.Equal(t, inf, fma32(inf, 1, -math.MaxFloat32))
	for _, nan := range []float32{fma32(inf, 0, 1), fma32(inf, 1, -inf), fma32(float32(math.NaN()), 1, 1)} {
		require.True(t, nan != nan)
	}
}

func btoi(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func BenchmarkFMA(b *testing.B) {
	var x, w, acc [4096]float32
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range x {
		x[i], w[i] = rng.Float32()-0.5, rng.Float32()-0.5
	}
	for b.Loop() {
		for i := 0; i < len(acc); i += Lanes {
			fmaLanes((*[Lanes]float32)(acc[i:]), x[i], (*[Lanes]float32)(w[i:]))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4096, "ns/fma")
}
