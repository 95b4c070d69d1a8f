package vec

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// ulps returns the distance of got from want in units in the last place of the
// float32 nearest want.
func ulps(got float32, want float64) float64 {
	a := math.Abs(want)
	exp := math.Max(math.Floor(math.Log2(a)), -126)
	return math.Abs(float64(got)-want) / math.Ldexp(1, int(exp)-23)
}

// sweep calls f with float32 of every size and sign, NaN and ±Inf among them.
func sweep(stride uint32, f func(x float32)) {
	for u := uint64(0); u < 1<<32; u += uint64(stride) {
		f(math.Float32frombits(uint32(u)))
	}
	for _, x := range []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1, -1, math.MaxFloat32} {
		f(float32(x))
	}
}

func TestScalarFunctionsAreWithinTheirError(t *testing.T) {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for _, c := range []struct {
		name      string
		f         func(float32) float32
		want      func(float64) float64
		low, high float64
		ulps      float64
	}{
		{"Exp", Exp, math.Exp, -104, 88.72, 0.9},
		{"Exp/near", Exp, math.Exp, -1, 1, 0.9},
		{"Log", Log, math.Log, 1e-45, math.MaxFloat32, 1},
		{"Log/near 1", Log, math.Log, 0.5, 2, 1},
		{"Sigmoid", Sigmoid, sigmoid, -88, 100, 3},
		{"Tanh", Tanh, math.Tanh, -20, 20, 1.5},
		{"Tanh/near 0", Tanh, math.Tanh, -1, 1, 1.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			worst, at := 0.0, float32(0)
			visit := func(x float32) {
				if float64(x) < c.low || float64(x) > c.high || x != x {
					return
				}
				want := c.want(float64(x))
				if want == 0 {
					require.Equal(t, float32(want), c.f(x), "%g", x)
					return
				}
				if e := ulps(c.f(x), want); e > worst {
					worst, at = e, x
				}
			}
			sweep(4099, visit)
			for i := 0; i <= 200_000; i++ {
				visit(float32(c.low + (c.high-c.low)*float64(i)/200_000))
			}
			t.Logf("worst error %.3f ulp at %g", worst, at)
			require.LessOrEqual(t, worst, c.ulps, "at %g", at)
		})
	}
}

func TestGELUFollowsItsDefinition(t *testing.T) {
	for x := -10.0; x <= 10; x += 1.0 / 512 {
		want := x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
		// Far left, the definition itself cancels in float64; 1e-9 allows for that.
		require.InDelta(t, want, float64(GELU(float32(x))), 1e-6*math.Abs(want)+1e-9, "%g", x)
	}
}

func TestScalarFunctionsAtTheEdges(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	require.Equal(t, float32(1), Exp(0))
	require.Equal(t, float32(0), Exp(-inf))
	require.Equal(t, float32(0), Exp(-104.1))
	require.Equal(t, float32(math.SmallestNonzeroFloat32), Exp(-103.2))
	require.Equal(t, inf, Exp(inf))
	require.Equal(t, inf, Exp(88.8))
	require.Equal(t, float32(0), Log(1))
	require.Equal(t, -inf, Log(0))
	require.Equal(t, inf, Log(inf))
	require.Equal(t, float32(1), Tanh(inf))
	require.Equal(t, float32(-1), Tanh(-40))
	require.True(t, math.Signbit(float64(Tanh(float32(math.Copysign(0, -1))))))
	require.Equal(t, float32(0), Sigmoid(-inf))
	require.Equal(t, float32(1), Sigmoid(inf))
	for _, y := range []float32{Exp(nan), Log(nan), Log(-1), Tanh(nan), Sigmoid(nan), GELU(nan)} {
		require.True(t, y != y)
	}
}
