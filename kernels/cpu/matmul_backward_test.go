package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/quant"
)

// TestPaddingOfGradientsStaysZero lays NaN behind the columns of dy: packed gradients, whose padding the
// optimizer and the norm go over, have nothing of it.
func TestPaddingOfGradientsStaysZero(t *testing.T) {
	for _, shape := range []struct{ rows, in, out, rank int }{
		{3, 16, 49, 16}, {40, 24, 30, 4}, {70, 300, 17, 40}, {33, 32, 1100, 8},
	} {
		be := newBench(t, Options{Threads: 2})
		behind := func(cols int) kernels.Tensor {
			x := be.floats(shape.rows, cols+48)
			for i := range x.F32() {
				if i%x.Cols >= cols {
					x.F32()[i] = float32(math.NaN())
				}
			}
			x.Cols = cols
			return x
		}
		g := kernels.ProductGrad{
			DY: behind(shape.out), W: be.weight(quant.F32, shape.out, shape.in), DW: be.weight(quant.F32, shape.out, shape.in),
			LoRA: &kernels.LowRank{A: be.weight(quant.F32, shape.rank, shape.in), B: be.weight(quant.F32, shape.out, shape.rank), Scale: 2},
			H:    be.floats(shape.rows, pad16(shape.rank)), DH: be.floats(shape.rows, pad16(shape.rank)),
			DA: be.weight(quant.F32, shape.rank, shape.in), DB: be.weight(quant.F32, shape.out, shape.rank),
		}
		for _, w := range []kernels.Weight{g.DW, g.DA, g.DB} {
			clear(w.Flat().F32())
		}
		be.MatMulBackward(kernels.Tensor{}, behind(shape.in), []kernels.ProductGrad{g}, false)
		for _, w := range []kernels.Weight{g.DW, g.DA, g.DB} {
			zeros, flat := 0, w.Flat().F32()
			for _, v := range flat {
				require.False(t, math.IsNaN(float64(v)), "%v of %v", w.Out, shape)
				if v == 0 {
					zeros++
				}
			}
			require.Equal(t, len(flat)-w.Out*w.In, zeros, "%d outputs of %v", w.Out, shape)
		}
	}
}
