package vec

import "unsafe"

// AddArgs describes Y += X.
type AddArgs struct {
	Y, X unsafe.Pointer // [N] float32
	N    int64
}

// ScaleArgs describes Y = A·X.
type ScaleArgs struct {
	Y, X unsafe.Pointer // [N] float32
	N    int64
	A    float32
	_    float32
}

// AxpyArgs describes Y = fma(A, X, Y).
type AxpyArgs struct {
	Y, X unsafe.Pointer // [N] float32
	N    int64
	A    float32
	_    float32
}

// MulArgs describes Y = X·Z.
type MulArgs struct {
	Y, X, Z unsafe.Pointer // [N] float32
	N       int64
}

// SoftcapArgs describes Y = Cap·tanh(X/Cap), Cap > 0.
type SoftcapArgs struct {
	Y, X unsafe.Pointer // [N] float32
	N    int64
	Cap  float32
	_    float32
}

// SoftcapBackwardArgs describes the gradient of Y = Cap·tanh(X/Cap) in terms of
// Y: DX = DY·fma(−t, t, 1) with t = Y/Cap.
type SoftcapBackwardArgs struct {
	DX, Y, DY unsafe.Pointer // [N] float32
	N         int64
	Cap       float32
	_         float32
}

// AdamWArgs describes one step of AdamW (Loshchilov and Hutter, 2017) as
// PyTorch takes it, over N parameters. The caller computes the scalars in
// float64 and rounds them once. With g = GradScale·G:
//
//	p = P·Decay
//	M = fma(Beta1, M, (1−Beta1)·g)
//	V = fma(Beta2, V, (1−Beta2)·(g·g))
//	P = fma(−Step, M/(√V/RootBias2 + Eps), p)
type AdamWArgs struct {
	P, M, V      unsafe.Pointer // [N] float32, updated
	G            unsafe.Pointer // [N] float32
	N            int64
	GradScale    float32 // what clipping multiplies gradients by
	Decay        float32 // 1 − lr·weight decay
	Beta1, Rest1 float32 // β₁ and 1−β₁
	Beta2, Rest2 float32 // β₂ and 1−β₂
	RootBias2    float32 // √(1 − β₂^t)
	Step         float32 // lr/(1 − β₁^t)
	Eps          float32
	_            float32
}

// addGeneric is Add in Go.
func addGeneric(args *AddArgs) {
	y, x := floats(args.Y, args.N), floats(args.X, args.N)
	for i := range y {
		y[i] += x[i]
	}
}

// scaleGeneric is Scale in Go.
func scaleGeneric(args *ScaleArgs) {
	y, x := floats(args.Y, args.N), floats(args.X, args.N)
	for i := range y {
		y[i] = float32(args.A * x[i])
	}
}

// axpyGeneric is Axpy in Go.
func axpyGeneric(args *AxpyArgs) {
	y, x := floats(args.Y, args.N), floats(args.X, args.N)
	for i := range y {
		y[i] = fma32(args.A, x[i], y[i])
	}
}

// mulGeneric is Mul in Go.
func mulGeneric(args *MulArgs) {
	y, x, z := floats(args.Y, args.N), floats(args.X, args.N), floats(args.Z, args.N)
	for i := range y {
		y[i] = float32(x[i] * z[i])
	}
}

// softcapGeneric is Softcap in Go.
func softcapGeneric(args *SoftcapArgs) {
	y, x := floats(args.Y, args.N), floats(args.X, args.N)
	for i := range y {
		y[i] = softcap(x[i], args.Cap)
	}
}

// softcapBackwardGeneric is SoftcapBackward in Go.
func softcapBackwardGeneric(args *SoftcapBackwardArgs) {
	dx, y, dy := floats(args.DX, args.N), floats(args.Y, args.N), floats(args.DY, args.N)
	for i := range dx {
		t := y[i] / args.Cap
		dx[i] = float32(dy[i] * fma32(-t, t, 1))
	}
}

// adamWGeneric is AdamW in Go.
func adamWGeneric(args *AdamWArgs) {
	p, m, v := floats(args.P, args.N), floats(args.M, args.N), floats(args.V, args.N)
	for i, g := range floats(args.G, args.N) {
		g = float32(args.GradScale * g)
		m[i] = fma32(args.Beta1, m[i], float32(args.Rest1*g))
		v[i] = fma32(args.Beta2, v[i], float32(args.Rest2*float32(g*g)))
		denom := sqrt32(v[i])/args.RootBias2 + args.Eps
		p[i] = fma32(-args.Step, m[i]/denom, float32(p[i]*args.Decay))
	}
}
