package model

import (
	"fmt"

	"graft/kernels"
	"graft/weights"
)

// Keep says which activations of a forward survive it.
type Keep uint8

const (
	// KeepNone: one set of buffers, reused by every layer and overwritten in place: sampling,
	// scoring, the reference policy.
	KeepNone Keep = iota
	// KeepAll: every layer's activations; the backward recomputes only cheap ones.
	KeepAll
	// KeepInputs: each layer's input only; the backward runs each layer's forward again.
	KeepInputs
)

func (k Keep) String() string {
	return [...]string{"none", "all", "inputs"}[k]
}

// layerActs are the activations of one layer that its backward reads.
type layerActs struct {
	attnInv kernels.Tensor    // [N, 1]
	qkv     kernels.Tensor    // [N, (H+2G)·D]; q and k after RoPE, or before their norms
	qk      kernels.Tensor    // [N, (H+G)·D] after norms and RoPE; absent without QKNorm
	qInv    kernels.Tensor    // [N, H]
	kInv    kernels.Tensor    // [N, G]
	att     kernels.Tensor    // [N, H·D]
	lse     kernels.Tensor    // [N, H]
	attOut  kernels.Tensor    // [N, C]; PostNorm only
	postInv kernels.Tensor    // [N, 1]
	mid     kernels.Tensor    // [N, C]: after attention
	ffInv   kernels.Tensor    // [N, 1]
	gateUp  kernels.Tensor    // [N, 2F]
	ffOut   kernels.Tensor    // [N, C]; PostNorm only
	endInv  kernels.Tensor    // [N, 1]
	h       [7]kernels.Tensor // [N, R↑16]: low-rank products of q k v o gate up down (fused: q, gate)
}

// Places of the linears of a layer in layerActs.h.
const (
	hQ = iota
	hK
	hV
	hO
	hGate
	hUp
	hDown
)

// Acts is where a forward computes, and what a backward finds there. One forward at a time.
type Acts struct {
	Rows int // capacity
	Keep Keep

	mem    *kernels.Memory
	arena  *weights.Arena
	x      []kernels.Tensor // input of each layer and, last, the output: [N, C]
	layers []layerActs
	normed kernels.Tensor // [N, C]
	act    kernels.Tensor // [N, F]
	final  kernels.Tensor // [N, C]
	endInv kernels.Tensor // [N, 1]

	// The backward's own.
	dx      kernels.Tensor    // [N, C]
	dnormed kernels.Tensor    // [N, C]
	dqkv    kernels.Tensor    // [N, (H+2G)·D]
	dqk     kernels.Tensor    // [N, (H+G)·D]; QKNorm only
	datt    kernels.Tensor    // [N, H·D]
	dgateUp kernels.Tensor    // [N, 2F]
	dact    kernels.Tensor    // [N, F]
	dh      [3]kernels.Tensor // [N, R↑16]
	scratch kernels.Tensor    // attention backward

	products [3]kernels.Product
	grads    [3]kernels.ProductGrad
	attn     kernels.AttentionArgs
	attnGrad kernels.AttentionGrad
}

// ActsSize says what Acts must hold.
type ActsSize struct {
	Rows     int // tokens of one forward
	Pages    int // distinct pages that a trained batch may touch
	RankCols int // weights.Adapter.MaxCols, 0 without adapters
	Keep     Keep
}

// ActsBytes is what NewActs will allocate: the plan's figure.
func ActsBytes(c *Config, s ActsSize) int64 {
	var a Acts
	count := weights.NewCarver(nil)
	a.layout(count, c, s)
	return count.Bytes()
}

