package quant

import (
	"fmt"
	"math"
)

// ActivationLen is the number of activations of an ActivationBlock. The block
// length of every weight format that has blocks is a multiple of it.
const ActivationLen = 32

// ActivationBlock is a run of activations rounded to eight bits: x ≈ Scale·Codes.
// Inner loops read it, so its layout is fixed: 48 bytes, no padding.
type ActivationBlock struct {
	Scale     float32 // max|x| over the largest code
	Sum       float32 // Scale·ΣCodes, rounded once
	Low, High int32   // ΣCodes of the first and of the second 16; −64·ΣCodes and 0 of gradients
	Codes     [ActivationLen]int8
}

// ActivationTop and GradientTop are the largest codes of QuantizeActivations and
// QuantizeGradients.
const (
	ActivationTop = 127
	GradientTop   = 63
)

// tiniest is where a block counts as zero: 127/max|x| stays finite above it.
const tiniest = 0x1p-100

// QuantizeActivations rounds x to blocks: len(x) is ActivationLen·len(dst). A
// code is x·(127/max|x|) to the nearest integer, ties to even, where the
// quotient is rounded to float32 and the product is not. A block whose largest
// magnitude is below 2⁻¹⁰⁰ is zero. One with an infinity or a NaN has a scale
// that is NaN, and so does everything computed from it.
func QuantizeActivations(dst []ActivationBlock, x []float32) {
	if len(x) != ActivationLen*len(dst) {
		panic(fmt.Sprintf("quant: QuantizeActivations: %d activations into %d blocks of %d", len(x), len(dst), ActivationLen))
	}
	for i := range dst {
		dst[i].quantize((*[ActivationLen]float32)(x[ActivationLen*i:]), ActivationTop)
	}
}

// QuantizeGradients rounds gradients of outputs as QuantizeActivations rounds
// activations, with 63 in place of 127, to meet runs of weights: see WeightRun.
// Low is what a sum of products lacks when it is made with their codes made
// unsigned, by adding 64.
func QuantizeGradients(dst []ActivationBlock, x []float32) {
	if len(x) != ActivationLen*len(dst) {
		panic(fmt.Sprintf("quant: QuantizeGradients: %d gradients into %d blocks of %d", len(x), len(dst), ActivationLen))
	}
	for i := range dst {
		b := &dst[i]
		b.quantize((*[ActivationLen]float32)(x[ActivationLen*i:]), GradientTop)
		b.Low, b.High = -(GradientTop+1)*(b.Low+b.High), 0
	}
}

func (b *ActivationBlock) quantize(x *[ActivationLen]float32, largest float32) {
	b.Scale = round(&b.Codes, x, largest)
	b.Low, b.High = 0, 0
	for i := range ActivationLen / 2 {
		b.Low += int32(b.Codes[i])
		b.High += int32(b.Codes[ActivationLen/2+i])
	}
	b.Sum = b.Scale * float32(b.Low+b.High)
}

// round writes the codes of x and returns their scale; codes of a zero scale and
// of NaN are zero.
func round(codes *[ActivationLen]int8, x *[ActivationLen]float32, largest float32) (scale float32) {
	*codes = [ActivationLen]int8{}
	var top uint32 // the bits of magnitudes are in the order of magnitudes, infinity and NaN above all
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	most := math.Float32frombits(top)
	switch {
	case top >= 0x7f800000:
		return math.Float32frombits(0x7fc00000)
	case most < tiniest:
		return 0
	}
	inverse := float64(largest / most)
	for i, v := range x {
		codes[i] = int8(math.RoundToEven(float64(v) * inverse)) // the product is exact in float64
	}
	return most / largest
}

// Decode writes the rounded activations, Scale·Codes.
func (b *ActivationBlock) Decode(dst *[ActivationLen]float64) {
	for i, c := range b.Codes {
		dst[i] = float64(b.Scale) * float64(c)
	}
}
