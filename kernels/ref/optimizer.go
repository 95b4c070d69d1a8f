package ref

import (
	"math"

	"graft/kernels"
	"graft/kernels/libm"
)

// AdamW implements kernels.Backend.
func (b *Backend) AdamW(p, g, m, v kernels.Tensor, s kernels.AdamWStep) {
	AdamW(p.F32(), g.F32(), m.F32(), v.F32(), s)
}

// SumSquares implements kernels.Backend.
func (b *Backend) SumSquares(x kernels.Tensor) float64 { return dot(x.F32(), x.F32()) }

// AdamW moves p once and leaves the new moments in m and v (Loshchilov & Hutter 2019, arXiv
// 1711.05101, in the order of torch.optim.AdamW: decay first, √v/√bias + eps).
func AdamW[T Float](p, g, m, v []T, s kernels.AdamWStep) {
	rate := s.LR / (1 - libm.Pow(s.Beta1, float64(s.T)))
	root := math.Sqrt(1 - libm.Pow(s.Beta2, float64(s.T)))
	for i := range p {
		gi := float64(s.GradScale * float64(g[i]))
		pi := float64(float64(p[i]) * (1 - float64(s.LR*s.WeightDecay)))
		mi := float64(s.Beta1*float64(m[i])) + float64((1-s.Beta1)*gi)
		vi := float64(s.Beta2*float64(v[i])) + float64((1-s.Beta2)*gi*gi)
		p[i] = T(pi - float64(rate*mi/(math.Sqrt(vi)/root+s.Eps)))
		m[i], v[i] = T(mi), T(vi)
	}
}
