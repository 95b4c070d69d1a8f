package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/kernelstest"
	"graft/kernels/quant"
)

// result is the named bits that an operation left.
type result struct {
	name string
	bits []uint32
}

// results runs every operation on a lab, on shapes that make many tasks, and collects what they
// leave. Rows are cut into the given calls in forward operations.
type results struct {
	*kernelstest.Lab
	all []result
}

func (r *results) keep(name string, t kernels.Tensor) { r.values(name, r.Read(t)) }

func (r *results) weight(name string, w kernels.Weight) { r.values(name, r.ReadWeight(w)) }

func (r *results) values(name string, values []float32) {
	bits := make([]uint32, len(values))
	for i, v := range values {
		bits[i] = math.Float32bits(v)
	}
	r.all = append(r.all, result{name, bits})
}

func run(t *testing.T, b kernels.Backend) []result {
	t.Helper()
	r := &results{Lab: kernelstest.NewLab(t, b, 11)}
	for _, p := range []kernels.Precision{kernels.PrecisionF32, kernels.PrecisionInt8} {
		r.products(quant.Q4_1, p, 45, 160, []int{200, 64, 16})
		r.products(quant.Q6_K, p, 3, 512, []int{48, 33})
		r.head(6, 9000, 64, 0, p)
		r.head(70, 4100, 32, 5, p)
	}
	r.products(quant.F32, kernels.PrecisionF32, 9, 70, []int{21})
	r.attention()
	r.rowOperations()
	r.Check()
	require.NoError(t, b.Sync())
	return r.all
}

// products is a MatMul with bias, residual and LoRA, and its backward.
func (r *results) products(f quant.Format, precision kernels.Precision, rows, in int, outs []int) {
	x, dx := r.Normal(rows, in, 1), r.Output(rows, in)
	var products []kernels.Product
	var grads []kernels.ProductGrad
	for i, out := range outs {
		p := kernels.Product{Y: r.Output(rows, out), W: r.Weight(f, out, in, 0.1)}
		p.W.Precision = precision
		if i == 1 {
			p.Bias, p.Keep, p.Y = r.Normal(1, out, 1), true, r.Writable(r.Normal(rows, out, 1))
		}
		g := kernels.ProductGrad{DY: r.Normal(rows, out, 1), W: p.W, DW: r.Gradient(out, in), DBias: r.Writable(r.Normal(1, out, 1))}
		if i < 2 {
			p.LoRA = &kernels.LowRank{A: r.Weight(quant.F32, 8, in, 0.1), B: r.Weight(quant.F32, out, 8, 0.1), Scale: 1.7}
			p.H = r.Output(rows, 16)
			g.LoRA, g.H, g.DH, g.DA, g.DB = p.LoRA, p.H, r.Output(rows, 16), r.Gradient(8, in), r.Gradient(out, 8)
		}
		products, grads = append(products, p), append(grads, g)
	}
	r.B.MatMul(x, products)
	r.B.MatMulBackward(dx, x, grads, false)
	r.keep("dx", dx)
	for i, p := range products {
		r.keep("y", p.Y)
		r.weight("dw", grads[i].DW)
		r.keep("dbias", grads[i].DBias)
		if p.LoRA != nil {
			r.keep("h", p.H)
			r.keep("dh", grads[i].DH)
			r.weight("da", grads[i].DA)
			r.weight("db", grads[i].DB)
		}
	}
}

