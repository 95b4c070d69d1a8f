package vec

import "unsafe"

// Gemm8Args describes the product, under the int8 contract, of rows of rounded
// activations with packed panels of a format that has blocks: for i < M, p < P
// and lane < 16, Y[i·YRow + 16p + lane] continues the chain over the groups of k
// that share a scale,
//
//	acc = fma(Σ(code−zero)·x, d·scale, acc), then, where the format has a minimum m,
//	acc = fma(m, sum, acc),
//
// from the value that Y holds, as kernels.PrecisionInt8 says. K is a multiple of
// the format's block length; M and P may be zero.
type Gemm8Args struct {
	X          unsafe.Pointer // [M, K/32] quant.ActivationBlock
	W          unsafe.Pointer // [P] panels, PanelBytes apart
	Y          unsafe.Pointer // [M, P, 16] float32
	K, P       int64
	PanelBytes int64 // bytes from one panel to the next
	M          int64
	XRow       int64 // bytes from one row of blocks to the next
	YRow       int64 // elements from one row of Y to the next
}

// Quantize8Args describes the rounding of N activations, a multiple of 32, to
// blocks: quant.QuantizeActivations.
type Quantize8Args struct {
	X unsafe.Pointer // [N] float32
	Q unsafe.Pointer // [N/32] quant.ActivationBlock
	N int64
}
