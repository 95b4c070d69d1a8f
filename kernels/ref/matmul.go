package ref

import "graft/kernels"

// MatMul implements kernels.Backend.
func (b *Backend) MatMul(x kernels.Tensor, products []kernels.Product) {
	for _, p := range products {
		MatMul(matrix(x), Product[float32]{Y: matrix(p.Y), W: weights(p.W), Bias: matrix(p.Bias), Keep: p.Keep,
			LoRA: lowRank(p.LoRA), H: matrix(p.H)})
	}
}

// MatMulBackward implements kernels.Backend.
func (b *Backend) MatMulBackward(dx, x kernels.Tensor, grads []kernels.ProductGrad, keep bool) {
	list := make([]ProductGrad[float32], len(grads))
	for i, g := range grads {
		list[i] = ProductGrad[float32]{DY: matrix(g.DY), W: weights(g.W), DW: weights(g.DW), DBias: matrix(g.DBias),
			LoRA: lowRank(g.LoRA), H: matrix(g.H), DH: matrix(g.DH), DA: weights(g.DA), DB: weights(g.DB)}
	}
	MatMulBackward(matrix(dx), matrix(x), list, keep)
}

func lowRank(l *kernels.LowRank) *LowRank[float32] {
	if l == nil {
		return nil
	}
	return &LowRank[float32]{A: weights(l.A), B: weights(l.B), Scale: float64(l.Scale)}
}

// LowRank is kernels.LowRank: A [R, In], B [Out, R].
type LowRank[T Float] struct {
	A, B  Matrix[T]
	Scale float64
}

// Product is kernels.Product.
type Product[T Float] struct {
	Y    Matrix[T] // [N, Out]
	W    Matrix[T] // [Out, In]
	Bias Matrix[T] // [1, Out] or absent
	Keep bool
	LoRA *LowRank[T]
	H    Matrix[T] // [N, R or more]; columns from R on become zero
}

// ProductGrad is kernels.ProductGrad.
type ProductGrad[T Float] struct {
	DY, W, DW, DBias Matrix[T]
	LoRA             *LowRank[T]
	H, DH, DA, DB    Matrix[T]
}

// MatMul is y = start + x·wᵀ + h·bᵀ with h = scale·x·aᵀ; start is the bias, plus the old y if Keep.
func MatMul[T Float](x Matrix[T], p Product[T]) {
	for n := range x.Rows {
		xn, yn := x.Row(n), p.Y.Row(n)
		xw := p.W.input(xn)
		var hn []T
		if p.LoRA != nil {
			clear(p.H.Row(n))
			hn = p.H.Row(n)[:p.LoRA.A.Rows]
			for r := range hn {
				hn[r] = T(p.LoRA.Scale * dot(xn, p.LoRA.A.Row(r)))
			}
		}
		for o := range yn {
			var v float64
			if p.Keep {
				v = float64(yn[o])
			}
			if p.Bias.Present() {
				v += float64(p.Bias.V[o])
			}
			v += dot(xw, p.W.Row(o))
			if p.LoRA != nil {
				v += dot(hn, p.LoRA.B.Row(o))
			}
			yn[o] = T(v)
		}
	}
}

// MatMulBackward differentiates y = bias + x·wᵀ + h·bᵀ, h = scale·x·aᵀ, for every product of x. With
// dh = scale·dy·b: dx = Σ dy·w + dh·a (keep: dx += …; absent: not computed), dw += dyᵀ·x,
// dbias += Σ dy, da += dhᵀ·x, db += dyᵀ·h.
func MatMulBackward[T Float](dx, x Matrix[T], grads []ProductGrad[T], keep bool) {
	for _, g := range grads {
		for n := range x.Rows {
			g.lowRankRow(n)
			g.parameterRow(n, x.Row(n))
		}
	}
	if !dx.Present() {
		return
	}
	sum, turned := make([]float64, dx.Cols), make([]Matrix[T], len(grads))
	for i, g := range grads {
		turned[i] = g.W.outputs()
	}
	for n := range dx.Rows {
		dxn := dx.Row(n)
		for i := range sum {
			sum[i] = 0
			if keep {
				sum[i] = float64(dxn[i])
			}
		}
		for i, g := range grads {
			addRows(sum, g.W.output(g.DY.Row(n)), turned[i])
			if g.LoRA != nil {
				addRows(sum, g.DH.Row(n)[:g.LoRA.A.Rows], g.LoRA.A)
			}
		}
		for i, v := range sum {
			dxn[i] = T(v)
		}
	}
}

// lowRankRow is dh[n] = scale·dy[n]·b.
func (g *ProductGrad[T]) lowRankRow(n int) {
	if g.LoRA == nil {
		return
	}
	dh := g.DH.Row(n)
	clear(dh)
	sum := make([]float64, g.LoRA.A.Rows)
	addRows(sum, g.DY.Row(n), g.LoRA.B)
	for r, v := range sum {
		dh[r] = T(g.LoRA.Scale * v)
	}
}

// parameterRow adds row n's outer products to the gradients that are asked for.
func (g *ProductGrad[T]) parameterRow(n int, xn []T) {
	dy := g.DY.Row(n)
	if g.DW.Present() {
		outer(g.DW, dy, xn)
	}
	if g.DBias.Present() {
		for o, d := range dy {
			grow(&g.DBias.V[o], float64(d))
		}
	}
	if g.DA.Present() {
		rank := g.LoRA.A.Rows
		outer(g.DA, g.DH.Row(n)[:rank], xn)
		outer(g.DB, dy, g.H.Row(n)[:rank])
	}
}

// addRows is sum += Σ c[o]·m[o].
func addRows[T Float](sum []float64, c []T, m Matrix[T]) {
	for o, d := range c {
		for i, v := range m.Row(o) {
			sum[i] += float64(float64(d) * float64(v))
		}
	}
}

// outer is m += aᵀ·b for one row each.
func outer[T Float](m Matrix[T], a, b []T) {
	for i, ai := range a {
		row := m.Row(i)
		for j, bj := range b {
			grow(&row[j], float64(float64(ai)*float64(bj)))
		}
	}
}