// attention is a batch of groups that share prompts, with its backward.
func (r *results) attention() {
	const heads, groups, dim = 6, 2, 24
	b := kernelstest.NewBatch(r.R, []kernelstest.Group{
		{Prompt: 70, Completions: []int{20, 3, 18, 40}}, {Prompt: 33, Completions: []int{5}},
	})
	n, size := b.N(), groups*dim*kernels.PageSize
	kv := kernels.KV{K: r.Scratch(b.Pages, size), V: r.Scratch(b.Pages, size), Heads: groups, Dim: dim}
	rows, slots := r.Ints(1, len(b.Rows), b.Rows), r.Ints(1, len(b.Slots), b.Slots)
	r.B.WriteKV(kv, r.Normal(n, groups*dim, 1), r.Normal(n, groups*dim, 1), rows, slots)
	for _, window := range []int{0, 19} {
		a := &kernels.AttentionArgs{
			Out: r.Output(n, heads*dim), LSE: r.Output(n, heads), Q: r.Normal(n, heads*dim, 1), KV: kv,
			Tables: r.Ints(b.Seqs, b.Width, b.Tables), Seq: r.Ints(1, n, b.Seq), Positions: r.Ints(1, n, b.Positions),
			Heads: heads, Scale: 0.2, Window: window,
		}
		g := &kernels.AttentionGrad{
			DOut: r.Normal(n, heads*dim, 1), DQ: r.Output(n, heads*dim), DK: r.Output(n, groups*dim), DV: r.Output(n, groups*dim),
			Rows: rows, Slots: slots, Scratch: r.Scratch(1, kernels.AttentionScratch(n, b.Pages, heads, groups, dim)),
		}
		r.B.Attention(a)
		r.B.AttentionBackward(a, g)
		r.keep("attention", a.Out)
		r.keep("attention lse", a.LSE)
		r.keep("dq", g.DQ)
		r.keep("dk", g.DK)
		r.keep("dv", g.DV)

		// One token of each sibling, which is where decoding finds shared pages.
		last := kernels.AttentionArgs{Q: r.Normal(4, heads*dim, 1), KV: kv, Tables: a.Tables, Heads: heads, Scale: 0.2, Window: window,
			Seq: r.Ints(1, 4, []int32{0, 1, 2, 3}), Positions: r.Ints(1, 4, []int32{89, 72, 87, 109}),
			Out: r.Output(4, heads*dim), LSE: r.Output(4, heads)}
		r.B.Attention(&last)
		r.keep("decoded", last.Out)
	}
}

// head is LogProbs with its backward, and Sample in every way of drawing.
func (r *results) head(rows, vocab, channels int, softcap float32, precision kernels.Precision) {
	hidden, w := r.Normal(rows, channels, 1), r.Weight(quant.Q8_0, vocab, channels, 0.3)
	w.Precision = precision
	pairs, targets, invT := make([]int32, 2*rows), make([]int32, 2*rows), make([]float32, rows)
	for i := range pairs {
		pairs[i], targets[i] = int32(i/2), int32(r.R.IntN(vocab))
		invT[i/2] = 0.5 + r.R.Float32()
	}
	n := len(pairs)
	a := &kernels.LogProbsArgs{
		LogP: r.Output(1, n), Entropy: r.Output(1, rows), LSE: r.Output(1, rows), Hidden: hidden, W: w,
		PairRows: r.Ints(1, n, pairs), Targets: r.Ints(1, n, targets), InvT: r.Floats(1, rows, invT),
		Softcap: softcap, Scratch: r.Scratch(1, kernels.LogProbsScratch(rows, vocab, 2)),
	}
	g := &kernels.LogProbsGrad{DLogP: r.Normal(1, n, 1), DEntropy: r.Normal(1, rows, 0.1), DHidden: r.Output(rows, channels), DW: r.Gradient(vocab, channels)}
	r.B.LogProbs(a)
	r.B.LogProbsBackward(a, g)
	r.keep("logp", a.LogP)
	r.keep("entropy", a.Entropy)
	r.keep("lse", a.LSE)
	r.keep("dhidden", g.DHidden)
	r.weight("head dw", g.DW)

	s := &kernels.SampleArgs{Hidden: hidden, W: w, Softcap: softcap, Logits: r.Scratch(rows, pad16(vocab)),
		Rows: make([]kernels.SampleRow, rows), Out: make([]kernels.Sampled, rows)}
	for i := range s.Rows {
		row := kernels.SampleRow{InvT: invT[i], TopP: 1, U: r.R.Float64(), NumTop: i % 3}
		switch i % 6 {
		case 1:
			row.Greedy = true
		case 2:
			row.TopK = 40
		case 3:
			row.TopP = 0.9
		case 4:
			row.MinP = 0.05
		case 5:
			row.Banned, row.Bias = []int32{1, 2, 3}, []kernels.TokenBias{{ID: 7, Value: 4}}
		}
		s.Rows[i] = row
	}
	r.B.Sample(s)
	for _, o := range s.Out {
		v := []float32{float32(o.ID), o.LogP, o.Entropy}
		for _, top := range o.Top {
			v = append(v, float32(top.ID), top.LogP)
		}
		r.values("sampled", v)
	}
}

