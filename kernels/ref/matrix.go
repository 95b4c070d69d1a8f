package ref

import (
	"graft/kernels"
	"graft/kernels/quant"
)

// Float is a storage type: float32 as backends store, or float64 for exact derivatives.
type Float interface{ float32 | float64 }

// Matrix is a dense matrix of rows; element (i, j) is V[i*Stride+j]. The zero Matrix means "absent".
type Matrix[T Float] struct {
	Rows, Cols, Stride int
	V                  []T
	Rounds             bool // of weights: products round x, and gradients dy, as kernels.PrecisionInt8 says
}

// input is x as a forward product with weights m reads it.
func (m Matrix[T]) input(x []T) []T {
	if !m.Rounds {
		return x
	}
	return rounded(x, quant.QuantizeActivations)
}

// output is dy as the gradient of x reads it, and outputs the weights that it meets there.
func (m Matrix[T]) output(dy []T) []T {
	if !m.Rounds {
		return dy
	}
	return rounded(dy, quant.QuantizeGradients)
}

func (m Matrix[T]) outputs() Matrix[T] {
	if !m.Rounds {
		return m
	}
	turned := NewMatrix[T](m.Rows, m.Cols)
	for k := range m.Cols {
		for o := 0; o < m.Rows; o += quant.WeightRunLen {
			n := min(quant.WeightRunLen, m.Rows-o)
			var w [quant.WeightRunLen]float32
			for i := range n {
				w[i] = float32(m.Row(o + i)[k])
			}
			var run quant.WeightRun
			run.Round(&w)
			for i := range n {
				turned.Row(o + i)[k] = T(float64(run.Scale) * float64(run.Codes[i]))
			}
		}
	}
	return turned
}

// rounded is x rounded to blocks, the last of which may lack values.
func rounded[T Float](x []T, quantize func([]quant.ActivationBlock, []float32)) []T {
	blocks := make([]quant.ActivationBlock, (len(x)+quant.ActivationLen-1)/quant.ActivationLen)
	narrow, near := make([]float32, len(blocks)*quant.ActivationLen), make([]T, len(x))
	for i, v := range x {
		narrow[i] = float32(v)
	}
	quantize(blocks, narrow)
	var values [quant.ActivationLen]float64
	for i := range near {
		if i%quant.ActivationLen == 0 {
			blocks[i/quant.ActivationLen].Decode(&values)
		}
		near[i] = T(values[i%quant.ActivationLen])
	}
	return near
}

// NewMatrix makes a zero [rows, cols] matrix.
func NewMatrix[T Float](rows, cols int) Matrix[T] {
	return Matrix[T]{Rows: rows, Cols: cols, Stride: cols, V: make([]T, rows*cols)}
}

// Present tells whether there are any elements.
func (m Matrix[T]) Present() bool { return m.V != nil }

// Row is row i, shared with the matrix.
func (m Matrix[T]) Row(i int) []T { return m.V[i*m.Stride : i*m.Stride+m.Cols] }

// matrix views a float32 tensor on the host.
func matrix(t kernels.Tensor) Matrix[float32] {
	if !t.Present() {
		return Matrix[float32]{}
	}
	return Matrix[float32]{Rows: t.Rows, Cols: t.Cols, Stride: t.Stride, V: t.F32()}
}

// weights views a packed F32 weight, or decodes another format.
func weights(w kernels.Weight) Matrix[float32] {
	if !w.Present() {
		return Matrix[float32]{}
	}
	if w.Format == quant.F32 {
		return matrix(w.Flat().Reshape(w.Out, w.In))
	}
	m := NewMatrix[float32](w.Out, w.In)
	m.Rounds = w.Rounds()
	quant.Decode(m.V, w.Format, packed(w))
	return m
}

// packed is the raw rows of a weight, which is how this backend packs.
func packed(w kernels.Weight) []byte { return w.Mem.Host[w.Off : w.Off+w.Bytes] }

// dot is Σ a·b in float64, in ascending order.
func dot[T Float](a, b []T) float64 {
	var sum float64
	for i, v := range a {
		sum += float64(float64(v) * float64(b[i]))
	}
	return sum
}

// grow adds delta to a parameter's gradient as stored: one rounding an addition.
func grow[T Float](p *T, delta float64) { *p = T(float64(*p) + delta) }
