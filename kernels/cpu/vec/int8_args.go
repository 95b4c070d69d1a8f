package vec

import (
	"unsafe"

	"graft/kernels/quant"
)

// Gemm8Args describes the product, under the int8 contract, of rows of rounded
// activations with packed panels of a format that has blocks: for i < M, p < P
// and lane < 16, Y[i·YRow + 16p + lane] continues the chain over the groups of k
// that share a scale,
//
//	acc = fma(Σ(code−zero)·x, d·scale, acc), then, where the format has a minimum m,
//	acc = fma(m, sum, acc),
//
// from the value that Y holds, or from zero unless Keep, as kernels.PrecisionInt8 says. K is a multiple of
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
	Keep       int64
}

// Quantize8Args describes the rounding of N activations, a multiple of 32, to
// blocks: quant.QuantizeActivations, or quant.QuantizeGradients.
type Quantize8Args struct {
	X       unsafe.Pointer // [N] float32
	Q       unsafe.Pointer // [N/32] quant.ActivationBlock
	N       int64
	Largest float32 // code: quant.ActivationTop or quant.GradientTop
}

// TurnedBytes is the size of 32 weights of 16 lanes that Turn8 has rounded: 16
// scales in float32, then the codes plus 64, those of four rows side by side in
// a lane.
const TurnedBytes = 4*Lanes + Lanes*quant.WeightRunLen

// Turn8Args describes the rounding of N runs of 32 rows of 16 weights to
// quant.WeightRun, a run for each lane. Rows here are the outputs that a
// gradient is summed over; lanes are inputs.
type Turn8Args struct {
	W     unsafe.Pointer // [32N, 16] float32
	Panel unsafe.Pointer // [N] blocks of TurnedBytes
	Row   int64          // elements from one row of W to the next
	N     int64
}
