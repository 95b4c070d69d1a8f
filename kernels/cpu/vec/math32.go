package vec

import "math"

// The float32 functions below are ours and not the platform's: the same
// operations in the same order in Go and in C (_src/math.h), so that the same
// argument gives the same bits everywhere. Products that are rounded before
// they are added are written float32(x*y). What a NaN carries is not fixed.

const (
	log2e     = 0x1.715476p+0 // 1/ln 2
	ln2Hi     = 0x1.62e4p-1   // ln 2 in 16 bits, so that n·ln2Hi is exact
	ln2Lo     = 0x1.7f7d1cp-20
	roundBias = 0x1.8p+23 // adding it leaves an integer in the low bits
	expLow    = -104      // e^x is below half the least subnormal
	expHigh   = 89        // e^x is above the largest float32

	// Minimax for e^x on ±ln 2/2, relative error 2^-28.
	expC2 = 0x1.fffffcp-2
	expC3 = 0x1.555492p-3
	expC4 = 0x1.5558f4p-5
	expC5 = 0x1.123a2p-7
	expC6 = 0x1.6a23c8p-10

	// Minimax for (log(1+f) − f + f²/2)/f³ on [√½−1, √2−1], relative error of
	// the logarithm 2^-27.
	logC3    = 0x1.55554ap-2
	logC4    = -0x1.000216p-2
	logC5    = 0x1.99a592p-3
	logC6    = -0x1.547abcp-3
	logC7    = 0x1.226f6cp-3
	logC8    = -0x1.0cce2ap-3
	logC9    = 0x1.07c47ep-3
	logC10   = -0x1.422d3ep-4
	logLn2Hi = 0x1.62ep-1 // ln 2 in 12 bits
	logLn2Lo = 0x1.0bfbe8p-15

	// Minimax for (tanh x − x)/x³ in x² up to 0.625, relative error of tanh 2^-27.
	tanhC3    = -0x1.555534p-2
	tanhC5    = 0x1.11078ap-3
	tanhC7    = -0x1.b84fp-5
	tanhC9    = 0x1.52b91ep-6
	tanhC11   = -0x1.78b57cp-8
	tanhSmall = 0.625

	geluCube  = 0.044715           // Hendrycks and Gimpel, arXiv 1606.08415
	geluScale = 1.5957691216057308 // 2·√(2/π)
)

// Exp returns e^x, within 0.9 ulp, also where the result is subnormal. It is 0
// for x ≤ −104 and +Inf for x > 88.73.
func Exp(x float32) float32 {
	if expLow > x {
		x = expLow
	}
	if expHigh < x {
		x = expHigh
	}
	t := fma32(x, log2e, roundBias)
	n := t - roundBias // x/ln 2 to the nearest integer, which t has in its low bits
	r := fma32(-n, ln2Hi, x)
	r = fma32(-n, ln2Lo, r)
	p := fma32(expC6, r, expC5)
	p = fma32(p, r, expC4)
	p = fma32(p, r, expC3)
	p = fma32(p, r, expC2)
	p = fma32(p, r, 1)
	p = fma32(p, r, 1)
	// 2^n in two factors: the first leaves p normal, so only the last rounds.
	i := int32(math.Float32bits(t)) - int32(math.Float32bits(roundBias))
	half := i >> 1
	p = p * math.Float32frombits(uint32(half+127)<<23)
	return float32(p * math.Float32frombits(uint32(i-half+127)<<23))
}

// Log returns the natural logarithm of x, within 1 ulp. It is −Inf for ±0, NaN
// below, +Inf for +Inf.
func Log(x float32) float32 {
	switch {
	case x == 0:
		return float32(math.Inf(-1))
	case !(x > 0):
		return float32(math.NaN())
	case x > math.MaxFloat32:
		return x
	}
	bias := int32(127)
	if x < 0x1p-126 {
		x *= 0x1p23
		bias += 23
	}
	// x = 2^e·m with m in [√½, √2)
	u := math.Float32bits(x) + (0x3f800000 - 0x3f3504f3)
	e := float32(int32(u>>23) - bias)
	f := math.Float32frombits(u&0x007fffff+0x3f3504f3) - 1
	p := fma32(logC10, f, logC9)
	p = fma32(p, f, logC8)
	p = fma32(p, f, logC7)
	p = fma32(p, f, logC6)
	p = fma32(p, f, logC5)
	p = fma32(p, f, logC4)
	p = fma32(p, f, logC3)
	ff := f * f
	y := float32(p*f) * ff
	y = fma32(e, logLn2Lo, y)
	y = fma32(-0.5, ff, y)
	return fma32(e, logLn2Hi, f+y)
}

// Sigmoid returns 1/(1 + e^−x), within 3 ulp.
func Sigmoid(x float32) float32 { return 1 / (1 + Exp(-x)) }

// SiLU returns x·Sigmoid(x).
func SiLU(x float32) float32 { return float32(x * Sigmoid(x)) }

// Tanh returns the hyperbolic tangent of x, within 1.5 ulp: a polynomial up to
// 0.625 and 1 − 2/(e^2|x| + 1) beyond.
func Tanh(x float32) float32 {
	a := math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	var t float32
	if a < tanhSmall {
		u := x * x
		p := fma32(tanhC11, u, tanhC9)
		p = fma32(p, u, tanhC7)
		p = fma32(p, u, tanhC5)
		p = fma32(p, u, tanhC3)
		t = fma32(float32(p*u), x, x)
	} else {
		t = 1 - 2/(Exp(a+a)+1)
	}
	// The polynomial turns −0 into +0.
	return math.Float32frombits(math.Float32bits(t) | math.Float32bits(x)&(1<<31))
}

// GELU returns the tanh form of the Gaussian error linear unit,
// x/2·(1 + tanh(√(2/π)·(x + 0.044715x³))), written as x·σ(2√(2/π)·(…)), which
// is the same function without the cancellation.
func GELU(x float32) float32 { return float32(x * geluGate(x)) }

// geluGate returns σ(2√(2/π)·(x + 0.044715x³)).
func geluGate(x float32) float32 {
	inner := fma32(float32(geluCube*float32(x*x)), x, x)
	return Sigmoid(float32(geluScale * inner))
}

// softcap returns c·tanh(x/c).
func softcap(x, c float32) float32 { return float32(c * Tanh(x/c)) }

// lanes is a vector of 16 float32.
type lanes [Lanes]float32

// fill sets every lane.
func (v *lanes) fill(x float32) {
	for i := range v {
		v[i] = x
	}
}

// sum adds the lanes in the one order that every horizontal sum uses.
func (v *lanes) sum() float32 {
	t := *v
	for h := Lanes / 2; h > 0; h /= 2 {
		for i := 0; i < h; i++ {
			t[i] += t[i+h]
		}
	}
	return t[0]
}

// max takes the larger of two lanes, the second if either is NaN, in the order
// of sum.
func (v *lanes) max() float32 {
	t := *v
	for h := Lanes / 2; h > 0; h /= 2 {
		for i := 0; i < h; i++ {
			t[i] = larger(t[i], t[i+h])
		}
	}
	return t[0]
}

// larger returns a if a > b, else b, also for NaN.
func larger(a, b float32) float32 {
	if a > b {
		return a
	}
	return b
}
