package quant

import "math"

// F16ToF32 returns the value of the IEEE half with the given bits, exactly.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	man := uint32(h) & 0x3ff
	switch exp {
	case 0: // zero and subnormals: man·2⁻²⁴, exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(man)*0x1p-24))
	case 31: // infinities and NaN
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

// F32ToF16 returns the bits of the IEEE half nearest to f, ties to even.
// From 65520 on the result is infinite; a NaN stays a NaN.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13)&0x3ff
	case b >= 0x477ff000: // 65520, halfway between the largest half and 2¹⁶
		return sign | 0x7c00
	case b < 0x38800000: // below 2⁻¹⁴: the spacing of float32 around 0.5 is that of a subnormal half
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	b += 0xfff + (b>>13)&1
	return sign | uint16((b-112<<23)>>13)
}

// BF16ToF32 returns the value of the bfloat16 with the given bits, exactly.
func BF16ToF32(h uint16) float32 {
	return math.Float32frombits(uint32(h) << 16)
}

// F32ToBF16 returns the bits of the bfloat16 nearest to f, ties to even. A NaN
// stays a NaN.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}
