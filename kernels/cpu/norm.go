package cpu

import (
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
)

// RMSNorm is y = x/√(mean(x²)+eps)·w over every run of w's length (keep: y += …).
func (b *Backend) RMSNorm(y, inv, x, w kernels.Tensor, eps float32, keep bool) {
	j := rowsJob{op: normRows, y: y, a: inv, b: x, c: w, eps: eps, keep: keep}
	b.runRows(j, x.Rows, 10*float64(x.Cols/w.Cols)+normCost*float64(x.Cols))
}

func normRows(j *rowsJob, w *worker, from, to int) {
	n := j.c.Cols
	weights := at(j.c, 0, 0)
	var beside unsafe.Pointer
	if j.keep {
		beside = w.floats(n)
	}
	for i := from; i < to; i++ {
		for h := range j.b.Cols / n {
			y := at(j.y, i, h*n)
			w.norm = vec.RMSNormArgs{Y: y, X: at(j.b, i, h*n), W: weights, N: int64(n), Eps: j.eps}
			if j.keep {
				w.norm.Y = beside
			}
			w.k.RMSNorm(&w.norm)
			if j.a.Present() {
				*(*float32)(at(j.a, i, h)) = w.norm.Inv
			}
			if j.keep {
				w.plus(y, beside, n)
			}
		}
	}
}

// RMSNormBackward is dx (keep: dx += …) by rows, then dw += … by columns, rows and runs ascending.
func (b *Backend) RMSNormBackward(dx, dw, dy, x, w, inv kernels.Tensor, keep bool) {
	if dw.Present() { // before dx, which may be dy
		j := rowsJob{op: normWeightColumns, y: dw, a: dy, b: x, c: inv}
		b.runColumns(j, w.Cols, 60*float64(x.Rows*inv.Cols), 3*moveCost*float64(x.Rows*inv.Cols))
	}
	if dx.Present() {
		j := rowsJob{op: normBackwardRows, y: dx, a: dy, b: x, c: w, d: inv, keep: keep}
		b.runRows(j, x.Rows, 10*float64(inv.Cols)+2*normCost*float64(x.Cols))
	}
}

func normBackwardRows(j *rowsJob, w *worker, from, to int) {
	n := j.c.Cols
	g := &w.dnorm
	*g = vec.RMSNormBackwardArgs{W: at(j.c, 0, 0), N: int64(n)}
	if j.keep {
		g.Keep = 1
	}
	for i := from; i < to; i++ {
		for h, inv := range floats(at(j.d, i, 0), j.d.Cols) {
			g.DX, g.X, g.DY, g.Inv = at(j.y, i, h*n), at(j.b, i, h*n), at(j.a, i, h*n), inv
			w.k.RMSNormBackward(g)
		}
	}
}

// normWeightColumns is dw += dy·(x·inv) for some columns.
func normWeightColumns(j *rowsJob, w *worker, from, to int) {
	n := j.y.Cols
	dw, beside := at(j.y, 0, from), w.floats(to-from)
	for i := range j.b.Rows {
		for h, inv := range floats(at(j.c, i, 0), j.c.Cols) {
			w.scaled(beside, at(j.b, i, h*n+from), to-from, inv)
			w.mul = vec.MulArgs{Y: beside, X: beside, Z: at(j.a, i, h*n+from), N: int64(to - from)}
			w.k.Mul(&w.mul)
			w.plus(dw, beside, to-from)
		}
	}
}
