package weights

import "graft/kernels"

// Linear is one matrix of the model with its bias. Nobody above knows its format. Site is its
// number among the model's linears: adapters are indexed by it.
type Linear struct {
	Name string // checkpoint name of the module: "model.layers.0.self_attn.q_proj"
	GGUF string // the same in GGUF: "blk.0.attn_q"
	Site int
	// HeadDim is not 0 when the rows are query or key heads that this model's file holds in paired
	// order (2i, 2i+1) while checkpoints, and so adapters, hold them in halves (i, i+HeadDim/2).
	HeadDim int
	W       kernels.Weight // [Out, In]
	Bias    kernels.Tensor // [1, Out], or absent

	// Gradients, present when the base itself is trained.
	DW    kernels.Weight
	DBias kernels.Tensor
}

// Product is y = x·Wᵀ with this linear's bias and, unless ad is nil or skips this site, its LoRA
// pair. h is where the low-rank product is kept.
func (l *Linear) Product(y kernels.Tensor, ad *Adapter, h kernels.Tensor, keep bool) kernels.Product {
	p := kernels.Product{Y: y, W: l.W, Bias: l.Bias, Keep: keep}
	if pair := ad.Pair(l.Site); pair != nil {
		p.LoRA = &pair.LowRank
		p.H = h.Columns(0, pair.Cols())
	}
	return p
}

// Grad asks for the gradients of Product.
func (l *Linear) Grad(dy kernels.Tensor, ad *Adapter, h, dh kernels.Tensor) kernels.ProductGrad {
	g := kernels.ProductGrad{DY: dy, W: l.W, DW: l.DW, DBias: l.DBias}
	if pair := ad.Pair(l.Site); pair != nil {
		g.LoRA = &pair.LowRank
		g.H = h.Columns(0, pair.Cols())
		g.DH = dh.Columns(0, pair.Cols())
		g.DA, g.DB = pair.DA, pair.DB
	}
	return g
}

// Norm is a normalisation's weight, with its gradient when the base is trained.
type Norm struct {
	Name string         // checkpoint name: "model.norm.weight"
	W    kernels.Tensor // [1, C]
	DW   kernels.Tensor // [1, C], or absent
}
