package libm

import "math"

const (
	// ln 2 in two parts; the first has 42 bits, so that its product with an
	// exponent is exact.
	ln2Hi = 0x1.62e42fefa3800p-1
	ln2Lo = 0x1.ef35793c76730p-45

	expOverflow  = 709.79  // eˣ is infinite from just below here on
	expUnderflow = -745.14 // eˣ is zero up to here
)

// expTaylor is 1/n! from n = 3 on: (eˣ − 1 − x − x²/2)/x³ to 1e-19 of eˣ for |x| ≤ ln(2)/2.
var expTaylor = [...]float64{
	1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800,
	1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200,
}

// expReduce returns k and the twofold r = x + tail − k·ln 2, |r| ≤ ln(2)/2, and
// q = eʳ − 1 − r without the part of the low half.
func expReduce(x, tail float64) (k int, rh, rl, q float64) {
	n := math.RoundToEven(float64(x * math.Log2E))
	rh, rl = twoSum(x-float64(n*ln2Hi), tail-float64(n*ln2Lo))
	return int(n), rh, rl, expRest(rh)
}

// expRest returns eʳ − 1 − r for |r| ≤ ln(2)/2.
func expRest(r float64) float64 {
	return float64(float64(r*r) * (0.5 + float64(r*horner(r, expTaylor[:]))))
}

// exp2fold returns k and the twofold h + l with e^(x + tail) = (h + l)·2ᵏ.
// x lies between expUnderflow and expOverflow, or a little outside.
func exp2fold(x, tail float64) (k int, h, l float64) {
	k, rh, rl, q := expReduce(x, tail)
	h, l = fastTwoSum(1, rh)
	h, l = fastTwoSum(h, l+(q+float64(rl*h)))
	return k, h, l
}

// Exp returns eˣ.
func Exp(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > expOverflow:
		return math.Inf(1)
	case x < expUnderflow:
		return 0
	}
	k, h, _ := exp2fold(x, 0)
	return scale(h, k)
}

// expm1Twofold returns k and the twofold h + l with eˣ − 1 = (h + l)·2ᵏ, for
// −40 ≤ x ≤ expOverflow.
func expm1Twofold(x float64) (k int, h, l float64) {
	if -math.Ln2/2 < x && x < math.Ln2/2 {
		h, l = fastTwoSum(x, expRest(x))
		return 0, h, l
	}
	k, rh, rl, q := expReduce(x, 0)
	// eˣ − 1 = 2ᵏ·((1 − 2⁻ᵏ) + r + q); the bracket is exact up to k = 53 and 1 beyond.
	one := 1.0
	if k <= 1000 {
		one -= power2(-k)
	}
	h, l = twoSum(one, rh)
	h, l = twoSum(h, l+(q+float64(rl*(1+rh))))
	return k, h, l
}

// Expm1 returns eˣ − 1, exact also near zero.
func Expm1(x float64) float64 {
	switch {
	case x != x, -0x1p-54 < x && x < 0x1p-54:
		return x
	case x > expOverflow:
		return math.Inf(1)
	case x < -40:
		return -1
	}
	k, h, _ := expm1Twofold(x)
	return scale(h, k)
}

// Tanh returns the hyperbolic tangent of x.
func Tanh(x float64) float64 {
	a := math.Abs(x)
	switch {
	case x != x, a < 0x1p-28:
		return x
	case a > 22:
		return math.Copysign(1, x)
	}
	k, h, l := expm1Twofold(2 * a) // tanh a = t/(t + 2), t = e²ᵃ − 1
	h, l = scale(h, k), scale(l, k)
	dh, dl := twoSum(h, 2)
	return math.Copysign(divTwofold(h, l, dh, dl+l), x)
}

// Sigmoid returns 1/(1 + e⁻ˣ).
func Sigmoid(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 40:
		return 1
	case x < -700:
		return Exp(x)
	}
	k, h, l := exp2fold(-math.Abs(x), 0)
	h, l = scale(h, k), scale(l, k)
	dh, dl := fastTwoSum(1, h)
	if x >= 0 {
		return divTwofold(1, 0, dh, dl+l)
	}
	return divTwofold(h, l, dh, dl+l)
}

// LogSigmoid returns log(1/(1 + e⁻ˣ)).
func LogSigmoid(x float64) float64 {
	switch {
	case x != x, x < -40:
		return x
	case x > 700:
		return -Exp(-x)
	}
	k, h, l := exp2fold(-math.Abs(x), 0)
	h, l = scale(h, k), scale(l, k)
	yh, yl := log1pSum(h)
	yl += l / (1 + h)
	if x >= 0 {
		return -(yh + yl)
	}
	h, l = twoSum(x, -yh)
	return h + (l - yl)
}
