package vec

import (
	"math"
	"unsafe"
)

// LogSumExpChunkArgs describes what one run of logits adds to a log-sum-exp and
// to an entropy. With Max the largest logit (−Inf if there is none) and
// p = e^(Z−Max):
//
//	Sum  = Σ p
//	SumZ = Σ p·Z, chains of fma(p, Z, acc), a term with p = 0 being 0
//
// so that a logit of −Inf adds nothing. A NaN among the logits makes Sum NaN.
type LogSumExpChunkArgs struct {
	Z    unsafe.Pointer // [N] float32
	N    int64
	Max  float32 // results
	Sum  float32
	SumZ float32
	_    float32
}

// SoftmaxGradArgs describes the gradient at the logits Z of g·logp(target) +
// h·H, without the term of the target, which the caller adds (G·InvT). With
// lp = Z − LSE and p = e^lp:
//
//	DZ = −((p·fma(H, lp + Entropy, G))·InvT), or −0 where p is 0
type SoftmaxGradArgs struct {
	DZ, Z   unsafe.Pointer // [N] float32
	N       int64
	LSE     float32 // log-sum-exp of the whole row
	G       float32 // dL/dlogp
	H       float32 // dL/dentropy
	Entropy float32 // of the whole row
	InvT    float32 // 1/temperature
	_       float32
}

// ExpArgs describes Y = e^(X − Shift).
type ExpArgs struct {
	Y, X  unsafe.Pointer // [N] float32
	N     int64
	Shift float32
	_     float32
}

// ArgMaxArgs describes the place of the largest of X, the first of equals. NaN
// is never the largest; with nothing above −Inf, Index is 0 and Max −Inf. N is
// below 2³¹.
type ArgMaxArgs struct {
	X     unsafe.Pointer // [N] float32
	N     int64
	Index int64   // results
	Max   float32 //
	_     float32
}

// logSumExpChunkGeneric is LogSumExpChunk in Go.
func logSumExpChunkGeneric(args *LogSumExpChunkArgs) {
	z := floats(args.Z, args.N)
	var top, l, e lanes
	for i := range top {
		top[i] = float32(math.Inf(-1))
	}
	for i, v := range z {
		top[i%Lanes] = larger(v, top[i%Lanes])
	}
	args.Max = top.max()
	shift := args.Max
	if shift == float32(math.Inf(-1)) {
		shift = 0
	}
	for i, v := range z {
		p := Exp(v - shift)
		if p == 0 {
			v = 0
		}
		l[i%Lanes] += p
		e[i%Lanes] = fma32(p, v, e[i%Lanes])
	}
	args.Sum, args.SumZ = l.sum(), e.sum()
}

// softmaxGradGeneric is SoftmaxGrad in Go.
func softmaxGradGeneric(args *SoftmaxGradArgs) {
	dz, z := floats(args.DZ, args.N), floats(args.Z, args.N)
	for i := range dz {
		lp := z[i] - args.LSE
		p := Exp(lp)
		if p == 0 {
			lp = 0
		}
		dz[i] = -float32(float32(p*fma32(args.H, lp+args.Entropy, args.G)) * args.InvT)
	}
}

// expGeneric is Exp over a row in Go.
func expGeneric(args *ExpArgs) {
	y, x := floats(args.Y, args.N), floats(args.X, args.N)
	for i := range y {
		y[i] = Exp(x[i] - args.Shift)
	}
}

// argMaxGeneric is ArgMax in Go.
func argMaxGeneric(args *ArgMaxArgs) {
	args.Index, args.Max = 0, float32(math.Inf(-1))
	for i, v := range floats(args.X, args.N) {
		if v > args.Max {
			args.Index, args.Max = int64(i), v
		}
	}
}
