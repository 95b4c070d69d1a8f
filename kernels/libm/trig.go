package libm

import (
	"math"
	"math/bits"
)

const (
	halfPiHi = 0x1.921fb54442d18p+0
	halfPiLo = 0x1.1a62633145c07p-54
)

// twoOverPi is the binary digits of 2/π after the point, behind 64 zeros.
var twoOverPi = [...]uint64{
	0,
	0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
	0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
	0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
	0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
	0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
}

// Taylor series of (sin r − r)/r³ and (cos r − 1 + r²/2)/r⁴ in r².
var (
	sinTaylor = [...]float64{
		-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800,
		-1.0 / 1307674368000, 1.0 / 355687428096000,
	}
	cosTaylor = [...]float64{
		1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200,
		1.0 / 20922789888000, -1.0 / 6402373705728000,
	}
)

// quadrant returns q and the twofold r with |x| = q·π/2 + r (modulo 2π),
// |r| ≤ π/4, for finite |x| above π/4. One method serves all sizes: the product
// of x's 53 bits with the 192 digits of 2/π that matter (Payne and Hanek). At
// least 74 bits of r are right, however near x is to a multiple of π/2.
func quadrant(x float64) (q int, rh, rl float64) {
	b := math.Float64bits(x)
	mantissa := b&(1<<52-1) | 1<<52
	exponent := int(b>>52&0x7ff) - 1075 // |x| = mantissa·2^exponent
	// Digits of weight 2⁻ʲ with exponent − j ≥ 2 only add multiples of 4 quadrants.
	skip := uint(64 + exponent - 2)
	word, shift := skip/64, skip%64
	var w [3]uint64
	for i := range w {
		w[i] = twoOverPi[word+uint(i)]<<shift | twoOverPi[word+uint(i)+1]>>(64-shift)
	}
	// (p2 p1 p0)/2¹⁹² = fraction of mantissa·w: 2 bits of quadrant, then its fraction
	h0, p0 := bits.Mul64(mantissa, w[2])
	h1, l1 := bits.Mul64(mantissa, w[1])
	p1, carry := bits.Add64(l1, h0, 0)
	p2 := mantissa*w[0] + h1 + carry

	q = int(p2 >> 62)
	p2 = p2<<2 | p1>>62
	p1 = p1<<2 | p0>>62
	p0 <<= 2
	negative := p2>>63 == 1 // the fraction is at least ½: go down from the next quadrant
	if negative {
		q = (q + 1) & 3
		var borrow uint64
		p0, borrow = bits.Sub64(0, p0, 0)
		p1, borrow = bits.Sub64(0, p1, borrow)
		p2, _ = bits.Sub64(0, p2, borrow)
	}
	// The first 106 bits from the leading one on, as two floats.
	down := 0
	for p2>>63 == 0 && down < 128 {
		n := uint(max(bits.LeadingZeros64(p2), 1))
		if n == 64 {
			p2, p1, p0 = p1, p0, 0
		} else {
			p2, p1, p0 = p2<<n|p1>>(64-n), p1<<n|p0>>(64-n), p0<<n
		}
		down += int(n)
	}
	fh := float64(p2>>11) * power2(-53-down)
	fl := float64(p2&0x7ff<<42|p1>>22) * power2(-106-down)
	rh, rl = mulTwofold(fh, fl, halfPiHi, halfPiLo)
	if negative {
		rh, rl = -rh, -rl
	}
	return q, rh, rl
}

// sinReduced returns sin(h + l) for |h| ≤ π/4.
func sinReduced(h, l float64) float64 {
	z := float64(h * h)
	cube := float64(float64(h*z) * horner(z, sinTaylor[:]))
	return h + (cube + (l - float64(l*float64(0.5*z))))
}

// cosReduced returns cos(h + l) for |h| ≤ π/4.
func cosReduced(h, l float64) float64 {
	z, zl := twoProduct(h, h)
	rest := float64(float64(z*z)*horner(z, cosTaylor[:])) - float64(h*l)
	w, wl := fastTwoSum(1, -0.5*z)
	return w + (wl + (rest - float64(0.5*zl)))
}

// Sincos returns the sine and the cosine of x, an angle in radians of any size.
// Those of an infinity are NaN.
func Sincos(x float64) (sin, cos float64) {
	a := math.Abs(x)
	switch {
	case x != x || a > math.MaxFloat64:
		return math.NaN(), math.NaN()
	case a < 0x1p-27:
		return x, 1
	}
	q, h, l := 0, a, 0.0
	if a > math.Pi/4 {
		q, h, l = quadrant(a)
	}
	sin, cos = sinReduced(h, l), cosReduced(h, l)
	if q&1 == 1 {
		sin, cos = cos, -sin
	}
	if q&2 == 2 {
		sin, cos = -sin, -cos
	}
	if x < 0 {
		sin = -sin
	}
	return sin, cos
}

// Sin returns the sine of x, an angle in radians of any size.
func Sin(x float64) float64 {
	s, _ := Sincos(x)
	return s
}

// Cos returns the cosine of x, an angle in radians of any size.
func Cos(x float64) float64 {
	_, c := Sincos(x)
	return c
}
