package vec

import "unsafe"

// The argument structs are shared with C (_src/vec.h): only pointers, int64
// and float32, no padding. Pointers need the alignment of their element only.

// GemmArgs describes a tile product: for i < M, p < P, lane < 16
//
//	C[i·CRow + p·CPanel + lane] = chain over r = 0 … K−1 of
//	    fma(A[i·ARow + r·ARed], B[p·BPanel + r·BRed + lane], acc)
//
// where acc starts at +0, or at C if Keep is 1. Strides are in elements. M, P
// and K may be zero; C overlaps neither A nor B.
type GemmArgs struct {
	A, B, C      unsafe.Pointer // float32
	ARow, ARed   int64          // strides of A between rows, and along the reduction
	BPanel, BRed int64          // strides of B between panels of 16, and along the reduction
	CRow, CPanel int64          // strides of C between rows, and between panels of 16
	M, P, K      int64          // rows, panels, length of the reduction
	Keep         int64          // 0: overwrite C; 1: continue the chain that C holds
}

// GemvArgs describes the product of one row with packed panels: for p < P and
// lane < 16, Y[16p + lane] continues the chain over k = 0 … K−1 of
//
//	fma(X[k], w(k, 16p+lane), acc)
//
// from the value that Y holds. K is a multiple of the format's block length,
// and P may be zero. Y overlaps neither X nor W.
type GemvArgs struct {
	X          unsafe.Pointer // [K] float32
	W          unsafe.Pointer // [P] panels, PanelBytes apart
	Y          unsafe.Pointer // [P, 16] float32
	K, P       int64
	PanelBytes int64 // bytes from one panel to the next
}

// GemvRowsArgs describes the product of two to four rows with packed panels: for
// i < M, p < P and lane < 16, Y[i·YRow + 16p + lane] continues the chain over
// k = 0 … K−1 of
//
//	fma(X[i·XRow + k], w(k, 16p+lane), acc)
//
// as Gemv does. M is 2, 3 or 4.
type GemvRowsArgs struct {
	X          unsafe.Pointer // [M, K] float32
	W          unsafe.Pointer // [P] panels, PanelBytes apart
	Y          unsafe.Pointer // [M, P, 16] float32
	K, P       int64
	PanelBytes int64 // bytes from one panel to the next
	M          int64
	XRow, YRow int64 // strides between rows, in elements
}

// DecodeArgs describes the decoding of part of one packed panel:
//
//	Dst[16·(k−K0) + lane] = w(k, lane) for K0 ≤ k < K0+K.
//
// K0 and K are multiples of 32 for quantized formats, also where the block is
// longer, and anything for the others.
type DecodeArgs struct {
	Dst   unsafe.Pointer // [K, 16] float32
	Panel unsafe.Pointer // one panel, from its first byte
	K0, K int64
}

// TransposeArgs describes the transposition of N tiles of 16×16: for n < N and
// i, j < 16
//
//	Dst[j·DstRow + 16n + i] = Src[(16n+i)·SrcRow + j]
//
// so that [16N, 16] rows become [16, 16N]. Strides are in elements.
type TransposeArgs struct {
	Dst, Src       unsafe.Pointer // float32, not overlapping
	DstRow, SrcRow int64
	N              int64
}
