package vec

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// rowCases runs every row primitive once on n elements.
var rowCases = map[string]func(k *Kernels, b *buffers, n int){
	"SumSquares": func(k *Kernels, b *buffers, n int) {
		a := &SumSquaresArgs{X: b.vector(n), N: int64(n)}
		k.SumSquares(a)
		b.result(a.Sum)
	},
	"Dot": func(k *Kernels, b *buffers, n int) {
		a := &DotArgs{X: b.vector(n), Y: b.vector(n), N: int64(n)}
		k.Dot(a)
		b.result(a.Sum)
	},
	"RMSNorm": func(k *Kernels, b *buffers, n int) {
		a := &RMSNormArgs{Y: b.vector(n), X: b.vector(n), W: b.vector(n), N: int64(n), Eps: 1e-5}
		k.RMSNorm(a)
		b.result(a.Inv)
		a.W, a.Y = nil, a.X
		k.RMSNorm(a)
	},
	"RMSNormBackward": func(k *Kernels, b *buffers, n int) {
		a := &RMSNormBackwardArgs{DX: b.vector(n), DW: b.vector(n), X: b.vector(n), W: b.vector(n), DY: b.vector(n), N: int64(n), Inv: 0.7}
		for _, keep := range []int64{0, 1} {
			for _, weight := range []unsafe.Pointer{a.W, nil} {
				for _, dw := range []unsafe.Pointer{a.DW, nil} {
					c := *a
					c.Keep, c.W, c.DW = keep, weight, dw
					k.RMSNormBackward(&c)
				}
			}
		}
		a.DX = a.DY
		k.RMSNormBackward(a)
	},
	"SwiGLU": func(k *Kernels, b *buffers, n int) {
		a := &SwiGLUArgs{Y: b.vector(n), G: b.vector(n), U: b.vector(n), N: int64(n)}
		k.SwiGLU(a)
		a.Y = a.G
		k.SwiGLU(a)
	},
	"SwiGLUBackward": func(k *Kernels, b *buffers, n int) {
		a := &SwiGLUBackwardArgs{DG: b.vector(n), DU: b.vector(n), G: b.vector(n), U: b.vector(n), DY: b.vector(n), N: int64(n)}
		k.SwiGLUBackward(a)
		a.DG, a.DU = a.G, a.U
		k.SwiGLUBackward(a)
	},
	"GeGLU": func(k *Kernels, b *buffers, n int) {
		k.GeGLU(&GeGLUArgs{Y: b.vector(n), G: b.vector(n), U: b.vector(n), N: int64(n)})
	},
	"GeGLUBackward": func(k *Kernels, b *buffers, n int) {
		a := &GeGLUBackwardArgs{DG: b.vector(n), DU: b.vector(n), G: b.vector(n), U: b.vector(n), DY: b.vector(n), N: int64(n)}
		k.GeGLUBackward(a)
		a.DG, a.DU = a.G, a.U
		k.GeGLUBackward(a)
	},
	"Add": func(k *Kernels, b *buffers, n int) {
		k.Add(&AddArgs{Y: b.vector(n), X: b.vector(n), N: int64(n)})
	},
	"Scale": func(k *Kernels, b *buffers, n int) {
		k.Scale(&ScaleArgs{Y: b.vector(n), X: b.vector(n), N: int64(n), A: 0.3})
	},
	"Axpy": func(k *Kernels, b *buffers, n int) {
		k.Axpy(&AxpyArgs{Y: b.vector(n), X: b.vector(n), N: int64(n), A: -1.7})
	},
	"Mul": func(k *Kernels, b *buffers, n int) {
		k.Mul(&MulArgs{Y: b.vector(n), X: b.vector(n), Z: b.vector(n), N: int64(n)})
	},
	"Softcap": func(k *Kernels, b *buffers, n int) {
		k.Softcap(&SoftcapArgs{Y: b.vector(n), X: b.vector(n), N: int64(n), Cap: 30})
		k.Softcap(&SoftcapArgs{Y: b.vector(n), X: b.vector(n), N: int64(n), Cap: 1})
	},
	"SoftcapBackward": func(k *Kernels, b *buffers, n int) {
		k.SoftcapBackward(&SoftcapBackwardArgs{DX: b.vector(n), Y: b.vector(n), DY: b.vector(n), N: int64(n), Cap: 30})
	},
	"AdamW": func(k *Kernels, b *buffers, n int) {
		a := &AdamWArgs{P: b.vector(n), M: b.vector(n), V: b.vector(n), G: b.vector(n), N: int64(n),
			GradScale: 0.9, Decay: 0.999, Beta1: 0.9, Rest1: 0.1, Beta2: 0.999, Rest2: 0.001, RootBias2: 0.2, Step: 1e-3, Eps: 1e-8}
		for i := range floats(a.V, a.N) {
			v := &floats(a.V, a.N)[i]
			*v = float32(math.Abs(float64(*v)))
		}
		k.AdamW(a)
	},
	"Exp": func(k *Kernels, b *buffers, n int) {
		k.Exp(&ExpArgs{Y: b.vector(n), X: b.vector(n), N: int64(n), Shift: 0.5})
	},
	"LogSumExpChunk": func(k *Kernels, b *buffers, n int) {
		a := &LogSumExpChunkArgs{Z: b.vector(n), N: int64(n)}
		k.LogSumExpChunk(a)
		b.result(a.Max, a.Sum, a.SumZ)
	},
	"SoftmaxGrad": func(k *Kernels, b *buffers, n int) {
		k.SoftmaxGrad(&SoftmaxGradArgs{DZ: b.vector(n), Z: b.vector(n), N: int64(n), LSE: 3, G: 0.5, H: -0.01, Entropy: 2, InvT: 1.25})
	},
	"ArgMax": func(k *Kernels, b *buffers, n int) {
		a := &ArgMaxArgs{X: b.vector(n), N: int64(n)}
		k.ArgMax(a)
		b.result(float32(a.Index), a.Max)
	},
	"RoPE": func(k *Kernels, b *buffers, n int) {
		for _, r := range []int{n &^ 1, n / 2 &^ 1} {
			for flags := int64(0); flags < 4; flags++ {
				a := &RoPEArgs{Y: b.vector(3 * (n + 1)), X: b.vector(3 * (n + 2)), Cos: b.vector(r / 2), Sin: b.vector(r / 2),
					D: int64(n), R: int64(r), Heads: 3, YRow: int64(n + 1), XRow: int64(n + 2), NeoX: flags & 1, Inverse: flags >> 1}
				k.RoPE(a)
				a.X, a.XRow = a.Y, a.YRow
				k.RoPE(a)
			}
		}
	},
}

