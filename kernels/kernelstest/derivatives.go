package kernelstest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"graft/kernels"
	"graft/kernels/ref"
)

// derivatives lists every differentiable operation.
func derivatives() []func(*rand.Rand) *derivative {
	return []func(*rand.Rand) *derivative{
		embedDerivative, normDerivative, matMulDerivative,
		func(r *rand.Rand) *derivative { return ropeDerivative(r, false) },
		func(r *rand.Rand) *derivative { return ropeDerivative(r, true) },
		func(r *rand.Rand) *derivative { return gluDerivative(r, kernels.SiLU) },
		func(r *rand.Rand) *derivative { return gluDerivative(r, kernels.GELUTanh) },
		func(r *rand.Rand) *derivative {
			return attentionDerivative(r, attentionCase{heads: 4, kvHeads: 2, dim: 8, groups: gradGroups})
		},
		func(r *rand.Rand) *derivative {
			return attentionDerivative(r, attentionCase{heads: 3, kvHeads: 1, dim: 16, window: 5, softcap: 2, groups: gradGroups})
		},
		func(r *rand.Rand) *derivative { return headDerivative(r, 0) },
		func(r *rand.Rand) *derivative { return headDerivative(r, 3) },
	}
}

// gradGroups is a small batch with a shared prompt that crosses a page.
var gradGroups = []Group{{Prompt: 17, Completions: []int{2, 3}}, {Prompt: 5, Completions: []int{0}}}

// y = scale·w[ids]
func embedDerivative(r *rand.Rand) *derivative {
	w, ids := newVariable(r, "w", 7, 12, 1), []int32{3, 0, 3, 6, 3}
	c := random64(r, len(ids), 12, 1)
	return &derivative{name: "Embed", terms: 5, vars: []*variable{w},
		loss: func() float64 {
			y := zero64(c)
			ref.Embed(y, w.value, ids, 1.5)
			return sumOf(c, y)
		},
		backward: func() { ref.EmbedBackward(w.grad, c, ids, 1.5) },
		backend: func(l *Lab) [][]float32 {
			dw := l.zeroGradient(w.value)
			l.B.EmbedBackward(dw, l.tensor64(c), l.Ints(1, len(ids), ids), 1.5)
			return [][]float32{l.ReadWeight(dw)}
		}}
}

// y = norm(x)·w over two runs of channels
func normDerivative(r *rand.Rand) *derivative {
	const n, runs, width, eps = 5, 2, 12, 1e-2
	x, w := newVariable(r, "x", n, runs*width, 1), newVariable(r, "w", 1, width, 1)
	c, inv := random64(r, n, runs*width, 1), ref.NewMatrix[float64](n, runs)
	exactEps := float64(float32(eps)) // as the backend is given it
	forward := func() matrix64 {
		y := zero64(c)
		ref.RMSNorm(y, inv, x.value, w.value, exactEps, false)
		return y
	}
	return &derivative{name: "RMSNorm", terms: width + n*runs, vars: []*variable{x, w},
		loss: func() float64 { return sumOf(c, forward()) },
		backward: func() {
			forward()
			ref.RMSNormBackward(x.grad, w.grad, c, x.value, w.value, inv, false)
		},
		backend: func(l *Lab) [][]float32 {
			tx, tw, ti := l.tensor64(x.value), l.tensor64(w.value), l.like(inv)
			l.B.RMSNorm(l.like(c), ti, tx, tw, eps, false)
			dx, dw := l.like(c), l.zeros(w.value)
			l.B.RMSNormBackward(dx, dw, l.tensor64(c), tx, tw, ti, false)
			return [][]float32{l.Read(dx), l.Read(dw)}
		}}
}

// linear64 is one product's exact operands: y = bias + x·wᵀ + scale·x·aᵀ·bᵀ
type linear64 struct {
	w, bias, a, b *variable
	c             matrix64
}

func newLinear64(r *rand.Rand, name string, n, in, out, rank int) *linear64 {
	return &linear64{newVariable(r, "w"+name, out, in, 0.3), newVariable(r, "bias"+name, 1, out, 1),
		newVariable(r, "a"+name, rank, in, 0.3), newVariable(r, "b"+name, out, rank, 0.5), random64(r, n, out, 1)}
}

func (p *linear64) product(y, h matrix64) ref.Product[float64] {
	return ref.Product[float64]{Y: y, W: p.w.value, Bias: p.bias.value, H: h,
		LoRA: &ref.LowRank[float64]{A: p.a.value, B: p.b.value, Scale: 0.75}}
}

func (p *linear64) grad(h matrix64) ref.ProductGrad[float64] {
	return ref.ProductGrad[float64]{DY: p.c, W: p.w.value, DW: p.w.grad, DBias: p.bias.grad, H: h, DH: zero64(h),
		LoRA: &ref.LowRank[float64]{A: p.a.value, B: p.b.value, Scale: 0.75}, DA: p.a.grad, DB: p.b.grad}
}

