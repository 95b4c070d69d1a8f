package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"graft/kernels/quant"
)

// turned is w [outs, row], of which the first 16 columns count, as one panel of Turn8.
func turned(k *Kernels, w []float32, outs, row int) []byte {
	panel := make([]byte, outs/quant.WeightRunLen*TurnedBytes+1)
	k.Turn8(&Turn8Args{W: unsafe.Pointer(&w[0]), Panel: unsafe.Pointer(&panel[0]), Row: int64(row), N: int64(outs / quant.WeightRunLen)})
	return panel
}

// withinRun is weights of each size, with ties when the largest of a run is 63, runs of zeros and,
// if extremes, what is not finite.
func withinRun(rng *rand.Rand, w []float32, extremes bool) {
	size := float32(math.Ldexp(1, rng.IntN(220)-110))
	for i := range w {
		w[i] = size * float32(rng.NormFloat64())
		if rng.IntN(4) == 0 {
			w[i] = float32(rng.IntN(252)-126) / 2
		}
		if extremes && rng.IntN(40) == 0 {
			w[i] = extreme(rng)
		}
		if i%16 == 3 {
			w[i] = 0
		}
	}
}

func TestTurn8RoundsTheWeightsOfEachInput(t *testing.T) {
	eachISA(t, func(t *testing.T, k *Kernels) {
		for trial := range 64 {
			rng := rand.New(rand.NewPCG(uint64(trial), 9))
			outs, row := 32*(1+trial%3), 16+trial%4*7
			w := make([]float32, outs*row)
			withinRun(rng, w, trial%2 == 1)
			got := turned(k, w, outs, row)
			require.Zero(t, got[len(got)-1], "written beyond")
			for n := range outs / 32 {
				block := unsafe.Pointer(&got[n*TurnedBytes])
				for lane := range Lanes {
					var run quant.WeightRun
					var values [quant.WeightRunLen]float32
					for i := range values {
						values[i] = w[(32*n+i)*row+lane]
					}
					run.Round(&values)
					scale := (*[Lanes]float32)(block)[lane]
					require.Equal(t, math.Float32bits(run.Scale), math.Float32bits(scale), "run %d lane %d of %v", n, lane, values)
					for i, c := range run.Codes {
						require.Equal(t, int(c), int(*turnedCode(block, i, lane))-turnedZero, "run %d lane %d of %v", n, lane, values)
					}
				}
			}
		}
	})
}

func TestGemm8OnTurnedPanelsHasTheBitsOfTheTwin(t *testing.T) {
	eachISA(t, func(t *testing.T, k *Kernels) {
		rng, twin := rand.New(rand.NewPCG(5, 7)), For(Generic)
		for trial := range 96 {
			outs, m, p := 32*(1+trial%5), trial%29, rng.IntN(4)
			var panels []byte
			size := outs / quant.WeightRunLen * TurnedBytes
			for range p {
				w := make([]float32, outs*16)
				withinRun(rng, w, trial%4 == 3)
				panels = append(panels, turned(twin, w, outs, 16)[:size]...)
			}
			x := make([]float32, m*outs+1)
			for i := range x {
				x[i] = []fill{ordinary, ordinary, wide, extreme}[trial%4](rng)
			}
			blocks, row := roundedTo(twin, x, m, outs, 3*(trial%2), quant.GradientTop)
			yRow := 16*p + trial%3
			want, got := fence(m*yRow+1, 4*(trial%5)), fence(m*yRow+1, 4*(trial%5))
			fillFloats(rng, want.floats(), false)
			copy(got.floats(), want.floats())
			g := &Gemm8Args{X: unsafe.Pointer(&blocks[0]), K: int64(outs), P: int64(p), PanelBytes: int64(size),
				M: int64(m), XRow: int64(row), YRow: int64(yRow), Keep: int64(trial / 2 % 2)}
			if p > 0 {
				g.W = unsafe.Pointer(&panels[0])
			}
			g.Y = want.at(0)
			twin.GemmTurned(g)
			g.Y = got.at(0)
			k.GemmTurned(g)
			requireSame(t, want, got, fmt.Sprint("m ", m, " p ", p, " outs ", outs))
		}
	})
}

// TestGemm8OnTurnedPanelsIsTheProductOfWhatIsRounded compares with what a package without panels says, the
// largest codes of one sign among it, whose sums would be the first to overflow.
func TestGemm8OnTurnedPanelsIsTheProductOfWhatIsRounded(t *testing.T) {
	eachISA(t, func(t *testing.T, k *Kernels) {
		rng := rand.New(rand.NewPCG(7, 8))
		for trial := range 24 {
			outs, m := 64, 11
			w, x, y := make([]float32, outs*16), make([]float32, m*outs), make([]float32, m*16)
			fillFloats(rng, x, false)
			withinRun(rng, w, false)
			if trial < 4 {
				for i := range w {
					w[i] = float32(1 - 2*(trial&1))
				}
				for i := range x {
					x[i] = float32(1 - trial&2)
				}
			}
			panel := turned(k, w, outs, 16)
			blocks, row := roundedTo(k, x, m, outs, 0, quant.GradientTop)
			k.GemmTurned(&Gemm8Args{X: unsafe.Pointer(&blocks[0]), W: unsafe.Pointer(&panel[0]), Y: unsafe.Pointer(&y[0]), K: int64(outs),
				P: 1, PanelBytes: int64(len(panel) - 1), M: int64(m), XRow: int64(row), YRow: 16})
			for i := range m {
				b := make([]quant.ActivationBlock, outs/quant.ActivationLen)
				quant.QuantizeGradients(b, x[i*outs:][:outs])
				for lane := range Lanes {
					var sum, size float64
					for j := range b {
						var run quant.WeightRun
						var values [quant.WeightRunLen]float32
						var r [quant.ActivationLen]float64
						for l := range values {
							values[l] = w[(32*j+l)*16+lane]
						}
						run.Round(&values)
						b[j].Decode(&r)
						for l, v := range r {
							p := v * float64(run.Scale) * float64(run.Codes[l])
							sum, size = sum+p, size+math.Abs(p)
						}
					}
					require.InDelta(t, sum, float64(y[i*16+lane]), 1e-6*size+1e-30, "trial %d row %d lane %d", trial, i, lane)
				}
			}
		}
	})
}