func TestRowPrimitivesEqualGeneric(t *testing.T) {
	fills := map[string]fill{"ordinary": ordinary, "wide": wide, "extreme": extreme}
	eachISA(t, func(t *testing.T, k *Kernels) {
		for name, run := range rowCases {
			t.Run(name, func(t *testing.T) {
				for kind, f := range fills {
					for _, n := range []int{1, 2, 3, 7, 8, 9, 15, 16, 17, 23, 24, 31, 32, 33, 47, 48, 80, 100, 257} {
						for seed := uint64(0); seed < 4; seed++ {
							want, got := newBuffers(seed, f), newBuffers(seed, f)
							run(For(Generic), want, n)
							run(k, got, n)
							requireSameBits(t, want, got, fmt.Sprintf("%s n=%d seed=%d", kind, n, seed))
						}
					}
				}
			})
		}
	})
}

// TestFunctionsEqualGenericOnASweep compares the vector forms of exp, tanh,
// sigmoid, gelu and log with the Go functions over the whole range.
func TestFunctionsEqualGenericOnASweep(t *testing.T) {
	var x []float32
	sweep(20011, func(v float32) { x = append(x, v) })
	n := int64(len(x))
	at := func(x []float32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }
	eachISA(t, func(t *testing.T, k *Kernels) {
		y, ones, state := make([]float32, n), make([]float32, n), make([]float32, 2*n)
		for i, v := range x { // anew for each: AttnFinish writes to its output
			ones[i], state[2*i], state[2*i+1] = 1, 0, v
		}
		check := func(name string, f func(float32) float32) {
			for i, v := range x {
				want, got := f(v), y[i]
				if math.Float32bits(want) != math.Float32bits(got) && (want == want || got == got) {
					require.Failf(t, "different bits", "%s(%v) = %v, Generic %v", name, v, got, want)
				}
			}
		}
		k.Exp(&ExpArgs{Y: at(y), X: at(x), N: n})
		check("Exp", Exp)
		k.Softcap(&SoftcapArgs{Y: at(y), X: at(x), N: n, Cap: 1})
		check("Tanh", Tanh)
		k.SwiGLU(&SwiGLUArgs{Y: at(y), G: at(x), U: at(ones), N: n})
		check("SiLU", SiLU)
		k.GeGLU(&GeGLUArgs{Y: at(y), G: at(x), U: at(ones), N: n})
		check("GELU", GELU)
		k.AttnFinish(&AttnFinishArgs{Out: at(ones), State: at(state), LSE: at(y), OutRow: 1, OutTok: 1, Group: 1, M: n, D: 1})
		check("Log", func(x float32) float32 { return 0 + Log(x) })
	})
}

