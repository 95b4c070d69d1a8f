// Package libm is the elementary functions of float64 with the same bits on
// every platform.
//
// The functions of package math are assembly on some platforms, and compilers
// may fuse a product and a sum where the hardware can, so their last bit
// depends on the machine. Here every product that meets a sum is rounded by an
// explicit conversion, and where a fused operation is wanted it is math.FMA,
// which is exact everywhere. Results are within one unit in the last place
// (0.75 at most on the points where the tests measure them against 400-bit arithmetic).
//
// The package has no state and knows no tensors.
package libm

import "math"

// A twofold number is an unevaluated sum h + l of two float64 with |l| at most
// half a unit in the last place of h: about 106 bits.

// twoSum returns h + l = a + b exactly (Knuth).
func twoSum(a, b float64) (h, l float64) {
	h = a + b
	v := h - a
	return h, (a - (h - v)) + (b - v)
}

// fastTwoSum returns h + l = a + b exactly, for |a| ≥ |b| or a = 0 (Dekker).
func fastTwoSum(a, b float64) (h, l float64) {
	h = a + b
	return h, b - (h - a)
}

// twoProduct returns h + l = a·b exactly, barring underflow.
func twoProduct(a, b float64) (h, l float64) {
	h = float64(a * b)
	return h, math.FMA(a, b, -h)
}

// addTwofold returns (ah + al) + (bh + bl), for |ah| ≥ |bh| or no cancellation.
func addTwofold(ah, al, bh, bl float64) (h, l float64) {
	h, l = twoSum(ah, bh)
	return fastTwoSum(h, l+(al+bl))
}

// mulTwofold returns (ah + al)·(bh + bl).
func mulTwofold(ah, al, bh, bl float64) (h, l float64) {
	h, l = twoProduct(ah, bh)
	return fastTwoSum(h, l+(float64(ah*bl)+float64(al*bh)))
}

// divTwofold returns (ah + al)/(bh + bl), rounded.
func divTwofold(ah, al, bh, bl float64) float64 {
	q := ah / bh
	rest := math.FMA(-q, bh, ah) + (al - float64(q*bl))
	return q + rest/bh
}

// horner returns c[0] + x·(c[1] + x·(c[2] + …)).
func horner(x float64, c []float64) float64 {
	y := c[len(c)-1]
	for i := len(c) - 2; i >= 0; i-- {
		y = c[i] + float64(x*y)
	}
	return y
}

// power2 returns 2ᵏ for −1022 ≤ k ≤ 1023.
func power2(k int) float64 { return math.Float64frombits(uint64(k+1023) << 52) }

// scale returns x·2ᵏ for |x| in [1/4, 4] and |k| ≤ 1100, rounded once.
func scale(x float64, k int) float64 {
	switch {
	case k > 1000:
		return float64(x * power2(k-200) * power2(200))
	case k < -1000:
		return float64(x * power2(k+200) * power2(-200))
	}
	return float64(x * power2(k))
}
