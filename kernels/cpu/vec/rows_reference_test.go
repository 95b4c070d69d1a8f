package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests of this file hold the Go twins against float64. A float32 operation
// errs by 2^-24 relative to its largest term, the functions by 2 ulp more, and a
// sum of n terms by √n of that: 3e-6 of the largest value covers n = 100.

const refN = 100

// near requires got to be want within 3e-6 of the largest want.
func near(t *testing.T, want []float64, got []float32, name string) {
	t.Helper()
	largest := 1e-30
	for _, w := range want {
		largest = max(largest, math.Abs(w))
	}
	for i := range want {
		require.InDelta(t, want[i], float64(got[i]), 3e-6*largest, "%s element %d", name, i)
	}
}

// derivative returns the gradient of f at x by central differences.
func derivative(f func(x []float64) float64, x []float64) []float64 {
	const h = 1e-5
	d := make([]float64, len(x))
	for i, old := range x {
		x[i] = old + h
		up := f(x)
		x[i] = old - h
		d[i] = (up - f(x)) / (2 * h)
		x[i] = old
	}
	return d
}

func wideFloats(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

func dot64(x, y []float64) float64 {
	sum := 0.0
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

func TestRMSNormAndItsDerivative(t *testing.T) {
	b := newBuffers(3, ordinary)
	x, w, dy := b.floats(refN), b.floats(refN), b.floats(refN)
	y, dx, dw := make([]float32, refN), make([]float32, refN), make([]float32, refN)
	a := &RMSNormArgs{Y: pointer(y), X: pointer(x), W: pointer(w), N: refN, Eps: 1e-5}
	rmsNormGeneric(a)
	rmsNormBackwardGeneric(&RMSNormBackwardArgs{DX: pointer(dx), DW: pointer(dw), X: pointer(x), W: pointer(w), DY: pointer(dy), N: refN, Inv: a.Inv})

	norm := func(x, w []float64) []float64 {
		inv := 1 / math.Sqrt(dot64(x, x)/refN+1e-5)
		y := make([]float64, len(x))
		for i := range x {
			y[i] = x[i] * inv * w[i]
		}
		return y
	}
	x64, w64, dy64 := wideFloats(x), wideFloats(w), wideFloats(dy)
	near(t, norm(x64, w64), y, "y")
	near(t, derivative(func(x []float64) float64 { return dot64(norm(x, w64), dy64) }, x64), dx, "dx")
	near(t, derivative(func(w []float64) float64 { return dot64(norm(x64, w), dy64) }, w64), dw, "dw")

	twice := slices.Clone(dx)
	rmsNormBackwardGeneric(&RMSNormBackwardArgs{DX: pointer(twice), X: pointer(x), W: pointer(w), DY: pointer(dy), N: refN, Inv: a.Inv, Keep: 1})
	for i := range twice {
		require.Equal(t, 2*dx[i], twice[i])
	}
}

func TestGatesAndTheirDerivatives(t *testing.T) {
	silu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	gelu := func(x float64) float64 {
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	for name, c := range map[string]struct {
		f        func(float64) float64
		forward  func(*SwiGLUArgs)
		backward func(*SwiGLUBackwardArgs)
	}{
		"SwiGLU": {silu, swiGLUGeneric, swiGLUBackwardGeneric},
		"GeGLU": {gelu, func(a *SwiGLUArgs) { geGLUGeneric((*GeGLUArgs)(a)) },
			func(a *SwiGLUBackwardArgs) { geGLUBackwardGeneric((*GeGLUBackwardArgs)(a)) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuffers(4, ordinary)
			g, u, dy := b.floats(refN), b.floats(refN), b.floats(refN)
			y, dg, du := make([]float32, refN), make([]float32, refN), make([]float32, refN)
			c.forward(&SwiGLUArgs{Y: pointer(y), G: pointer(g), U: pointer(u), N: refN})
			c.backward(&SwiGLUBackwardArgs{DG: pointer(dg), DU: pointer(du), G: pointer(g), U: pointer(u), DY: pointer(dy), N: refN})
			gate := func(g, u []float64) []float64 {
				y := make([]float64, len(g))
				for i := range g {
					y[i] = c.f(g[i]) * u[i]
				}
				return y
			}
			g64, u64, dy64 := wideFloats(g), wideFloats(u), wideFloats(dy)
			near(t, gate(g64, u64), y, "y")
			near(t, derivative(func(g []float64) float64 { return dot64(gate(g, u64), dy64) }, g64), dg, "dg")
			near(t, derivative(func(u []float64) float64 { return dot64(gate(g64, u), dy64) }, u64), du, "du")
		})
	}
}

func TestSoftcapAndItsDerivative(t *testing.T) {
	b := newBuffers(5, func(rng *rand.Rand) float32 { return 20 * ordinary(rng) })
	x, dy := b.floats(refN), b.floats(refN)
	y, dx := make([]float32, refN), make([]float32, refN)
	softcapGeneric(&SoftcapArgs{Y: pointer(y), X: pointer(x), N: refN, Cap: 30})
	softcapBackwardGeneric(&SoftcapBackwardArgs{DX: pointer(dx), Y: pointer(y), DY: pointer(dy), N: refN, Cap: 30})
	softcap := func(x []float64) []float64 {
		y := make([]float64, len(x))
		for i := range x {
			y[i] = 30 * math.Tanh(x[i]/30)
		}
		return y
	}
	x64, dy64 := wideFloats(x), wideFloats(dy)
	near(t, softcap(x64), y, "y")
	near(t, derivative(func(x []float64) float64 { return dot64(softcap(x), dy64) }, x64), dx, "dx")
}

// TestSoftmaxGradIsTheDerivative takes the loss g·logp(target) + h·H of logits
// z/T, as a token has it.
func TestSoftmaxGradIsTheDerivative(t *testing.T) {
	const temperature, g, h, target = 0.8, 0.7, -0.05, 17
	raw := newBuffers(6, func(rng *rand.Rand) float32 { return 2 * ordinary(rng) }).floats(refN)
	z, dz := make([]float32, refN), make([]float32, refN)
	scaleGeneric(&ScaleArgs{Y: pointer(z), X: pointer(raw), N: refN, A: 1 / temperature})
	chunk := &LogSumExpChunkArgs{Z: pointer(z), N: refN}
	logSumExpChunkGeneric(chunk)
	lse := float64(chunk.Max) + math.Log(float64(chunk.Sum))
	entropy := lse - float64(chunk.SumZ)/float64(chunk.Sum)
	softmaxGradGeneric(&SoftmaxGradArgs{DZ: pointer(dz), Z: pointer(z), N: refN,
		LSE: float32(lse), G: g, H: h, Entropy: float32(entropy), InvT: 1 / temperature})
	dz[target] += g / temperature

	stats := func(raw []float64) (lse, entropy float64) {
		for _, x := range raw {
			lse += math.Exp(x / temperature)
		}
		lse = math.Log(lse)
		for _, x := range raw {
			entropy -= math.Exp(x/temperature-lse) * (x/temperature - lse)
		}
		return lse, entropy
	}
	raw64 := wideFloats(raw)
	wantLSE, wantEntropy := stats(raw64)
	require.InDelta(t, wantLSE, lse, 3e-6)
	require.InDelta(t, wantEntropy, entropy, 1e-5) // a difference of two numbers near 5
	near(t, derivative(func(raw []float64) float64 {
		lse, entropy := stats(raw)
		return g*(raw[target]/temperature-lse) + h*entropy
	}, raw64), dz, "dz")
}

// TestRoPETurnsByTheAngle checks both pairings, the untouched rest and that the
// inverse undoes the rotation.
func TestRoPETurnsByTheAngle(t *testing.T) {
	const D, R = 24, 20
	x := newBuffers(7, ordinary).floats(D)
	cos, sin := make([]float32, R/2), make([]float32, R/2)
	for i := range cos {
		cos[i], sin[i] = float32(math.Cos(0.3*float64(i))), float32(math.Sin(0.3*float64(i)))
	}
	for neox := int64(0); neox < 2; neox++ {
		y, back := make([]float32, D), make([]float32, D)
		a := &RoPEArgs{Y: pointer(y), X: pointer(x), Cos: pointer(cos), Sin: pointer(sin), D: D, R: R, Heads: 1, NeoX: neox}
		ropeGeneric(a)
		want := wideFloats(x)
		for i := range R / 2 {
			p, q := 2*i, 2*i+1
			if neox == 1 {
				p, q = i, i+R/2
			}
			angle := complex(math.Cos(0.3*float64(i)), math.Sin(0.3*float64(i)))
			turned := complex(want[p], want[q]) * angle
			want[p], want[q] = real(turned), imag(turned)
		}
		near(t, want, y, "y")
		a.Y, a.X, a.Inverse = pointer(back), pointer(y), 1
		ropeGeneric(a)
		near(t, wideFloats(x), back, "back")
	}
}

// TestAdamWStepByHand: one parameter, first step, ε as large as √v̂, so that the
// step is half the learning rate.
func TestAdamWStepByHand(t *testing.T) {
	p, m, v, g := []float32{2}, []float32{0}, []float32{0}, []float32{8}
	const lr, decay, beta1, beta2 = 0.1, 0.5, 0.9, 0.999
	adamWGeneric(&AdamWArgs{P: pointer(p), M: pointer(m), V: pointer(v), G: pointer(g), N: 1,
		GradScale: 0.25, Decay: 1 - lr*decay, Beta1: beta1, Rest1: 1 - beta1, Beta2: beta2, Rest2: 1 - beta2,
		RootBias2: float32(math.Sqrt(1 - beta2)), Step: lr / (1 - beta1), Eps: 2})
	require.InDelta(t, 0.2, m[0], 1e-7)   // 0.1 · (8/4)
	require.InDelta(t, 0.004, v[0], 1e-9) // 0.001 · 2²
	require.InDelta(t, 2*0.95-0.05, p[0], 1e-6)
}

func TestLinearRowsByHand(t *testing.T) {
	x, y, z := []float32{1, -2, 3}, []float32{10, 20, 30}, []float32{5, 5, 5}
	addGeneric(&AddArgs{Y: pointer(y), X: pointer(x), N: 3})
	require.Equal(t, []float32{11, 18, 33}, y)
	axpyGeneric(&AxpyArgs{Y: pointer(y), X: pointer(x), N: 3, A: 2})
	require.Equal(t, []float32{13, 14, 39}, y)
	scaleGeneric(&ScaleArgs{Y: pointer(y), X: pointer(y), N: 3, A: 0.5})
	require.Equal(t, []float32{6.5, 7, 19.5}, y)
	mulGeneric(&MulArgs{Y: pointer(z), X: pointer(x), Z: pointer(z), N: 3})
	require.Equal(t, []float32{5, -10, 15}, z)
	d := &DotArgs{X: pointer(x), Y: pointer(z), N: 3}
	dotGeneric(d)
	require.Equal(t, float32(70), d.Sum)
	s := &SumSquaresArgs{X: pointer(x), N: 3}
	sumSquaresGeneric(s)
	require.Equal(t, float32(14), s.Sum)
	e := []float32{0, 0}
	expGeneric(&ExpArgs{Y: pointer(e), X: pointer([]float32{3, 4}), N: 2, Shift: 3})
	require.Equal(t, []float32{1, Exp(1)}, e)
}