func TestRowReductionsSkipWhatIsMissing(t *testing.T) {
	inf := float32(math.Inf(-1))
	for _, isa := range Supported() {
		k := For(isa)
		z := []float32{inf, 2, inf, 1, inf}
		a := &LogSumExpChunkArgs{Z: unsafe.Pointer(&z[0]), N: 5}
		k.LogSumExpChunk(a)
		require.Equal(t, []float32{2, 1 + Exp(-1), 2 + Exp(-1)}, []float32{a.Max, a.Sum, a.SumZ}, isa.String())
		a.N = 1
		k.LogSumExpChunk(a)
		require.Equal(t, []float32{inf, 0, 0}, []float32{a.Max, a.Sum, a.SumZ}, isa.String())
		for _, c := range []struct {
			x    []float32
			want int64
		}{
			{[]float32{3, 5, 5, 1}, 1},
			{append(make([]float32, 40), 7, 7), 40},
			{[]float32{inf, inf}, 0},
			{[]float32{float32(math.NaN()), -2, float32(math.NaN()), -1}, 3},
		} {
			m := &ArgMaxArgs{X: unsafe.Pointer(&c.x[0]), N: int64(len(c.x))}
			k.ArgMax(m)
			require.Equal(t, c.want, m.Index, "%s: %v", isa, c.x)
		}
	}
}

func BenchmarkRows(b *testing.B) {
	const n = 2048
	buf := newBuffers(1, ordinary)
	x, y, z, dx, dy := buf.vector(n), buf.vector(n), buf.vector(n), buf.vector(n), buf.vector(n)
	for _, isa := range Supported() {
		k := For(isa)
		each := func(name string, vectors int, f func()) {
			b.Run(name+"/"+isa.String(), func(b *testing.B) {
				b.SetBytes(int64(4 * n * vectors)) // read and written
				for b.Loop() {
					f()
				}
			})
		}
		norm := &RMSNormArgs{Y: y, X: x, W: z, N: n, Eps: 1e-5}
		each("RMSNorm", 4, func() { k.RMSNorm(norm) })
		normBackward := &RMSNormBackwardArgs{DX: dx, X: x, W: z, DY: dy, N: n, Inv: 1}
		each("RMSNormBackward", 6, func() { k.RMSNormBackward(normBackward) })
		gate := &SwiGLUArgs{Y: y, G: x, U: z, N: n}
		each("SwiGLU", 3, func() { k.SwiGLU(gate) })
		gateBackward := &SwiGLUBackwardArgs{DG: dx, DU: y, G: x, U: z, DY: dy, N: n}
		each("SwiGLUBackward", 5, func() { k.SwiGLUBackward(gateBackward) })
		chunk := &LogSumExpChunkArgs{Z: x, N: n}
		each("LogSumExpChunk", 2, func() { k.LogSumExpChunk(chunk) })
		grad := &SoftmaxGradArgs{DZ: dx, Z: x, N: n, LSE: 8, G: 1, H: 0.1, Entropy: 7, InvT: 1}
		each("SoftmaxGrad", 2, func() { k.SoftmaxGrad(grad) })
		adam := &AdamWArgs{P: y, M: dx, V: z, G: dy, N: n, GradScale: 1, Decay: 1, Beta1: 0.9, Rest1: 0.1, Beta2: 0.99, Rest2: 0.01, RootBias2: 1, Step: 1e-3, Eps: 1e-8}
		each("AdamW", 7, func() { k.AdamW(adam) })
		largest := &ArgMaxArgs{X: x, N: n}
		each("ArgMax", 1, func() { k.ArgMax(largest) })
		rope := &RoPEArgs{Y: y, X: x, Cos: dx, Sin: dy, D: 64, R: 64, Heads: n / 64, YRow: 64, XRow: 64, NeoX: 1}
		each("RoPE/neox", 2, func() { k.RoPE(rope) })
		pairs := *rope
		pairs.NeoX = 0
		each("RoPE/pairs", 2, func() { k.RoPE(&pairs) })
	}
}
