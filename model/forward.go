package model

import (
	"fmt"

	"graft/kernels"
	"graft/weights"
)

// Pages is the memory of keys and values: one KV a layer, all with the same page ids. Which page
// belongs to whom is infer/paged's business.
type Pages struct {
	Layers []kernels.KV
	Count  int
	mem    *kernels.Memory
}

// PageBytes is the size of one page over all layers.
func PageBytes(c *Config) int64 {
	return int64(c.NumLayers) * 2 * int64(c.KVDim()) * kernels.PageSize * 4
}

// NewPages allocates count pages for every layer.
func NewPages(arena *weights.Arena, c *Config, count int) (*Pages, error) {
	mem, err := arena.Alloc("pages", int64(count)*PageBytes(c))
	if err != nil {
		return nil, err
	}
	p := &Pages{Layers: make([]kernels.KV, c.NumLayers), Count: count, mem: mem}
	cols := c.KVDim() * kernels.PageSize
	var off int64
	cut := func() kernels.Tensor {
		t := kernels.Tensor{Mem: mem, Off: off, DType: kernels.F32, Rows: count, Cols: cols, Stride: cols}
		off += int64(count) * int64(cols) * 4
		return t
	}
	for i := range p.Layers {
		p.Layers[i] = kernels.KV{K: cut(), V: cut(), Heads: c.KVHeads, Dim: c.HeadDim}
	}
	return p, nil
}

// Free returns the pages' memory.
func (p *Pages) Free(arena *weights.Arena) { arena.Free(p.mem) }

// Forward computes a batch and returns the final, normalised hidden states [N, C]; they stay valid
// until the next Forward with the same Acts. Keys and values go to the batch's pages. Sampling and
// training run these same lines: acts differ only in what they keep.
func (m *Model) Forward(b *Batch, pages *Pages, a *Acts) kernels.Tensor {
	n := b.N()
	if n > a.Rows {
		panic(fmt.Sprintf("model: Forward of %d rows with activations for %d", n, a.Rows))
	}
	be := m.Backend()
	be.Embed(rowsOf(a.x[0], n), m.Embed.W, b.Tokens, m.Config.EmbedScale)
	for i := range m.Layers {
		m.layerForward(i, b, pages, a)
	}
	final := rowsOf(a.final, n)
	be.RMSNorm(final, rowsOf(a.endInv, n), rowsOf(a.x[len(m.Layers)], n), m.Final.W, m.Config.Eps, false)
	return final
}

// layerForward: x → mid = x + attention(norm(x)) → next = mid + feedforward(norm(mid)).
func (m *Model) layerForward(i int, b *Batch, pages *Pages, a *Acts) {
	n, be, c, l := b.N(), m.Backend(), &m.Config, &m.Layers[i]
	la := a.layers[i].rows(n)
	x, next, normed := rowsOf(a.x[i], n), rowsOf(a.x[i+1], n), rowsOf(a.normed, n)

	be.RMSNorm(normed, la.attnInv, x, l.AttnNorm.W, c.Eps, false)
	be.MatMul(normed, a.qkvProducts(l, c, b.Adapter, &la))
	q, k, v := m.rotate(l, b, &la)
	be.WriteKV(pages.Layers[i], k, v, b.Rows, b.Slots)
	a.attn = m.attention(l, b, pages.Layers[i], q, &la)
	be.Attention(&a.attn)
	if c.PostNorm {
		a.products[0] = l.O.Product(la.attOut, b.Adapter, la.h[hO], false)
	} else {
		copyUnlessSame(be, la.mid, x)
		a.products[0] = l.O.Product(la.mid, b.Adapter, la.h[hO], true)
	}
	be.MatMul(la.att, a.products[:1])
	if c.PostNorm {
		copyUnlessSame(be, la.mid, x)
		be.RMSNorm(la.mid, la.postInv, la.attOut, l.PostAttnNorm.W, c.Eps, true)
	}

	be.RMSNorm(normed, la.ffInv, la.mid, l.FFNorm.W, c.Eps, false)
	be.MatMul(normed, a.gateUpProducts(l, c, b.Adapter, &la))
	act := rowsOf(a.act, n)
	be.GLU(act, la.gateUp.Columns(0, c.FF), la.gateUp.Columns(c.FF, 2*c.FF), c.Act)
	if c.PostNorm {
		a.products[0] = l.Down.Product(la.ffOut, b.Adapter, la.h[hDown], false)
	} else {
		copyUnlessSame(be, next, la.mid)
		a.products[0] = l.Down.Product(next, b.Adapter, la.h[hDown], true)
	}
	be.MatMul(act, a.products[:1])
	if c.PostNorm {
		copyUnlessSame(be, next, la.mid)
		be.RMSNorm(next, la.endInv, la.ffOut, l.PostFFNorm.W, c.Eps, true)
	}
}

