package quant

// WeightRunLen is the number of weights of a WeightRun, and ActivationLen too:
// a run meets an ActivationBlock of the gradient it is multiplied with.
const WeightRunLen = ActivationLen

// weightTop is the largest code of a WeightRun. It and GradientTop have seven
// bits, so that a signed sum of 16 bits, which is what AVX2 has, holds four
// products with codes made unsigned: 4·127·63. With eight bits it holds none.
const weightTop = 63

// WeightRun is the weights of one input at 32 outputs, rounded to seven bits:
// w ≈ Scale·Codes. Formats share scales along the inputs, so a gradient, which
// is summed along the outputs, cannot use their codes.
type WeightRun struct {
	Scale float32 // max|w|/63
	Codes [WeightRunLen]int8
}

// Round rounds w as QuantizeActivations rounds x, with 63 in place of 127.
func (r *WeightRun) Round(w *[WeightRunLen]float32) {
	r.Scale = round(&r.Codes, w, weightTop)
}
