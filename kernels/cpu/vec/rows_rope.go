package vec

import "unsafe"

// RoPEArgs describes the rotary embedding (Su et al., arXiv 2104.09864) of
// Heads vectors of one position. The first R elements are rotated in pairs,
// (2i, 2i+1) or, if NeoX is 1, (i, i+R/2); the others are copied. For a pair
// (x0, x1) and s = Sin[i], negated if Inverse is 1,
//
//	y0 = fma(x0, Cos[i], −(x1·s))
//	y1 = fma(x0, s, x1·Cos[i])
//
// The inverse is the backward. Y may be X.
type RoPEArgs struct {
	Y, X       unsafe.Pointer // [Heads, D] float32, rows YRow and XRow apart
	Cos, Sin   unsafe.Pointer // [R/2] float32
	D, R       int64          // R is even and at most D
	Heads      int64
	YRow, XRow int64 // elements
	NeoX       int64 // 0: pairs (2i, 2i+1); 1: pairs (i, i+R/2)
	Inverse    int64 // 1: rotate back
}

// ropeGeneric is RoPE in Go.
func ropeGeneric(args *RoPEArgs) {
	half := args.R / 2
	cos, sin := floats(args.Cos, half), floats(args.Sin, half)
	for h := int64(0); h < args.Heads; h++ {
		y := floats(unsafe.Add(args.Y, 4*h*args.YRow), args.D)
		x := floats(unsafe.Add(args.X, 4*h*args.XRow), args.D)
		for i := int64(0); i < half; i++ {
			a, b := 2*i, 2*i+1
			if args.NeoX == 1 {
				a, b = i, i+half
			}
			c, s := cos[i], sin[i]
			if args.Inverse == 1 {
				s = -s
			}
			x0, x1 := x[a], x[b]
			y[a] = fma32(x0, c, -float32(x1*s))
			y[b] = fma32(x0, s, float32(x1*c))
		}
		copy(y[args.R:], x[args.R:])
	}
}
