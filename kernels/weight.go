package kernels

import "graft/kernels/quant"

// Weight is a matrix [Out, In] in a backend's packed layout of a quantized (or float) format. Only
// backends look inside; everyone else carries it. A packed F32 weight may be trained in place.
type Weight struct {
	Mem    *Memory
	Off    int64 // bytes
	Bytes  int64 // as Backend.PackedBytes says
	Format quant.Format
	Out    int
	In     int
}

// Present tells whether the weight stands for any bytes at all.
func (w Weight) Present() bool { return w.Mem != nil }

// Flat views a packed F32 weight's bytes, padding included, as one [1, n] tensor: the optimizer
// and the gradient norm work on it. Padding is zero in parameters and in gradients, and stays so.
func (w Weight) Flat() Tensor {
	if w.Format != quant.F32 {
		panic("kernels: Flat of a " + w.Format.String() + " weight")
	}
	n := int(w.Bytes / 4)
	return Tensor{Mem: w.Mem, Off: w.Off, DType: F32, Rows: 1, Cols: n, Stride: n}
}

// LowRank is a LoRA pair on one Linear: y += (Scale·x·Aᵀ)·Bᵀ.
type LowRank struct {
	A     Weight  // [R, In], F32
	B     Weight  // [Out, R], F32
	Scale float32 // alpha/R, or alpha/√R
}

// Product is one matrix applied to a shared input x [N, In]: y = start + x·Wᵀ (+ LoRA), where start
// is 0, or the bias, or (Keep) what y held, plus the bias. Every output is one chain of fused
// multiply-adds in the order start, k ascending, r ascending; so its bits depend on its row alone.
type Product struct {
	Y    Tensor // [N, Out]
	W    Weight // [Out, In]
	Bias Tensor // [1, Out] or absent
	Keep bool   // residual: y starts from its old value
	LoRA *LowRank
	H    Tensor // [N, R rounded up to 16], required with LoRA: holds Scale·x·Aᵀ afterwards
}

// ProductGrad asks for the gradients of one Product. Parameter gradients accumulate (+=).
type ProductGrad struct {
	DY    Tensor // [N, Out]
	W     Weight // the forward's weight
	DW    Weight // [Out, In] F32, or absent: the base is frozen
	DBias Tensor // [1, Out], or absent
	LoRA  *LowRank
	H     Tensor // [N, R↑16]: the forward's Scale·x·Aᵀ
	DH    Tensor // [N, R↑16]: scratch, holds Scale·dy·B afterwards
	DA    Weight // [R, In] F32, or absent: the adapter is frozen
	DB    Weight // [Out, R] F32
}
