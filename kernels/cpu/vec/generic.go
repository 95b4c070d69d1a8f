package vec

import "graft/kernels/quant"

// genericKernels returns the primitives in plain Go.
func genericKernels() *Kernels {
	k := &Kernels{
		ISA:         Generic,
		Gemm:        gemmGeneric,
		Transpose16: transpose16Generic,
		Quantize8:   quantize8Generic,
		GemmTurned:  gemmTurnedGeneric,
		Turn8:       turn8Generic,

		SumSquares:      sumSquaresGeneric,
		Dot:             dotGeneric,
		RMSNorm:         rmsNormGeneric,
		RMSNormBackward: rmsNormBackwardGeneric,
		SwiGLU:          swiGLUGeneric,
		SwiGLUBackward:  swiGLUBackwardGeneric,
		GeGLU:           geGLUGeneric,
		GeGLUBackward:   geGLUBackwardGeneric,
		Add:             addGeneric,
		Scale:           scaleGeneric,
		Axpy:            axpyGeneric,
		Mul:             mulGeneric,
		Softcap:         softcapGeneric,
		SoftcapBackward: softcapBackwardGeneric,
		AdamW:           adamWGeneric,
		RoPE:            ropeGeneric,
		LogSumExpChunk:  logSumExpChunkGeneric,
		SoftmaxGrad:     softmaxGradGeneric,
		Exp:             expGeneric,
		ArgMax:          argMaxGeneric,
		AttnForward:     attnForwardGeneric,
		AttnScores:      attnScoresGeneric,
		AttnValues:      attnValuesGeneric,
		AttnFinish:      attnFinishGeneric,
		AttnBackwardQ:   attnBackwardQGeneric,
		AttnBackwardKV:  attnBackwardKVGeneric,
	}
	for _, f := range quant.Formats() {
		k.Gemv[f] = gemvGeneric(f)
		k.GemvRows[f] = gemvRowsGeneric(f)
		k.Decode[f] = decodeGeneric(f)
		if f.BlockLen() > 1 {
			k.Gemm8[f] = gemm8Generic(f)
		}
	}
	return k
}
