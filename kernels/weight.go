package kernels

import (
	"fmt"

	"graft/kernels/quant"
)

// Precision is a contract on the arithmetic of a forward product. Sampler and trainer keep the same
// one, so that their log-probs agree to the bit; results under one contract differ from those under
// the other as much as any quantization does.
type Precision uint8

const (
	// PrecisionF32 multiplies activations as they are: every output is one chain of fused
	// multiply-adds in float32.
	PrecisionF32 Precision = iota
	// PrecisionInt8 first rounds each row of x to quant.ActivationBlock, runs of 32 codes of eight
	// bits. The codes of x and of the weight are multiplied and summed as integers, exactly, over
	// each group of k that shares a scale in the weight (32 k, or 16 in Q6_K), and every output is
	// one chain over the groups:
	//
	//	acc = fma(Σ(code−zero)·x, d·scale, acc), and where the format has a minimum m
	//	acc = fma(m, sum, acc)
	//
	// with d and m the weight's scale and minimum of the group, d·scale rounded to float32, and scale
	// and sum those of the block. The gradient passes straight through the rounding.
	//
	// A gradient dx = dy·W multiplies bytes too: each row of dy rounded by quant.QuantizeGradients, and
	// the weights of each input by quant.WeightRun, in runs of 32 outputs from output 0 on:
	//
	//	acc = fma(Σ code·dy, scale of the run·scale of the block, acc)
	//
	// a chain over the runs, then over r. Gradients of parameters read x and dy as they are (as
	// SwitchBack does, Wortsman et al. 2023). Weights in formats without blocks, and LoRA, keep
	// PrecisionF32.
	PrecisionInt8
)

// String is the name that options and files use: "f32" or "int8".
func (p Precision) String() string {
	switch p {
	case PrecisionF32:
		return "f32"
	case PrecisionInt8:
		return "int8"
	}
	return fmt.Sprintf("Precision(%d)", uint8(p))
}

// ParsePrecision is the inverse of String; ok is false for other names.
func ParsePrecision(name string) (p Precision, ok bool) {
	switch name {
	case "f32":
		return PrecisionF32, true
	case "int8":
		return PrecisionInt8, true
	}
	return 0, false
}

// Weight is a matrix [Out, In] in a backend's packed layout of a quantized (or float) format. Only
// backends look inside; everyone else carries it. A packed F32 weight may be trained in place.
type Weight struct {
	Mem    *Memory
	Off    int64 // bytes
	Bytes  int64 // as Backend.PackedBytes says
	Format quant.Format
	Out    int
	In     int
	// Precision is the contract of products with this weight, log-probs included. Embed reads the
	// weights in float32 whatever it is.
	Precision Precision
}

// Present tells whether the weight stands for any bytes at all.
func (w Weight) Present() bool { return w.Mem != nil }

// Rounds tells whether products with this weight round x first: PrecisionInt8 on a format of blocks.
func (w Weight) Rounds() bool { return w.Precision == PrecisionInt8 && w.Format.BlockLen() > 1 }

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
