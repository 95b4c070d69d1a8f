package vec

// genericKernels returns the primitives in plain Go.
func genericKernels() *Kernels {
	k := &Kernels{
		ISA:         Generic,
		Gemm:        gemmGeneric,
		Transpose16: transpose16Generic,
	}
	for f, decode := range rowDecoders() {
		k.Gemv[f] = gemvGeneric(decode)
		k.Decode[f] = decodeGeneric(decode)
	}
	return k
}