// rowOperations are the small ones.
func (r *results) rowOperations() {
	const rows, cols = 37, 192
	x, w, dy := r.Normal(rows, cols, 1), r.Normal(1, cols, 1), r.Normal(rows, cols, 1)
	y, inv, dx, dw := r.Output(rows, cols), r.Output(rows, 1), r.Output(rows, cols), r.Writable(r.Normal(1, cols, 1))
	r.B.RMSNorm(y, inv, x, w, 1e-5, false)
	r.B.RMSNormBackward(dx, dw, dy, x, w, inv, false)
	r.keep("norm", y)
	r.keep("norm dx", dx)
	r.keep("norm dw", dw)
	for _, act := range []kernels.Activation{kernels.SiLU, kernels.GELUTanh} {
		out, dgate, dup := r.Output(rows, cols), r.Output(rows, cols), r.Output(rows, cols)
		r.B.GLU(out, x, dy, act)
		r.B.GLUBackward(dgate, dup, y, x, dy, act)
		r.keep("glu", out)
		r.keep("dgate", dgate)
		r.keep("dup", dup)
	}
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(r.R.IntN(20))
	}
	idx := r.Ints(1, rows, ids)
	embedded, demb := r.Output(rows, cols), r.Gradient(20, cols)
	r.B.Embed(embedded, r.Weight(quant.Q4_1, 20, cols, 1), idx, 3)
	r.B.EmbedBackward(demb, dy, idx, 3)
	r.keep("embed", embedded)
	r.weight("dembed", demb)
	sum := r.Writable(r.Normal(20, cols, 1))
	r.B.ScatterAdd(sum, dy, idx)
	r.keep("scatter", sum)
	flat := r.Normal(1, 70000, 1)
	m, v, p := r.Writable(r.Normal(1, 70000, 0)), r.Writable(r.Normal(1, 70000, 0)), r.Writable(r.Normal(1, 70000, 1))
	r.B.AdamW(p, flat, m, v, kernels.AdamWStep{LR: 1e-3, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, GradScale: 0.5, T: 3})
	r.keep("adamw", p)
	r.values("sum of squares", []float32{float32(r.B.SumSquares(flat))})
}

func TestSameBitsOnEveryInstructionSetAndThreadCount(t *testing.T) {
	one := New(Options{Threads: 1, Kernels: vec.For(vec.Generic)})
	defer func() { require.NoError(t, one.Close()) }()
	want := run(t, one)
	each(t, []int{1, 2, 7}, func(t *testing.T, b *Backend) {
		for i, got := range run(t, b) {
			require.Equal(t, want[i].name, got.name)
			require.True(t, slices.Equal(want[i].bits, got.bits), "result %d, %s: other bits", i, got.name)
		}
	})
}

// A row's logits, products and draws must not know who shares the call, in any format.
func TestRowAloneEqualsRowInBatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	backends := []*Backend{}
	for _, isa := range vec.Supported() {
		for _, threads := range []int{1, 2, 5} {
			b := New(Options{Threads: threads, Kernels: vec.For(isa)})
			defer func() { require.NoError(t, b.Close()) }()
			backends = append(backends, b)
		}
	}
	pick := func() *Backend { return backends[rng.IntN(len(backends))] }
	for i := range 6 * len(quant.Formats()) {
		f := quant.Formats()[i%len(quant.Formats())]
		rows, in, out := 1+rng.IntN(40), 256*(1+rng.IntN(3)), 1+rng.IntN(150)
		l := kernelstest.NewLab(t, pick(), uint64(i))
		x, w := l.Normal(rows, in, 1), l.Weight(f, out, in, 0.1)
		w.Precision = kernels.Precision(i / len(quant.Formats()) % 2)
		lora := &kernels.LowRank{A: l.Weight(quant.F32, 9, in, 0.1), B: l.Weight(quant.F32, out, 9, 0.1), Scale: 0.3}
		old, bias := l.Normal(rows, out, 1), l.Normal(1, out, 1)
		product := func(from, to int, y kernels.Tensor) []kernels.Product {
			return []kernels.Product{{Y: y.Slice(from, to), W: w, Bias: bias, Keep: true, LoRA: lora, H: l.Output(to-from, 16)}}
		}
		batch, alone := l.Writable(l.Normal(rows, out, 1)), l.Writable(l.Normal(rows, out, 1))
		pick().Copy(batch, old)
		pick().Copy(alone, old)
		pick().MatMul(x, product(0, rows, batch))
		for row := range rows {
			pick().MatMul(x.Slice(row, row+1), product(row, row+1, alone))
		}
		require.Equal(t, l.Read(batch), l.Read(alone), "%v [%d %d], %d rows", f, out, in, rows)
		l.Check()
	}
}