func (a *Acts) qkvProducts(l *Layer, c *Config, ad *weights.Adapter, la *layerActs) []kernels.Product {
	if l.QKV != nil {
		a.products[0] = l.QKV.Product(la.qkv, ad, la.h[hQ], false)
		return a.products[:1]
	}
	q, k, v := splitQKV(la.qkv, c)
	a.products[0] = l.Q.Product(q, ad, la.h[hQ], false)
	a.products[1] = l.K.Product(k, ad, la.h[hK], false)
	a.products[2] = l.V.Product(v, ad, la.h[hV], false)
	return a.products[:3]
}

func (a *Acts) gateUpProducts(l *Layer, c *Config, ad *weights.Adapter, la *layerActs) []kernels.Product {
	if l.GateUp != nil {
		a.products[0] = l.GateUp.Product(la.gateUp, ad, la.h[hGate], false)
		return a.products[:1]
	}
	a.products[0] = l.Gate.Product(la.gateUp.Columns(0, c.FF), ad, la.h[hGate], false)
	a.products[1] = l.Up.Product(la.gateUp.Columns(c.FF, 2*c.FF), ad, la.h[hUp], false)
	return a.products[:2]
}

func splitQKV(t kernels.Tensor, c *Config) (q, k, v kernels.Tensor) {
	return t.Columns(0, c.QDim()), t.Columns(c.QDim(), c.QDim()+c.KVDim()), t.Columns(c.QDim()+c.KVDim(), t.Cols)
}

// rotate applies the heads' norms and RoPE and returns q, k, v as attention wants them.
func (m *Model) rotate(l *Layer, b *Batch, la *layerActs) (q, k, v kernels.Tensor) {
	be, c := m.Backend(), &m.Config
	q, k, v = splitQKV(la.qkv, c)
	if c.QKNorm {
		qn, kn := la.qk.Columns(0, c.QDim()), la.qk.Columns(c.QDim(), la.qk.Cols)
		be.RMSNorm(qn, la.qInv, q, l.QNorm.W, c.Eps, false)
		be.RMSNorm(kn, la.kInv, k, l.KNorm.W, c.Eps, false)
		q, k = qn, kn
	}
	if l.Kind.Rope >= 0 {
		be.RoPE(q, m.Ropes[l.Kind.Rope], b.Positions, false)
		be.RoPE(k, m.Ropes[l.Kind.Rope], b.Positions, false)
	}
	return q, k, v
}

func (m *Model) attention(l *Layer, b *Batch, kv kernels.KV, q kernels.Tensor, la *layerActs) kernels.AttentionArgs {
	return kernels.AttentionArgs{
		Out: la.att, LSE: la.lse, Q: q, KV: kv, Tables: b.Tables, Seq: b.Seq, Positions: b.Positions,
		Heads: m.Config.Heads, Scale: m.Config.AttnScale, Window: l.Kind.Window, Softcap: m.Config.AttnSoftcap,
	}
}

// copyUnlessSame copies the residual into its next buffer; while sampling both are the same.
func copyUnlessSame(be kernels.Backend, dst, src kernels.Tensor) {
	if dst.Mem != src.Mem || dst.Off != src.Off {
		be.Copy(dst, src)
	}
}
