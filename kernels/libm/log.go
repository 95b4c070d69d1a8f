package libm

import "math"

// logSeries is 2/(2n+1) from n = 1 on: log((1+s)/(1−s)) = 2s + s·(2/3·s² + 2/5·s⁴ + …),
// to 1e-19 of the result for |s| ≤ 0.1716.
var logSeries = [...]float64{2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23, 2.0 / 25}

// split returns x = m·2ᵏ with m in [√½, √2), for positive finite x.
func split(x float64) (m float64, k int) {
	if x < 0x1p-1022 {
		x *= 0x1p54
		k = -54
	}
	b := math.Float64bits(x)
	k += int(b>>52) - 1023
	m = math.Float64frombits(b&(1<<52-1) | 1023<<52)
	if m > math.Sqrt2 {
		m *= 0.5
		k++
	}
	return m, k
}

// logSum returns k·ln 2 + log(1 + f) + c for 1 + f in [√½, √2] and tiny c, as a
// sum whose second part holds what the first rounds off.
func logSum(k int, f, c float64) (h, l float64) {
	n := float64(k)
	s := f / (2 + f)
	z := float64(s * s)
	half := float64(0.5 * float64(f*f))
	series := float64(s * (half + float64(z*horner(z, logSeries[:]))))
	// log(1 + f) = f − f²/2 + s·(f²/2 + R), and f is exact
	h, l = twoSum(float64(n*ln2Hi), f)
	return h, l - (half - (series + (float64(n*ln2Lo) + c)))
}

// Log returns the natural logarithm of x; that of 0 is −Inf, of a negative number NaN.
func Log(x float64) float64 {
	switch {
	case x != x, x > math.MaxFloat64:
		return x
	case x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	}
	m, k := split(x)
	h, l := logSum(k, m-1, 0)
	return h + l
}

// Log1p returns log(1 + x), exact also near zero; that of −1 is −Inf.
func Log1p(x float64) float64 {
	switch {
	case x != x, x > math.MaxFloat64, -0x1p-54 < x && x < 0x1p-54:
		return x
	case x < -1:
		return math.NaN()
	case x == -1:
		return math.Inf(-1)
	}
	h, l := log1pSum(x)
	return h + l
}

// log1pSum returns log(1 + x) for finite x above −1, as logSum does.
func log1pSum(x float64) (h, l float64) {
	if math.Sqrt2/2-1 < x && x < math.Sqrt2-1 {
		return logSum(0, x, 0)
	}
	u, lost := twoSum(1, x)
	m, k := split(u)
	return logSum(k, m-1, lost/u)
}

// log2fold returns log x as a twofold number to about 2⁻⁷⁰ of itself, for
// positive finite x.
func log2fold(x float64) (h, l float64) {
	m, k := split(x)
	f := m - 1
	// s = f/(2 + f), twofold
	dh, dl := fastTwoSum(2, f)
	sh := f / dh
	sh, sl := fastTwoSum(sh, (math.FMA(-sh, dh, f)-float64(sh*dl))/dh)
	zh, zl := mulTwofold(sh, sl, sh, sl)
	// 2/3 + z·(2/5 + z·(2/7 + …)): the first two terms need more than 53 bits
	ph, pl := twoProduct(zh, horner(zh, logSeries[2:]))
	ph, pl = addTwofold(0x1.999999999999ap-2, -0x1.999999999999ap-56, ph, pl)
	ph, pl = mulTwofold(zh, zl, ph, pl)
	ph, pl = addTwofold(0x1.5555555555555p-1, 0x1.5555555555555p-55, ph, pl)
	ph, pl = mulTwofold(zh, zl, ph, pl)
	ph, pl = addTwofold(2, 0, ph, pl)
	h, l = mulTwofold(sh, sl, ph, pl)
	if k == 0 {
		return h, l
	}
	n := float64(k)
	nh, nl := twoProduct(n, ln2Lo)
	nh, nl = addTwofold(float64(n*ln2Hi), 0, nh, nl)
	return addTwofold(nh, nl, h, l)
}
