package ref

import (
	"math"

	"graft/kernels"
)

// RMSNorm implements kernels.Backend.
func (b *Backend) RMSNorm(y, inv, x, w kernels.Tensor, eps float32, keep bool) {
	RMSNorm(matrix(y), matrix(inv), matrix(x), matrix(w), float64(eps), keep)
}

// RMSNormBackward implements kernels.Backend.
func (b *Backend) RMSNormBackward(dx, dw, dy, x, w, inv kernels.Tensor, keep bool) {
	RMSNormBackward(matrix(dx), matrix(dw), matrix(dy), matrix(x), matrix(w), matrix(inv), keep)
}

// RMSNorm is y = x·inv·w (keep: y += …) with inv = 1/√(mean(x²)+eps), for every run of w's width in
// every row.
func RMSNorm[T Float](y, inv, x, w Matrix[T], eps float64, keep bool) {
	width := w.Cols
	for n := range x.Rows {
		for h := range x.Cols / width {
			xn, yn, wn := head(x.Row(n), h, width), head(y.Row(n), h, width), w.Row(0)
			r := 1 / math.Sqrt(dot(xn, xn)/float64(width)+eps)
			inv.Row(n)[h] = T(r)
			for i := range yn {
				v := float64(float64(xn[i]) * r * float64(wn[i]))
				if keep {
					v += float64(yn[i])
				}
				yn[i] = T(v)
			}
		}
	}
}

// RMSNormBackward differentiates y = x·inv·w, inv = (Σx²/W + eps)^−½. With g = dy·w:
// dx = inv·g − x·inv³·(Σ g·x)/W (keep: dx += …), and dw += dy·x·inv, rows and then runs ascending.
func RMSNormBackward[T Float](dx, dw, dy, x, w, inv Matrix[T], keep bool) {
	for n := range x.Rows {
		for h := range x.Cols / w.Cols {
			normBackwardRun(head(dx.Row(n), h, w.Cols), dw, head(dy.Row(n), h, w.Cols),
				head(x.Row(n), h, w.Cols), w.Row(0), float64(inv.Row(n)[h]), keep)
		}
	}
}

func normBackwardRun[T Float](dx []T, dw Matrix[T], dy, x, w []T, r float64, keep bool) {
	var gx float64
	for i := range x {
		gx += float64(float64(dy[i]) * float64(w[i]) * float64(x[i]))
	}
	c := float64(gx * r * r * r / float64(len(x)))
	for i := range x {
		d, xi := float64(dy[i]), float64(x[i])
		if dw.Present() {
			grow(&dw.V[i], float64(d*xi*r))
		}
		v := float64(r*d*float64(w[i])) - float64(xi*c)
		if keep {
			v += float64(dx[i])
		}
		dx[i] = T(v)
	}
}