// two products of one x
func matMulDerivative(r *rand.Rand) *derivative {
	const n, in, rank = 6, 11, 3
	x := newVariable(r, "x", n, in, 1)
	list := []*linear64{newLinear64(r, "1", n, in, 9, rank), newLinear64(r, "2", n, in, 17, rank)}
	d := &derivative{name: "MatMul", terms: in + 26 + rank, vars: []*variable{x}}
	for _, p := range list {
		d.vars = append(d.vars, p.w, p.bias, p.a, p.b)
	}
	hs := []matrix64{ref.NewMatrix[float64](n, rank), ref.NewMatrix[float64](n, rank)}
	d.loss = func() float64 {
		var sum float64
		for i, p := range list {
			y := zero64(p.c)
			ref.MatMul(x.value, p.product(y, hs[i]))
			sum += sumOf(p.c, y)
		}
		return sum
	}
	d.backward = func() {
		d.loss() // leaves h
		ref.MatMulBackward(x.grad, x.value, []ref.ProductGrad[float64]{list[0].grad(hs[0]), list[1].grad(hs[1])}, false)
	}
	d.backend = func(l *Lab) [][]float32 { return matMulGradients(l, x, list, rank) }
	return d
}

func matMulGradients(l *Lab, x *variable, list []*linear64, rank int) [][]float32 {
	tx, n := l.tensor64(x.value), x.value.Rows
	var products []kernels.Product
	var grads []kernels.ProductGrad
	for _, p := range list {
		lora := &kernels.LowRank{A: l.weight64(p.a.value), B: l.weight64(p.b.value), Scale: 0.75}
		w, h := l.weight64(p.w.value), l.Output(n, padded(rank))
		products = append(products, kernels.Product{Y: l.like(p.c), W: w, Bias: l.tensor64(p.bias.value), LoRA: lora, H: h})
		grads = append(grads, kernels.ProductGrad{DY: l.tensor64(p.c), W: w, DW: l.zeroGradient(p.w.value),
			DBias: l.zeros(p.bias.value), LoRA: lora, H: h, DH: l.Output(n, padded(rank)),
			DA: l.zeroGradient(p.a.value), DB: l.zeroGradient(p.b.value)})
	}
	dx := l.like(x.value)
	l.B.MatMul(tx, products)
	l.B.MatMulBackward(dx, tx, grads, false)
	all := [][]float32{l.Read(dx)}
	for _, g := range grads {
		all = append(all, l.ReadWeight(g.DW), l.Read(g.DBias), l.ReadWeight(g.DA), l.ReadWeight(g.DB))
	}
	return all
}

// The backward of a rotation is the inverse rotation, also when the table has a factor.
func ropeDerivative(r *rand.Rand, paired bool) *derivative {
	const n, heads, dim, dims, positions = 4, 2, 10, 6, 20
	x, c, at := newVariable(r, "x", n, heads*dim, 1), random64(r, n, heads*dim, 1), []int32{0, 19, 7, 7}
	table := ref.NewMatrix[float64](positions, dims)
	for i, v := range ropeTable(positions, dims, 1.3) {
		table.V[i] = float64(v)
	}
	rope := ref.Rope[float64]{Table: table, Dims: dims, HeadDim: dim, Paired: paired}
	return &derivative{name: fmt.Sprintf("RoPE-paired%t", paired), terms: 2, vars: []*variable{x},
		loss: func() float64 {
			y := clone64(x.value)
			ref.RoPE(y, rope, at, false)
			return sumOf(c, y)
		},
		backward: func() {
			copy(x.grad.V, c.V)
			ref.RoPE(x.grad, rope, at, true)
		},
		backend: func(l *Lab) [][]float32 {
			dx := l.Writable(l.tensor64(c))
			l.B.RoPE(dx, kernels.Rope{Table: l.tensor64(table), Dims: dims, HeadDim: dim, Paired: paired}, l.Ints(1, n, at), true)
			return [][]float32{l.Read(dx)}
		}}
}

// y = act(gate)·up
func gluDerivative(r *rand.Rand, act kernels.Activation) *derivative {
	const n, cols = 4, 13
	gate, up, c := newVariable(r, "gate", n, cols, 2), newVariable(r, "up", n, cols, 1), random64(r, n, cols, 1)
	return &derivative{name: fmt.Sprintf("GLU-act%d", act), terms: 1, vars: []*variable{gate, up},
		loss: func() float64 {
			y := zero64(c)
			ref.GLU(y, gate.value, up.value, act)
			return sumOf(c, y)
		},
		backward: func() { ref.GLUBackward(gate.grad, up.grad, c, gate.value, up.value, act) },
		backend: func(l *Lab) [][]float32 {
			dgate, dup := l.like(c), l.like(c)
			l.B.GLUBackward(dgate, dup, l.tensor64(c), l.tensor64(gate.value), l.tensor64(up.value), act)
			return [][]float32{l.Read(dgate), l.Read(dup)}
		}}
}

