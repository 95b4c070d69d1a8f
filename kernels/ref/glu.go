package ref

import (
	"math"

	"graft/kernels"
	"graft/kernels/libm"
)

// GLU implements kernels.Backend.
func (b *Backend) GLU(y, gate, up kernels.Tensor, act kernels.Activation) {
	GLU(matrix(y), matrix(gate), matrix(up), act)
}

// GLUBackward implements kernels.Backend.
func (b *Backend) GLUBackward(dgate, dup, dy, gate, up kernels.Tensor, act kernels.Activation) {
	GLUBackward(matrix(dgate), matrix(dup), matrix(dy), matrix(gate), matrix(up), act)
}

// GLU is y = act(gate)·up.
func GLU[T Float](y, gate, up Matrix[T], act kernels.Activation) {
	for n := range y.Rows {
		for i := range y.Row(n) {
			a, _ := activation(float64(gate.Row(n)[i]), act)
			y.Row(n)[i] = T(a * float64(up.Row(n)[i]))
		}
	}
}

// GLUBackward differentiates y = act(gate)·up: dgate = dy·up·act′(gate), dup = dy·act(gate). The
// results may lie where gate and up lay.
func GLUBackward[T Float](dgate, dup, dy, gate, up Matrix[T], act kernels.Activation) {
	for n := range dy.Rows {
		for i := range dy.Row(n) {
			d, u := float64(dy.Row(n)[i]), float64(up.Row(n)[i])
			a, slope := activation(float64(gate.Row(n)[i]), act)
			dgate.Row(n)[i] = T(d * u * slope)
			dup.Row(n)[i] = T(d * a)
		}
	}
}

// activation returns act(x) and act′(x). SiLU is x·σ(x). GELUTanh is the tanh form of Hendrycks &
// Gimpel 2016, ½x(1+tanh(√(2/π)(x+0.044715x³))).
func activation(x float64, act kernels.Activation) (value, slope float64) {
	if act == kernels.SiLU {
		s := 1 / (1 + libm.Exp(-x))
		return x * s, s * (1 + float64(x*(1-s)))
	}
	c := math.Sqrt(2 / math.Pi)
	t := libm.Tanh(c * (x + float64(0.044715*x*x*x)))
	inner := c * (1 + float64(3*0.044715*x*x))
	return 0.5 * x * (1 + t), float64(0.5*(1+t)) + float64(0.5*x*(1-float64(t*t))*inner)
}
