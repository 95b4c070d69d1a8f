package quant

import (
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// ramp is the input of the goldens.
func ramp(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(37*i%101-50) / 16
	}
	return x
}

// goldenBytes returns the bytes of the golden of f.
func goldenBytes(t *testing.T, f Format) []byte {
	t.Helper()
	for _, g := range goldens {
		if g.format == f {
			b, err := hex.DecodeString(g.bytes)
			require.NoError(t, err)
			return b
		}
	}
	t.Fatalf("no golden of %v", f)
	return nil
}

func TestDecodeMatchesLlamaCpp(t *testing.T) {
	// Mean squared errors of the ramp as llama.cpp gives them, a little rounded up.
	mse := map[Format]float64{Q4_0: 1.76e-2, Q4_1: 1.9e-2, Q5_0: 5e-3, Q5_1: 4e-3, Q8_0: 4.8e-5, Q4_K: 1.19e-2, Q5_K: 2.85e-3, Q6_K: 6.6e-4}
	for _, g := range goldens {
		t.Run(g.format.String(), func(t *testing.T) {
			b := goldenBytes(t, g.format)
			got := make([]float32, len(b)/g.format.BlockBytes()*g.format.BlockLen())
			Decode(got, g.format, b)
			for i, want := range g.values {
				require.InDelta(t, want, got[i], 2e-8, "element %d", i)
			}
			var sum float64
			for i, x := range ramp(len(got)) {
				sum += math.Pow(float64(got[i]-x), 2)
			}
			require.LessOrEqual(t, sum/float64(len(got)), mse[g.format], "mean squared error")
		})
	}
}

func TestDecodeManyBlocksIsBlockByBlock(t *testing.T) {
	for _, f := range Formats() {
		one := make([]byte, f.BlockBytes())
		for i := range one {
			one[i] = byte(17*i + 3)
		}
		two := append(append([]byte{}, one...), one...)
		first, both := make([]float32, f.BlockLen()), make([]float32, 2*f.BlockLen())
		Decode(first, f, one)
		Decode(both, f, two)
		require.Equal(t, append(append([]float32{}, first...), first...), both, f)
	}
}

func TestDecodePanicsOnWrongLengths(t *testing.T) {
	require.Panics(t, func() { Decode(make([]float32, 31), Q4_0, make([]byte, 18)) })
	require.Panics(t, func() { Decode(make([]float32, 32), Q4_0, make([]byte, 17)) })
	require.Panics(t, func() { Decode(nil, Format(200), nil) })
}