// attention over pages that siblings share
func attentionDerivative(r *rand.Rand, shape attentionCase) *derivative {
	b := NewBatch(r, shape.groups)
	n, kvCols := b.N(), shape.kvHeads*shape.dim
	q, k, v := newVariable(r, "q", n, shape.heads*shape.dim, 1.5), newVariable(r, "k", n, kvCols, 1), newVariable(r, "v", n, kvCols, 1)
	c := random64(r, n, shape.heads*shape.dim, 1)
	forward := func() (*ref.Attention[float64], matrix64) {
		kv := ref.KV[float64]{K: ref.NewMatrix[float64](b.Pages, kernels.PageSize*kvCols),
			V: ref.NewMatrix[float64](b.Pages, kernels.PageSize*kvCols), Heads: shape.kvHeads, Dim: shape.dim}
		ref.WriteKV(kv, k.value, v.value, b.Rows, b.Slots)
		a := &ref.Attention[float64]{Out: zero64(c), LSE: ref.NewMatrix[float64](n, shape.heads), Q: q.value, KV: kv,
			Seq: b.Seq, Positions: b.Positions, Heads: shape.heads, Window: shape.window, Softcap: float64(shape.softcap),
			Scale: float64(float32(1 / math.Sqrt(float64(shape.dim))))}
		for s := range b.Seqs {
			a.Tables = append(a.Tables, b.Tables[s*b.Width:(s+1)*b.Width])
		}
		a.Forward()
		return a, a.Out
	}
	return &derivative{name: "Attention-" + shape.String(), terms: shape.dim + 64 + 8*shape.heads, vars: []*variable{q, k, v},
		loss: func() float64 {
			_, out := forward()
			return sumOf(c, out)
		},
		backward: func() {
			a, _ := forward()
			a.Backward(c, q.grad, k.grad, v.grad, b.Rows, b.Slots)
		},
		backend: func(l *Lab) [][]float32 {
			p := l.paged(shape, l.tensor64(q.value), l.tensor64(k.value), l.tensor64(v.value), b)
			dq, dk, dv := l.attentionBackward(p, l.tensor64(c))
			return [][]float32{l.Read(dq), l.Read(dk), l.Read(dv)}
		}}
}

// log-probs and entropies of rows with none, one and two targets
func headDerivative(r *rand.Rand, softcap float32) *derivative {
	const m, width, vocab = 4, 8, 21
	hidden, w := newVariable(r, "hidden", m, width, 1), newVariable(r, "w", vocab, width, 0.7)
	rows, targets, invT := []int32{0, 2, 2, 3}, []int32{5, 0, 20, 5}, []float32{1, 0.5, 1.25, 2}
	dlogp, dentropy := random64(r, 1, len(rows), 1), random64(r, 1, m, 1)
	forward := func() *ref.LogProbs[float64] {
		a := &ref.LogProbs[float64]{LogP: make([]float64, len(rows)), Entropy: make([]float64, m), LSE: make([]float64, m),
			Hidden: hidden.value, W: w.value, PairRows: rows, Targets: targets, Softcap: float64(softcap)}
		for _, v := range invT {
			a.InvT = append(a.InvT, float64(v))
		}
		a.Forward()
		return a
	}
	return &derivative{name: fmt.Sprintf("LogProbs-cap%v", softcap), terms: 64 + width + m, vars: []*variable{hidden, w},
		loss: func() float64 {
			a := forward()
			return sumOf(dlogp, matrix64{V: a.LogP}) + sumOf(dentropy, matrix64{V: a.Entropy})
		},
		backward: func() { forward().Backward(dlogp.V, dentropy.V, hidden.grad, w.grad) },
		backend: func(l *Lab) [][]float32 {
			s := &scored{headCase: headCase{rows: m, vocab: vocab, c: width, softcap: softcap}, hidden: l.tensor64(hidden.value),
				w: l.weight64(w.value), invT: invT, pairRows: rows, targets: targets}
			a := s.args(l, part{0, m}, l.Output(1, len(rows)), l.Output(1, m), l.Output(1, m))
			l.B.LogProbs(a)
			g := kernels.LogProbsGrad{DLogP: l.tensor64(dlogp), DEntropy: l.tensor64(dentropy), DHidden: l.like(hidden.value),
				DW: l.zeroGradient(w.value)}
			l.B.LogProbsBackward(a, &g)
			return [][]float32{l.Read(g.DHidden), l.ReadWeight(g.DW)}
		}}
}
