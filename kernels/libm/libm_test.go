package libm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unary is a function of one argument, the range its random points come from
// and the points that are hard for it.
type unary struct {
	name   string
	f      func(float64) float64
	want   func(float64) *big.Float
	lo, hi float64
	hard   []float64
}

func unaries() []unary {
	pi := bigPi()
	minus := func(x *big.Float) *big.Float { return new(big.Float).Neg(x) }
	// The doubles nearest to a multiple of π/2 (Kahan, Muller): reduction loses about 60 bits.
	angles := []float64{1e-300, 1e-9, 0.5, math.Pi / 4, math.Nextafter(math.Pi/4, 1), math.Pi / 2, math.Pi, 3 * math.Pi / 2, 2 * math.Pi,
		100, 1e5, 1e7, 1e15, 6381956970095103 * 0x1p797, 5.319372648326541e255, 1e22, 1e300, math.MaxFloat64, 0x1p1023, 0x1p53}
	edges := []float64{1e-310, 5e-324, 1e-20, 0x1p-54, 0x1p-30, 0x1p-27, 1e-5, 0.34657359, 0.3465736, 0.6931471805599453, 1, 2, 5, 19.06, 21.9, 37, 40, 50}
	exps := append([]float64{700, 709.7, 709.782712893384, -708.3964, -708.4, -720, -745.1, -745.13}, edges...)
	return []unary{
		{"Exp", Exp, func(x float64) *big.Float { return bigExp(bf(x)) }, -745, 709, exps},
		{"Expm1", Expm1, func(x float64) *big.Float { return bigExpm1(bf(x)) }, -3, 3, edges},
		{"Log", Log, func(x float64) *big.Float { return bigLog(bf(x)) }, 0, 4,
			[]float64{5e-324, 1e-310, 0x1p-1022, 1e-300, 0.5, 0.70710678118654746, 0.70710678118654757, math.Nextafter(1, 0), math.Nextafter(1, 2), 1.41421356237309, 1.4142135623731, 1e10, math.MaxFloat64}},
		{"Log1p", Log1p, func(x float64) *big.Float { return bigLog1p(bf(x)) }, -1, 2,
			append([]float64{-0.2928932188134, -0.292893218813, 0.41421356237, 0.4142135624, math.Nextafter(-1, 0), 1e10, 1e300, -0x1p-53}, edges...)},
		{"Sin", Sin, func(x float64) *big.Float { s, _ := bigSincos(x, pi); return s }, -1e7, 1e7, angles},
		{"Cos", Cos, func(x float64) *big.Float { _, c := bigSincos(x, pi); return c }, -1e7, 1e7, angles},
		{"Tanh", Tanh, func(x float64) *big.Float {
			t := bigExpm1(bf(2 * x))
			return quo(t, add(t, bf(2)))
		}, -22, 22, edges},
		{"Sigmoid", Sigmoid, func(x float64) *big.Float { return quo(bf(1), add(bf(1), bigExp(bf(-x)))) }, -60, 60, append([]float64{-699.9, -700.1, -744}, edges...)},
		{"LogSigmoid", LogSigmoid, func(x float64) *big.Float { return minus(bigLog1p(bigExp(bf(-x)))) }, -60, 60, append([]float64{-700, 699.9, 700.1, 744}, edges...)},
	}
}

// points returns n seeded points: half uniform in the range, half spread over magnitudes.
func (u unary) points(n int) []float64 {
	rng := rand.New(rand.NewPCG(1, 2))
	out := append([]float64{}, u.hard...)
	for _, x := range u.hard {
		if u.lo < 0 && -x > -745 && !(u.name == "Log1p" && x >= 1) {
			out = append(out, -x)
		}
	}
	for range n / 2 {
		out = append(out, u.lo+float64((u.hi-u.lo)*rng.Float64()))
		x := math.Ldexp(1+rng.Float64(), rng.IntN(60)-50)
		if rng.IntN(2) == 0 {
			x = -x
		}
		if x > u.lo && x < u.hi {
			out = append(out, x)
		}
	}
	return out
}

func TestUnaryWithinOneUlp(t *testing.T) {
	for _, u := range unaries() {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			worst, at := 0.0, 0.0
			for _, x := range u.points(2000) {
				if e := ulps(u.f(x), u.want(x)); e > worst {
					worst, at = e, x
				}
			}
			t.Logf("worst %.3f ulp at %v", worst, at)
			assert.LessOrEqual(t, worst, 0.75, "at %v", at)
		})
	}
}

func TestPowWithinOneUlp(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	points := [][2]float64{{10, 308}, {10, -308}, {2, 0.5}, {0.9, 7000}, {1 + 0x1p-52, 0x1p58}, {1 - 0x1p-53, 0x1p60}, {math.MaxFloat64, 0.999}, {5e-324, 0.5}, {2, -1074},
		{3, -677.9}, {0.999, 1e5}, {10000, -0.03125}, {500000, -0.9921875}, {math.Sqrt2, 2}, {7, 300}, {2, 1023.9999}, {-3, 3}, {-2, -2}, {0x1p-1022, 1.05}}
	for range 1000 {
		x := math.Ldexp(1+rng.Float64(), rng.IntN(40)-20)
		points = append(points, [2]float64{x, float64(40*rng.Float64()) - 20}, [2]float64{0.5 + rng.Float64(), float64(1000*rng.Float64()) - 500})
	}
	worst, at := 0.0, [2]float64{}
	for _, p := range points {
		want := bigExp(mul(bf(p[1]), bigLog(bf(math.Abs(p[0])))))
		got := Pow(p[0], p[1])
		if p[0] < 0 && math.Mod(p[1], 2) != 0 {
			got = -got
		}
		if e := ulps(got, want); e > worst {
			worst, at = e, p
		}
	}
	t.Logf("worst %.3f ulp at %v", worst, at)
	require.LessOrEqual(t, worst, 0.75, "at %v", at)
}

