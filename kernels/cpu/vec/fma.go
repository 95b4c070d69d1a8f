package vec

import "math"

// fma32 returns a·b + c with one rounding, to nearest, ties to even.
//
// The product of two float32 is exact in float64, so s below is a·b + c rounded
// once, and rounding it again to float32 goes wrong in one case only: s lies
// halfway between two float32 and the exact sum does not. Above the subnormal
// float32 such an s shows in its low 29 bits; the rest is left to fmaNear. The
// sum may be fused, as the product is exact.
func fma32(a, b, c float32) float32 {
	s := float64(a)*float64(b) + float64(c)
	if u := math.Float64bits(s); u&(1<<29-1) == 1<<28 || u<<1 < 897<<53 {
		return fmaNear(a, b, c, s)
	}
	return float32(s)
}

// fmaLanes continues 16 chains by one step: acc = fma(x, w, acc). It is fma32
// written out, as the compiler does not inline that.
func fmaLanes(acc *[Lanes]float32, x float32, w *[Lanes]float32) {
	x64 := float64(x)
	for lane, c := range acc {
		s := x64*float64(w[lane]) + float64(c)
		if u := math.Float64bits(s); u&(1<<29-1) == 1<<28 || u<<1 < 897<<53 {
			acc[lane] = fmaNear(x, w[lane], c, s)
		} else {
			acc[lane] = float32(s)
		}
	}
}

// fmaNear is fma32 for sums s that may lie halfway between two float32, or are
// subnormal or zero as float32. It rounds the sum to odd, not to nearest, where
// it is inexact: the last bit then tells on which side of a half the exact sum
// lies, and float64 has more than two bits to spare (Boldo and Melquiond,
// Emulation of FMA and correctly rounded sums, IEEE TC 57, 2008).
func fmaNear(a, b, c float32, s float64) float32 {
	x, y := float64(a)*float64(b), float64(c)
	t := s - x
	e := (x - float64(s-t)) + (y - t) // s + e = x + y exactly (Knuth, TwoSum)
	if u := math.Float64bits(s); e != 0 && u&1 == 0 {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return float32(s)
}
