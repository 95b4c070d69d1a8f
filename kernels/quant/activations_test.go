package quant

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestActivationsByHand(t *testing.T) {
	var x [2 * ActivationLen]float32
	copy(x[:], []float32{-254, 3, 1, 2.9, -5, 127}) // scale 2: 1.5 and 0.5 and −2.5 are ties
	x[31], x[32] = 10, 1e-40
	var b [2]ActivationBlock
	QuantizeActivations(b[:], x[:])
	require.Equal(t, [6]int8{-127, 2, 0, 1, -2, 64}, [6]int8(b[0].Codes[:6]), "ties go to even")
	require.Equal(t, int8(5), b[0].Codes[31])
	require.Equal(t, ActivationBlock{}, b[1], "what is tiny is zero")
	require.EqualValues(t, 2, b[0].Scale)
	require.EqualValues(t, -127+2+1-2+64, b[0].Low)
	require.EqualValues(t, 5, b[0].High)
	require.EqualValues(t, 2*(-62+5), b[0].Sum)
	require.EqualValues(t, 48, unsafe.Sizeof(b[0]))
	require.Panics(t, func() { QuantizeActivations(b[:], x[:33]) })
}

func TestActivationsAreNearAndWhatIsNotFiniteShows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, ActivationLen)
	var b [1]ActivationBlock
	var got [ActivationLen]float64
	for range 2000 {
		size, most := math.Ldexp(1, rng.IntN(200)-99), 0.0
		for i := range x {
			x[i] = float32(rng.NormFloat64() * size)
			most = max(most, math.Abs(float64(x[i])))
		}
		QuantizeActivations(b[:], x)
		b[0].Decode(&got)
		for i, v := range got {
			require.InDelta(t, float64(x[i]), v, most/254*1.00001)
		}
	}
	for _, bad := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
		x[17] = float32(bad)
		QuantizeActivations(b[:], x)
		require.True(t, math.IsNaN(float64(b[0].Scale)) && math.IsNaN(float64(b[0].Sum)))
		require.Zero(t, b[0].Codes)
	}
}

func TestGradientsByHand(t *testing.T) {
	var x [2 * ActivationLen]float32
	copy(x[:], []float32{-126, 3, 1, 2.9, -5, 63}) // scale 2
	x[31], x[33] = 10, float32(math.Inf(1))
	var b [2]ActivationBlock
	QuantizeGradients(b[:], x[:])
	require.Equal(t, [6]int8{-63, 2, 0, 1, -2, 32}, [6]int8(b[0].Codes[:6]), "ties go to even")
	require.EqualValues(t, 2, b[0].Scale)
	require.EqualValues(t, -64*(-63+2+1-2+32+5), b[0].Low)
	require.Zero(t, b[0].High)
	require.EqualValues(t, 2*(-63+2+1-2+32+5), b[0].Sum)
	require.True(t, math.IsNaN(float64(b[1].Scale)))
	require.Panics(t, func() { QuantizeGradients(b[:], x[:33]) })
}

func TestWeightRunByHand(t *testing.T) {
	w := [WeightRunLen]float32{126, -3, 1, -2.9, 5, -63}
	r := WeightRun{Scale: 5}
	r.Round(&w)
	require.EqualValues(t, 2, r.Scale)
	require.Equal(t, [7]int8{63, -2, 0, -1, 2, -32, 0}, [7]int8(r.Codes[:7]))
	r.Round(&[WeightRunLen]float32{1e-40})
	require.Equal(t, WeightRun{}, r, "what is tiny is zero")
	w[9] = float32(math.NaN())
	r.Round(&w)
	require.True(t, math.IsNaN(float64(r.Scale)))
	require.Zero(t, r.Codes)
}
