package kernelstest

import (
	"fmt"
	"math"

	"graft/kernels"
)

// attentionCase is the shape of an attention scene.
type attentionCase struct {
	heads, kvHeads, dim int
	window              int
	softcap             float32
	groups              []Group
}

func (c attentionCase) String() string {
	s := fmt.Sprintf("h%d-g%d-d%d", c.heads, c.kvHeads, c.dim)
	if c.window > 0 {
		s += fmt.Sprintf("-window%d", c.window)
	}
	if c.softcap > 0 {
		s += fmt.Sprintf("-cap%v", c.softcap)
	}
	return s
}

// siblings share a prompt whose last page is not full; others end at, before and after page ends.
var siblings = []Group{
	{Prompt: 21, Completions: []int{5, 1, 19}},
	{Prompt: 16, Completions: []int{3, 0, 17}},
	{Prompt: 1, Completions: []int{0}},
	{Prompt: 0, Completions: []int{15}},
	{Prompt: 40, Completions: []int{2, 2}},
}

// few is a batch for wide heads.
var few = []Group{{Prompt: 18, Completions: []int{2, 15}}, {Prompt: 16, Completions: []int{1}}}

var attentionCases = []attentionCase{
	{heads: 4, kvHeads: 2, dim: 16, groups: siblings},
	{heads: 3, kvHeads: 3, dim: 24, groups: siblings},
	{heads: 4, kvHeads: 1, dim: 32, window: 8, groups: siblings},
	{heads: 6, kvHeads: 2, dim: 64, window: 17, groups: siblings},
	{heads: 5, kvHeads: 1, dim: 80, groups: few},
	{heads: 12, kvHeads: 2, dim: 32, softcap: 3, groups: few},
	{heads: 7, kvHeads: 1, dim: 128, window: 1, groups: few},
	{heads: 8, kvHeads: 1, dim: 256, softcap: 20, window: 33, groups: few},
}

// paged is a batch on a backend: rows of q, k, v, and pages that hold NaN where nothing is written.
type paged struct {
	*Batch
	c       attentionCase
	q, k, v kernels.Tensor
	kv      kernels.KV
	tables  kernels.Tensor
}

func (l *Lab) paged(c attentionCase, q, k, v kernels.Tensor, b *Batch) *paged {
	p := &paged{Batch: b, c: c, q: q, k: k, v: v, tables: l.Ints(b.Seqs, b.Width, b.Tables)}
	cols := c.kvHeads * c.dim * kernels.PageSize
	p.kv = kernels.KV{K: l.Scratch(b.Pages, cols), V: l.Scratch(b.Pages, cols), Heads: c.kvHeads, Dim: c.dim}
	return p
}

func (l *Lab) randomPaged(c attentionCase) *paged {
	b := NewBatch(l.R, c.groups)
	q := l.Normal(b.N(), c.heads*c.dim, 1.5)
	return l.paged(c, q, l.Normal(b.N(), c.kvHeads*c.dim, 1), l.Normal(b.N(), c.kvHeads*c.dim, 1), b)
}

// write stores the keys and values of a part's rows.
func (p *paged) write(l *Lab, part part) {
	rows, slots := p.pairs(part)
	l.B.WriteKV(p.kv, p.k.Slice(part.from, part.to), p.v.Slice(part.from, part.to),
		l.Ints(1, len(rows), rows), l.Ints(1, len(slots), slots))
}

// args are the arguments for a part's rows.
func (p *paged) args(l *Lab, part part, out, lse kernels.Tensor) *kernels.AttentionArgs {
	n := part.to - part.from
	return &kernels.AttentionArgs{Out: out.Slice(part.from, part.to), LSE: lse.Slice(part.from, part.to),
		Q: p.q.Slice(part.from, part.to), KV: p.kv, Tables: p.tables,
		Seq: l.Ints(1, n, p.Seq[part.from:part.to]), Positions: l.Ints(1, n, p.Positions[part.from:part.to]),
		Heads: p.c.heads, Scale: float32(1 / math.Sqrt(float64(p.c.dim))), Window: p.c.window, Softcap: p.c.softcap}
}

