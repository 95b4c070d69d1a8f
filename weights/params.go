package weights

import "graft/kernels"

// Param is one trained piece of memory and its gradient, as flat float32: an optimizer sees only
// these.
type Param struct {
	Name  string
	Value kernels.Tensor // [1, n]
	Grad  kernels.Tensor // [1, n]
	Decay bool           // weight decay applies: matrices and embeddings, not norms or biases
}

// Trained lists what an optimizer moves: one span, decayed as PEFT's matrices are.
func (ad *Adapter) Trained() []Param {
	if ad.grads == nil {
		return nil
	}
	return []Param{{Name: "adapter", Value: ad.Params(), Grad: ad.Grads(), Decay: true}}
}