// NewActs allocates the buffers in one span.
func NewActs(arena *weights.Arena, c *Config, s ActsSize) (*Acts, error) {
	if s.Rows < 1 {
		return nil, fmt.Errorf("model: activations for %d rows", s.Rows)
	}
	name := "activations"
	if s.Keep == KeepNone {
		name = "scratch"
	}
	mem, err := arena.Alloc(name, ActsBytes(c, s))
	if err != nil {
		return nil, err
	}
	a := &Acts{Rows: s.Rows, Keep: s.Keep, mem: mem, arena: arena}
	a.layout(weights.NewCarver(mem), c, s)
	return a, nil
}

// Free returns the buffers.
func (a *Acts) Free() {
	a.arena.Free(a.mem)
	a.mem = nil
}

func (a *Acts) layout(cut *weights.Carver, c *Config, s ActsSize) {
	n := s.Rows
	f32 := func(cols int) kernels.Tensor { return cut.Rows(n, cols) }
	sets := 1
	if s.Keep == KeepAll {
		sets = c.NumLayers
	}
	a.x = make([]kernels.Tensor, c.NumLayers+1)
	for i := range a.x {
		if i > 0 && s.Keep == KeepNone {
			a.x[i] = a.x[0]
		} else {
			a.x[i] = f32(c.Dim)
		}
	}
	a.layers = make([]layerActs, c.NumLayers)
	for i := range a.layers {
		if i < sets {
			a.layers[i].layout(f32, c, s, a.x[0])
		} else {
			a.layers[i] = a.layers[0]
		}
	}
	a.normed, a.act = f32(c.Dim), f32(c.FF)
	a.final, a.endInv = f32(c.Dim), f32(1)
	if s.Keep == KeepNone {
		return
	}
	a.dx, a.dnormed = f32(c.Dim), f32(c.Dim)
	a.dqkv, a.datt = f32(c.QDim()+2*c.KVDim()), f32(c.QDim())
	if c.QKNorm {
		a.dqk = f32(c.QDim() + c.KVDim())
	}
	a.dgateUp, a.dact = f32(2*c.FF), f32(c.FF)
	for i := range a.dh {
		if s.RankCols > 0 {
			a.dh[i] = f32(s.RankCols)
		}
	}
	a.scratch = cut.Tensor(kernels.F32, 1, kernels.AttentionScratch(n, s.Pages, c.Heads, c.KVHeads, c.HeadDim))
}

func (l *layerActs) layout(f32 func(int) kernels.Tensor, c *Config, s ActsSize, x kernels.Tensor) {
	l.attnInv, l.ffInv = f32(1), f32(1)
	l.qkv = f32(c.QDim() + 2*c.KVDim())
	if c.QKNorm {
		l.qk, l.qInv, l.kInv = f32(c.QDim()+c.KVDim()), f32(c.Heads), f32(c.KVHeads)
	}
	l.att, l.lse = f32(c.QDim()), f32(c.Heads)
	l.mid = x
	if s.Keep != KeepNone {
		l.mid = f32(c.Dim)
	}
	l.gateUp = f32(2 * c.FF)
	if c.PostNorm {
		l.attOut, l.postInv, l.ffOut, l.endInv = f32(c.Dim), f32(1), f32(c.Dim), f32(1)
	}
	for i := range l.h {
		if s.RankCols > 0 {
			l.h[i] = f32(s.RankCols)
		}
	}
}

// rows returns the layer's buffers cut to n rows.
func (l layerActs) rows(n int) layerActs {
	for _, t := range []*kernels.Tensor{&l.attnInv, &l.qkv, &l.qk, &l.qInv, &l.kInv, &l.att, &l.lse, &l.attOut,
		&l.postInv, &l.mid, &l.ffInv, &l.gateUp, &l.ffOut, &l.endInv} {
		cutRows(t, n)
	}
	for i := range l.h {
		cutRows(&l.h[i], n)
	}
	return l
}

func cutRows(t *kernels.Tensor, n int) {
	if t.Present() {
		t.Rows = n
	}
}

func rowsOf(t kernels.Tensor, n int) kernels.Tensor {
	cutRows(&t, n)
	return t
}
