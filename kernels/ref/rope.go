package ref

import "graft/kernels"

// RoPE implements kernels.Backend.
func (b *Backend) RoPE(x kernels.Tensor, r kernels.Rope, positions kernels.Tensor, inverse bool) {
	RoPE(matrix(x), Rope[float32]{Table: matrix(r.Table), Dims: r.Dims, HeadDim: r.HeadDim, Paired: r.Paired},
		positions.I32(), inverse)
}

// Rope is kernels.Rope.
type Rope[T Float] struct {
	Table         Matrix[T] // [positions, Dims]: cos of the Dims/2 angles, then sin
	Dims, HeadDim int
	Paired        bool
}

// RoPE turns each pair (a, b) of each head: (a·cos − b·sin, a·sin + b·cos); inverse negates sin,
// which makes it the transpose, and so the backward.
func RoPE[T Float](x Matrix[T], r Rope[T], positions []int32, inverse bool) {
	half := r.Dims / 2
	for n := range x.Rows {
		angles := r.Table.Row(int(positions[n]))
		for h := 0; h < x.Cols; h += r.HeadDim {
			head := x.Row(n)[h : h+r.HeadDim]
			for i := range half {
				ia, ib := i, i+half
				if r.Paired {
					ia, ib = 2*i, 2*i+1
				}
				cos, sin := float64(angles[i]), float64(angles[half+i])
				if inverse {
					sin = -sin
				}
				a, b := float64(head[ia]), float64(head[ib])
				head[ia] = T(float64(a*cos) - float64(b*sin))
				head[ib] = T(float64(a*sin) + float64(b*cos))
			}
		}
	}
}
