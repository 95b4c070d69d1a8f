package model

import (
	"graft/kernels"
)

// Backward turns dHidden [N, C], the gradient at Forward's result, into parameter gradients, which
// accumulate. It must follow the Forward of the same batch and acts, before the pages change.
func (m *Model) Backward(b *Batch, pages *Pages, a *Acts, dHidden kernels.Tensor) {
	if a.Keep == KeepNone {
		panic("model: Backward with activations that keep nothing")
	}
	n, be := b.N(), m.Backend()
	dx := rowsOf(a.dx, n)
	// final = norm(x[L])
	be.RMSNormBackward(dx, m.Final.DW, dHidden, rowsOf(a.x[len(m.Layers)], n), m.Final.W, rowsOf(a.endInv, n), false)
	for i := len(m.Layers) - 1; i >= 0; i-- {
		if a.Keep == KeepInputs && i < len(m.Layers)-1 {
			m.layerForward(i, b, pages, a) // the last layer's activations are still there
		}
		m.feedForwardBackward(i, b, a, dx)
		m.attentionBackward(i, b, pages, a, dx, i > 0 || m.Embed.DW.Present())
	}
	if m.Embed.DW.Present() {
		be.EmbedBackward(m.Embed.DW, dx, b.Tokens, m.Config.EmbedScale)
	}
}

// feedForwardBackward: on entry dx is the gradient at the layer's output, on return that at mid.
//
//	next = mid + down(act(gate(f))·up(f)), f = norm(mid)
func (m *Model) feedForwardBackward(i int, b *Batch, a *Acts, dx kernels.Tensor) {
	n, be, c, l := b.N(), m.Backend(), &m.Config, &m.Layers[i]
	la := a.layers[i].rows(n)
	normed, act := rowsOf(a.normed, n), rowsOf(a.act, n)
	dnormed, dact, dgateUp := rowsOf(a.dnormed, n), rowsOf(a.dact, n), rowsOf(a.dgateUp, n)
	gate, up := la.gateUp.Columns(0, c.FF), la.gateUp.Columns(c.FF, 2*c.FF)

	dout := dx
	if c.PostNorm {
		dout = dnormed
		be.RMSNormBackward(dout, l.PostFFNorm.DW, dx, la.ffOut, l.PostFFNorm.W, la.endInv, false)
	}
	be.GLU(act, gate, up, c.Act) // recomputed: cheaper than kept
	a.grads[0] = l.Down.Grad(dout, b.Adapter, la.h[hDown], rowsOf(a.dh[0], n))
	be.MatMulBackward(dact, act, a.grads[:1], false)
	dgate, dup := dgateUp.Columns(0, c.FF), dgateUp.Columns(c.FF, 2*c.FF)
	be.GLUBackward(dgate, dup, dact, gate, up, c.Act)

	be.RMSNorm(normed, la.ffInv, la.mid, l.FFNorm.W, c.Eps, false)
	grads := a.grads[:1]
	if l.GateUp != nil {
		grads[0] = l.GateUp.Grad(dgateUp, b.Adapter, la.h[hGate], rowsOf(a.dh[0], n))
	} else {
		grads = a.grads[:2]
		grads[0] = l.Gate.Grad(dgate, b.Adapter, la.h[hGate], rowsOf(a.dh[0], n))
		grads[1] = l.Up.Grad(dup, b.Adapter, la.h[hUp], rowsOf(a.dh[1], n))
	}
	be.MatMulBackward(dnormed, normed, grads, false)
	be.RMSNormBackward(dx, l.FFNorm.DW, dnormed, la.mid, l.FFNorm.W, la.ffInv, true)
}

// attentionBackward: on entry dx is the gradient at mid, on return that at the layer's input
// (needDX) or nothing useful.
//
//	mid = x + o(attention(rope(q(a)), rope(k(a)), v(a))), a = norm(x)
func (m *Model) attentionBackward(i int, b *Batch, pages *Pages, a *Acts, dx kernels.Tensor, needDX bool) {
	n, be, c, l := b.N(), m.Backend(), &m.Config, &m.Layers[i]
	la := a.layers[i].rows(n)
	x, normed, dnormed := rowsOf(a.x[i], n), rowsOf(a.normed, n), rowsOf(a.dnormed, n)
	datt, dqkv := rowsOf(a.datt, n), rowsOf(a.dqkv, n)

	dout := dx
	if c.PostNorm {
		dout = dnormed
		be.RMSNormBackward(dout, l.PostAttnNorm.DW, dx, la.attOut, l.PostAttnNorm.W, la.postInv, false)
	}
	a.grads[0] = l.O.Grad(dout, b.Adapter, la.h[hO], rowsOf(a.dh[0], n))
	be.MatMulBackward(datt, la.att, a.grads[:1], false)

	q, _, _ := splitQKV(la.qkv, c)
	dq, dk, dv := splitQKV(dqkv, c)
	if c.QKNorm {
		dqk := rowsOf(a.dqk, n)
		q = la.qk.Columns(0, c.QDim())
		dq, dk = dqk.Columns(0, c.QDim()), dqk.Columns(c.QDim(), dqk.Cols)
	}
	a.attn = m.attention(l, b, pages.Layers[i], q, &la)
	a.attnGrad = kernels.AttentionGrad{DOut: datt, DQ: dq, DK: dk, DV: dv, Rows: b.Rows, Slots: b.Slots, Scratch: a.scratch}
	be.AttentionBackward(&a.attn, &a.attnGrad)
	m.rotateBackward(l, b, a, &la, dq, dk)

	be.RMSNorm(normed, la.attnInv, x, l.AttnNorm.W, c.Eps, false)
	grads := a.grads[:1]
	if l.QKV != nil {
		grads[0] = l.QKV.Grad(dqkv, b.Adapter, la.h[hQ], rowsOf(a.dh[0], n))
	} else {
		dq, dk, dv = splitQKV(dqkv, c)
		grads = a.grads[:3]
		grads[0] = l.Q.Grad(dq, b.Adapter, la.h[hQ], rowsOf(a.dh[0], n))
		grads[1] = l.K.Grad(dk, b.Adapter, la.h[hK], rowsOf(a.dh[1], n))
		grads[2] = l.V.Grad(dv, b.Adapter, la.h[hV], rowsOf(a.dh[2], n))
	}
	if !needDX && !l.AttnNorm.DW.Present() {
		be.MatMulBackward(kernels.Tensor{}, normed, grads, false)
		return
	}
	be.MatMulBackward(dnormed, normed, grads, false)
	be.RMSNormBackward(dx, l.AttnNorm.DW, dnormed, x, l.AttnNorm.W, la.attnInv, true)
}

// rotateBackward undoes rotate: the inverse rotation, then the heads' norms into dqkv.
func (m *Model) rotateBackward(l *Layer, b *Batch, a *Acts, la *layerActs, dq, dk kernels.Tensor) {
	be, c := m.Backend(), &m.Config
	if l.Kind.Rope >= 0 {
		be.RoPE(dq, m.Ropes[l.Kind.Rope], b.Positions, true)
		be.RoPE(dk, m.Ropes[l.Kind.Rope], b.Positions, true)
	}
	if c.QKNorm {
		q, k, _ := splitQKV(la.qkv, c)
		dqPre, dkPre, _ := splitQKV(rowsOf(a.dqkv, b.N()), c)
		be.RMSNormBackward(dqPre, l.QNorm.DW, dq, q, l.QNorm.W, la.qInv, false)
		be.RMSNormBackward(dkPre, l.KNorm.DW, dk, k, l.KNorm.W, la.kInv, false)
	}
}
