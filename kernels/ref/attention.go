package ref

import (
	"graft/kernels"
	"graft/kernels/libm"
)

// WriteKV implements kernels.Backend.
func (b *Backend) WriteKV(kv kernels.KV, k, v, rows, slots kernels.Tensor) {
	WriteKV(pages(kv), matrix(k), matrix(v), rows.I32(), slots.I32())
}

// Attention implements kernels.Backend.
func (b *Backend) Attention(a *kernels.AttentionArgs) { attention(a).Forward() }

// AttentionBackward implements kernels.Backend. It recomputes what the forward stored.
func (b *Backend) AttentionBackward(a *kernels.AttentionArgs, g *kernels.AttentionGrad) {
	attention(a).Backward(matrix(g.DOut), matrix(g.DQ), matrix(g.DK), matrix(g.DV), g.Rows.I32(), g.Slots.I32())
}

func pages(kv kernels.KV) KV[float32] {
	return KV[float32]{K: matrix(kv.K), V: matrix(kv.V), Heads: kv.Heads, Dim: kv.Dim}
}

func attention(a *kernels.AttentionArgs) *Attention[float32] {
	tables := make([][]int32, a.Tables.Rows)
	for s := range tables {
		tables[s] = a.Tables.Slice(s, s+1).I32()
	}
	return &Attention[float32]{Out: matrix(a.Out), LSE: matrix(a.LSE), Q: matrix(a.Q), KV: pages(a.KV),
		Tables: tables, Seq: a.Seq.I32(), Positions: a.Positions.I32(), Heads: a.Heads,
		Scale: float64(a.Scale), Window: a.Window, Softcap: float64(a.Softcap)}
}

// KV is kernels.KV. This package orders a page [PageSize, G, D].
type KV[T Float] struct {
	K, V       Matrix[T] // [pages, PageSize·G·D]
	Heads, Dim int       // G, D
}

// at is head g of the slot's row in K or V.
func (kv KV[T]) at(m Matrix[T], slot int32, g int) []T {
	page, position := int(slot)/kernels.PageSize, int(slot)%kernels.PageSize
	from := (position*kv.Heads + g) * kv.Dim
	return m.Row(page)[from : from+kv.Dim]
}

// WriteKV stores row rows[i] of k and v [N, G·D] at slot slots[i].
func WriteKV[T Float](kv KV[T], k, v Matrix[T], rows, slots []int32) {
	for i, n := range rows {
		for g := range kv.Heads {
			copy(kv.at(kv.K, slots[i], g), k.Row(int(n))[g*kv.Dim:])
			copy(kv.at(kv.V, slots[i], g), v.Row(int(n))[g*kv.Dim:])
		}
	}
}

// Attention is kernels.AttentionArgs.
type Attention[T Float] struct {
	Out, LSE, Q    Matrix[T]
	KV             KV[T]
	Tables         [][]int32
	Seq, Positions []int32
	Heads          int
	Scale          float64
	Window         int
	Softcap        float64
}

// visible lists the slots that row n sees, in ascending position.
func (a *Attention[T]) visible(n int) []int32 {
	first, last := int32(0), a.Positions[n]
	if a.Window > 0 {
		first = max(0, last-int32(a.Window)+1)
	}
	slots := make([]int32, 0, last-first+1)
	for p := first; p <= last; p++ {
		slots = append(slots, a.Tables[a.Seq[n]][p/kernels.PageSize]*kernels.PageSize+p%kernels.PageSize)
	}
	return slots
}

// softmax returns the weights of the slots for one query head, the slope of the cap at each score
// (1 without one), and the log-sum-exp of the scores.
func (a *Attention[T]) softmax(q []T, slots []int32, g int) (p, slope []float64, lse float64) {
	p, slope = make([]float64, len(slots)), make([]float64, len(slots))
	for j, slot := range slots {
		s := a.Scale * dot(q, a.KV.at(a.KV.K, slot, g))
		p[j], slope[j] = s, 1
		if a.Softcap > 0 {
			t := libm.Tanh(s / a.Softcap)
			p[j], slope[j] = a.Softcap*t, 1-float64(t*t)
		}
	}
	lse = logSumExp(p)
	for j := range p {
		p[j] = libm.Exp(p[j] - lse)
	}
	return p, slope, lse
}