// Package math agrees on the special cases of C99, so it is the oracle for them;
// ordinary values are left to the tests of accuracy.
func TestSpecialValues(t *testing.T) {
	special := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, 2, -2, 3, -3, 5e-324, -5e-324, 1e300, -1e300, 0x1p53, 0x1p53 + 2, -0x1p53, 4503599627370497.5,
		math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, -math.MaxFloat64}
	same := func(got, want float64, format string, args ...any) {
		t.Helper()
		what := fmt.Sprintf(format, args...)
		if math.IsNaN(want) || math.IsInf(want, 0) || want == 0 || math.Abs(want) == 1 {
			ok := got == want && math.Signbit(got) == math.Signbit(want) || math.IsNaN(got) && math.IsNaN(want)
			assert.True(t, ok, "%s = %v, want %v", what, got, want)
		} else {
			assert.False(t, math.IsNaN(got) || math.IsInf(got, 0), "%s = %v, want %v", what, got, want)
		}
	}
	for _, x := range special {
		same(Exp(x), math.Exp(x), "Exp(%v)", x)
		same(Expm1(x), math.Expm1(x), "Expm1(%v)", x)
		same(Log(x), math.Log(x), "Log(%v)", x)
		same(Log1p(x), math.Log1p(x), "Log1p(%v)", x)
		same(Sin(x), math.Sin(x), "Sin(%v)", x)
		same(Cos(x), math.Cos(x), "Cos(%v)", x)
		same(Tanh(x), math.Tanh(x), "Tanh(%v)", x)
		for _, y := range special {
			same(Pow(x, y), math.Pow(x, y), "Pow(%v, %v)", x, y)
		}
	}
	same(Sigmoid(math.Inf(1)), 1, "Sigmoid(+Inf)")
	same(Sigmoid(math.Inf(-1)), 0, "Sigmoid(-Inf)")
	same(Sigmoid(math.NaN()), math.NaN(), "Sigmoid(NaN)")
	same(LogSigmoid(math.Inf(1)), math.Copysign(0, -1), "LogSigmoid(+Inf)")
	same(LogSigmoid(math.Inf(-1)), math.Inf(-1), "LogSigmoid(-Inf)")
	same(LogSigmoid(math.NaN()), math.NaN(), "LogSigmoid(NaN)")
}

// The bits of every platform are those of the one these hashes were made on: a
// compiler that fuses, or a rounding of another kind, fails here.
func TestSameBitsEverywhere(t *testing.T) {
	want := map[string]string{
		"Exp": "c62ebe53c4e118a3", "Expm1": "22b7f342e5b625ec", "Log": "224955f83e364186", "Log1p": "107450c710494b80",
		"Sin": "2b0fb28ed011be25", "Cos": "12dcfbe5665d3c3f", "Tanh": "7cc785ea97e3df75", "Sigmoid": "1b013d7a99dbfee4",
		"LogSigmoid": "6900a95a79d96d68", "Pow": "e50c78b47b0e8de4",
	}
	for _, u := range unaries() {
		h := sha256.New()
		for _, x := range u.points(20000) {
			require.NoError(t, binary.Write(h, binary.LittleEndian, u.f(x)))
		}
		assert.Equal(t, want[u.name], fmt.Sprintf("%x", h.Sum(nil)[:8]), u.name)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	h := sha256.New()
	for range 20000 {
		x, y := math.Ldexp(1+rng.Float64(), rng.IntN(40)-20), float64(40*rng.Float64())-20
		require.NoError(t, binary.Write(h, binary.LittleEndian, Pow(x, y)))
	}
	assert.Equal(t, want["Pow"], fmt.Sprintf("%x", h.Sum(nil)[:8]), "Pow")
}

func BenchmarkExp(b *testing.B)  { benchmark(b, Exp) }
func BenchmarkLog(b *testing.B)  { benchmark(b, Log) }
func BenchmarkSin(b *testing.B)  { benchmark(b, func(x float64) float64 { return Sin(x * 1e4) }) }
func BenchmarkTanh(b *testing.B) { benchmark(b, Tanh) }
func BenchmarkPow(b *testing.B)  { benchmark(b, func(x float64) float64 { return Pow(1e4, -x) }) }

func benchmark(b *testing.B, f func(float64) float64) {
	x, sum := 0.1, 0.0
	for b.Loop() {
		sum += f(x)
		if x += 0.37; x > 10 {
			x = 0.1
		}
	}
	if math.IsNaN(sum) {
		b.Fatal("NaN")
	}
}
