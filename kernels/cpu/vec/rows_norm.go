package vec

import (
	"math"
	"unsafe"
)

// In the row primitives a vector of N elements starts anywhere a float32 may.
// Element i belongs to lane i mod 16; a reduction is one chain per lane in
// ascending order, then the fixed tree over the lanes. N may be zero. An output
// may be the same memory as an input, element for element, and overlaps it in
// no other way.

// SumSquaresArgs describes Sum = Σ X[i]², chains of fma(x, x, acc).
type SumSquaresArgs struct {
	X   unsafe.Pointer // [N] float32
	N   int64
	Sum float32 // result
	_   float32
}

// DotArgs describes Sum = Σ X[i]·Y[i], chains of fma(x, y, acc).
type DotArgs struct {
	X, Y unsafe.Pointer // [N] float32
	N    int64
	Sum  float32 // result
	_    float32
}

// RMSNormArgs describes Y = (X·Inv)·W with Inv = 1/√(Σ X²/N + Eps), the sum as
// SumSquares takes it.
type RMSNormArgs struct {
	Y, X unsafe.Pointer // [N] float32
	W    unsafe.Pointer // [N] float32, nil for ones
	N    int64
	Eps  float32
	Inv  float32 // result, what the backward needs
}

// RMSNormBackwardArgs describes the gradients of Y = (X·Inv)·W. With g = DY·W,
// c = Σ g·X (chains of fma(g, x, acc)) and k = ((c·Inv)·Inv)·Inv/N,
//
//	DX  = fma(−k, X, Inv·g), added to DX if Keep is 1
//	DW += DY·(X·Inv), as fma(DY, X·Inv, DW)
type RMSNormBackwardArgs struct {
	DX   unsafe.Pointer // [N] float32, may be DY
	DW   unsafe.Pointer // [N] float32, nil if not wanted
	X    unsafe.Pointer // [N] float32
	W    unsafe.Pointer // [N] float32, nil for ones
	DY   unsafe.Pointer // [N] float32
	N    int64
	Keep int64   // 0: overwrite DX; 1: add to it
	Inv  float32 // from the forward
	_    float32
}

// sumSquaresGeneric is SumSquares in Go.
func sumSquaresGeneric(args *SumSquaresArgs) {
	args.Sum = dot(floats(args.X, args.N), floats(args.X, args.N))
}

// dotGeneric is Dot in Go.
func dotGeneric(args *DotArgs) {
	args.Sum = dot(floats(args.X, args.N), floats(args.Y, args.N))
}

// rmsNormGeneric is RMSNorm in Go.
func rmsNormGeneric(args *RMSNormArgs) {
	y, x := floats(args.Y, args.N), floats(args.X, args.N)
	w := floats(args.W, args.N)
	inv := 1 / sqrt32(dot(x, x)/float32(args.N)+args.Eps)
	args.Inv = inv
	for i := range y {
		v := float32(x[i] * inv)
		if w != nil {
			v = float32(v * w[i])
		}
		y[i] = v
	}
}

// rmsNormBackwardGeneric is RMSNormBackward in Go.
func rmsNormBackwardGeneric(args *RMSNormBackwardArgs) {
	dx, dw := floats(args.DX, args.N), floats(args.DW, args.N)
	x, w, dy := floats(args.X, args.N), floats(args.W, args.N), floats(args.DY, args.N)
	inv := args.Inv
	g := func(i int) float32 {
		if w == nil {
			return dy[i]
		}
		return float32(dy[i] * w[i])
	}
	var c lanes
	for i := range x {
		c[i%Lanes] = fma32(g(i), x[i], c[i%Lanes])
	}
	k := float32(float32(float32(c.sum()*inv)*inv)*inv) / float32(args.N)
	for i := range x {
		d, gi := dy[i], g(i)
		v := fma32(-k, x[i], float32(inv*gi))
		if args.Keep == 1 {
			v = dx[i] + v
		}
		if dw != nil {
			dw[i] = fma32(d, float32(x[i]*inv), dw[i])
		}
		dx[i] = v
	}
}

// dot returns Σ x·y in lane chains.
func dot(x, y []float32) float32 {
	var acc lanes
	for i := range x {
		acc[i%Lanes] = fma32(x[i], y[i], acc[i%Lanes])
	}
	return acc.sum()
}

// sqrt32 is the correctly rounded square root: float64 has enough bits for the
// second rounding to be harmless.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// floats returns the n float32 at p, nil for nil.
func floats(p unsafe.Pointer, n int64) []float32 {
	if p == nil {
		return nil
	}
	return unsafe.Slice((*float32)(p), n)
}
