package libm

import "math"

// Pow returns x to the power y, with the special cases of C99 (and package math).
func Pow(x, y float64) float64 {
	switch {
	case y == 0, x == 1:
		return 1
	case x != x || y != y:
		return math.NaN()
	case y == 1:
		return x
	}
	integer, odd := parity(y)
	sign := 1.0
	if math.Signbit(x) && odd {
		sign = -1
	}
	a := math.Abs(x)
	switch {
	case math.IsInf(y, 0):
		if a == 1 {
			return 1
		}
		return zeroOrInf((a > 1) == (y > 0))
	case a == 0:
		return sign * zeroOrInf(y < 0)
	case a > math.MaxFloat64:
		return sign * zeroOrInf(y > 0)
	case x < 0 && !integer:
		return math.NaN()
	}
	lh, ll := log2fold(a)
	ph := float64(y * lh)
	switch {
	case ph > expOverflow+1:
		return sign * math.Inf(1)
	case ph < expUnderflow-1:
		return sign * 0
	}
	pl := math.FMA(y, lh, -ph) + float64(y*ll)
	k, h, _ := exp2fold(ph, pl)
	return sign * scale(h, k)
}

func zeroOrInf(infinite bool) float64 {
	if infinite {
		return math.Inf(1)
	}
	return 0
}

// parity reports whether y is an integer and whether it is an odd one.
func parity(y float64) (integer, odd bool) {
	a := math.Abs(y)
	if a >= 1<<53 {
		return !math.IsInf(y, 0), false
	}
	n := int64(a)
	integer = float64(n) == a
	return integer, integer && n&1 == 1
}