// head is columns of head h of D each.
func head[T Float](row []T, h, dim int) []T { return row[h*dim : (h+1)*dim] }

// Forward is out[n, h] = Σ softmax(scale·q·k)·v over the visible slots, and their log-sum-exp.
func (a *Attention[T]) Forward() {
	dim, group := a.KV.Dim, a.Heads/a.KV.Heads
	sum := make([]float64, dim)
	for n := range a.Q.Rows {
		slots := a.visible(n)
		for h := range a.Heads {
			p, _, lse := a.softmax(head(a.Q.Row(n), h, dim), slots, h/group)
			clear(sum)
			for j, slot := range slots {
				for d, v := range a.KV.at(a.KV.V, slot, h/group) {
					sum[d] += float64(p[j] * float64(v))
				}
			}
			for d, v := range sum {
				head(a.Out.Row(n), h, dim)[d] = T(v)
			}
			a.LSE.Row(n)[h] = T(lse)
		}
	}
}

// Backward differentiates Forward. With dp = dout·v and δ = Σ p·dp: dv += p·dout and, for
// ds = p·(dp − δ)·slope·scale, dq += ds·k and dk += ds·q. Gradients of slots go to the rows that
// were written there: dk[rows[i]] and dv[rows[i]] sum over i in ascending order.
func (a *Attention[T]) Backward(dout, dq, dk, dv Matrix[T], rows, slots []int32) {
	byslot := map[int32]*slotGrad{}
	for n := range a.Q.Rows {
		for h := range a.Heads {
			a.backwardHead(n, h, head(dout.Row(n), h, a.KV.Dim), head(dq.Row(n), h, a.KV.Dim), byslot)
		}
	}
	width := a.KV.Heads * a.KV.Dim
	sumK, sumV := NewMatrix[float64](dk.Rows, width), NewMatrix[float64](dv.Rows, width)
	for i, n := range rows {
		if s := byslot[slots[i]]; s != nil {
			Add(rowOf(sumK, n), Matrix[float64]{Rows: 1, Cols: width, Stride: width, V: s.k})
			Add(rowOf(sumV, n), Matrix[float64]{Rows: 1, Cols: width, Stride: width, V: s.v})
		}
	}
	for n := range dk.Rows {
		for i := range width {
			dk.Row(n)[i], dv.Row(n)[i] = T(sumK.Row(n)[i]), T(sumV.Row(n)[i])
		}
	}
}

// slotGrad is the gradient of one slot's key and value rows, [G·D] each.
type slotGrad struct{ k, v []float64 }

func rowOf(m Matrix[float64], n int32) Matrix[float64] {
	return Matrix[float64]{Rows: 1, Cols: m.Cols, Stride: m.Stride, V: m.Row(int(n))}
}

func (a *Attention[T]) backwardHead(n, h int, dout, dq []T, byslot map[int32]*slotGrad) {
	dim, g := a.KV.Dim, h/(a.Heads/a.KV.Heads)
	slots, q := a.visible(n), head(a.Q.Row(n), h, dim)
	p, slope, _ := a.softmax(q, slots, g)
	dp, delta := make([]float64, len(slots)), 0.0
	for j, slot := range slots {
		dp[j] = dot(dout, a.KV.at(a.KV.V, slot, g))
		delta += float64(p[j] * dp[j])
	}
	sum := make([]float64, dim)
	for j, slot := range slots {
		grad := byslot[slot]
		if grad == nil {
			grad = &slotGrad{make([]float64, a.KV.Heads*dim), make([]float64, a.KV.Heads*dim)}
			byslot[slot] = grad
		}
		ds := p[j] * (dp[j] - delta) * slope[j] * a.Scale
		gk, gv := head(grad.k, g, dim), head(grad.v, g, dim)
		for d, k := range a.KV.at(a.KV.K, slot, g) {
			sum[d] += float64(ds * float64(k))
			gk[d] += float64(ds * float64(q[d]))
			gv[d] += float64(p[j] * float64(dout[d]))
		}
	}
	for d, v := range sum {
		dq[d] = T(v)
	}
}
