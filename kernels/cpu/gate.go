package cpu

import (
	"graft/kernels"
	"graft/kernels/cpu/vec"
)

// RoPE turns x in place by the rows of the table at the positions.
func (b *Backend) RoPE(x kernels.Tensor, r kernels.Rope, positions kernels.Tensor, inverse bool) {
	j := rowsJob{op: turnRows, y: x, a: positions, rope: r, keep: inverse}
	b.runRows(j, x.Rows, 20+normCost*float64(x.Cols))
}

func turnRows(j *rowsJob, w *worker, from, to int) {
	r := &j.rope
	a := &w.rope
	*a = vec.RoPEArgs{
		D: int64(r.HeadDim), R: int64(r.Dims), Heads: int64(j.y.Cols / r.HeadDim),
		YRow: int64(r.HeadDim), XRow: int64(r.HeadDim),
	}
	if !r.Paired {
		a.NeoX = 1
	}
	if j.keep {
		a.Inverse = 1
	}
	positions := j.a.I32()
	for i := from; i < to; i++ {
		a.X = at(j.y, i, 0)
		a.Y = a.X
		a.Cos = at(r.Table, index(positions[i], r.Table.Rows, "position"), 0)
		a.Sin = add(a.Cos, r.Dims/2)
		w.k.RoPE(a)
	}
}

// GLU is y = act(gate)·up.
func (b *Backend) GLU(y, gate, up kernels.Tensor, act kernels.Activation) {
	b.runRows(rowsJob{op: gateRows, y: y, a: gate, b: up, act: act}, y.Rows, gateCost*float64(y.Cols))
}

func gateRows(j *rowsJob, w *worker, from, to int) {
	for i := from; i < to; i++ {
		y, g, u, n := at(j.y, i, 0), at(j.a, i, 0), at(j.b, i, 0), int64(j.y.Cols)
		if j.act == kernels.GELUTanh {
			w.geglu = vec.GeGLUArgs{Y: y, G: g, U: u, N: n}
			w.k.GeGLU(&w.geglu)
		} else {
			w.swiglu = vec.SwiGLUArgs{Y: y, G: g, U: u, N: n}
			w.k.SwiGLU(&w.swiglu)
		}
	}
}

// GLUBackward overwrites dgate and dup, which may be gate and up.
func (b *Backend) GLUBackward(dgate, dup, dy, gate, up kernels.Tensor, act kernels.Activation) {
	j := rowsJob{op: gateBackwardRows, y: dgate, a: dup, b: dy, c: gate, d: up, act: act}
	b.runRows(j, dy.Rows, 1.5*gateCost*float64(dy.Cols))
}

func gateBackwardRows(j *rowsJob, w *worker, from, to int) {
	for i := from; i < to; i++ {
		dg, du, dy := at(j.y, i, 0), at(j.a, i, 0), at(j.b, i, 0)
		g, u, n := at(j.c, i, 0), at(j.d, i, 0), int64(j.b.Cols)
		if j.act == kernels.GELUTanh {
			w.dgeglu = vec.GeGLUBackwardArgs{DG: dg, DU: du, G: g, U: u, DY: dy, N: n}
			w.k.GeGLUBackward(&w.dgeglu)
		} else {
			w.dswiglu = vec.SwiGLUBackwardArgs{DG: dg, DU: du, G: g, U: u, DY: dy, N: n}
			w.k.SwiGLUBackward(&w.dswiglu)
		}
	}
}