// attentionScene writes and attends part by part: what one call sees of later rows is NaN.
func attentionScene(c attentionCase) scene {
	return func(l *Lab) {
		p := l.randomPaged(c)
		out, lse := l.Output(p.N(), c.heads*c.dim), l.Output(p.N(), c.heads)
		for _, part := range l.parts(p.N()) {
			p.write(l, part)
			l.B.Attention(p.args(l, part, out, lse))
		}
		l.Report("out", out)
		l.Report("lse", lse)
	}
}

// attentionCheck: a score's error is that of a chain over D; the softmax multiplies it by the
// score's size, below 10 here.
func attentionCheck(c attentionCase) check {
	return check{terms: c.dim + 64, slack: 64, rows: true}
}

func testAttention(t tester, b kernels.Backend) {
	for i, c := range attentionCases {
		t.Run(c.String(), func(t tester) {
			compare(t, b, uint64(i), attentionCheck(c), attentionScene(c))
		})
	}
}

// testWriteKV reads pages back through Attention with a window of 1, which returns a value row as it
// is (its weight is 1), and with unit queries, whose log-sum-exp is one element of the key.
func testWriteKV(t tester, b kernels.Backend) {
	c := attentionCase{heads: 32, kvHeads: 2, dim: 16, window: 1, groups: siblings}
	compare(t, b, 1, check{exact: true, rows: true}, func(l *Lab) {
		g := NewBatch(l.R, c.groups)
		p := l.paged(c, kernels.Tensor{}, l.Normal(g.N(), c.kvHeads*c.dim, 1), l.Normal(g.N(), c.kvHeads*c.dim, 1), g)
		for _, part := range l.parts(p.N()) {
			p.write(l, part)
		}
		// Every position of every sequence, so that each copy of a prompt's tail is read.
		var seq, positions []int32
		for s, rows := range g.SeqRows {
			for pos := range rows {
				seq, positions = append(seq, int32(s)), append(positions, int32(pos))
			}
		}
		n := len(seq)
		unit := make([]float32, n*c.heads*c.dim)
		for i := 0; i < len(unit); i += c.dim {
			unit[i+i/c.dim%c.dim] = 1 // head h asks for element h mod D
		}
		q := l.Floats(n, c.heads*c.dim, unit)
		out, lse := l.Output(n, c.heads*c.dim), l.Output(n, c.heads)
		l.B.Attention(&kernels.AttentionArgs{Out: out, LSE: lse, Q: q, KV: p.kv, Tables: p.tables,
			Seq: l.Ints(1, n, seq), Positions: l.Ints(1, n, positions), Heads: c.heads, Scale: 1, Window: 1})
		l.Report("values", out)
		l.Report("keys", lse)
	})
}

// attentionBackward runs the forward and the backward and returns dq, dk and dv.
func (l *Lab) attentionBackward(p *paged, dout kernels.Tensor) (dq, dk, dv kernels.Tensor) {
	n, c := p.N(), p.c
	all := part{0, n}
	p.write(l, all)
	a := p.args(l, all, l.Output(n, c.heads*c.dim), l.Output(n, c.heads))
	l.B.Attention(a)
	dq, dk, dv = l.Output(n, c.heads*c.dim), l.Output(n, c.kvHeads*c.dim), l.Output(n, c.kvHeads*c.dim)
	l.B.AttentionBackward(a, &kernels.AttentionGrad{DOut: dout, DQ: dq, DK: dk, DV: dv,
		Rows: l.Ints(1, len(p.Rows), p.Rows), Slots: l.Ints(1, len(p.Slots), p.Slots),
		Scratch: l.Scratch(1, kernels.AttentionScratch(n, p.Pages, c.heads, c.kvHeads, c.dim))})
	return dq, dk, dv
}

func testAttentionBackward(t tester, b kernels.Backend) {
	for i, c := range attentionCases {
		t.Run(c.String(), func(t tester) {
			// A key's gradient sums over rows and over the heads of its group. dp − δ is a difference of
			// numbers whose products with k or q are about 1, and 0 where a row sees itself alone.
			compare(t, b, uint64(i), check{terms: c.dim + 64 + 8*c.heads, slack: 128, floor: 1}, func(l *Lab) {
				p := l.randomPaged(c)
				dq, dk, dv := l.attentionBackward(p, l.Normal(p.N(), c.heads*c.dim, 1))
				l.Report("dq", dq)
				l.Report("dk", dk)
				l.Report("dv", dv)
			})
		})
	}
}
