// Package vec is the inner loops of the CPU backend: matrix tiles, rows,
// attention over pages, each a primitive that works on raw memory.
//
// A primitive takes one pointer to its arguments and returns nothing. There is
// one table of primitives per instruction set (Kernels), and every table
// computes the same bits: a lane is one of 16 float32, a reduction is a chain
// of fused multiply-adds in a stated order, and a horizontal sum is a fixed
// tree. The Generic table is plain Go, runs everywhere, and is what the others
// are tested against; `-tags noasm` leaves it alone in the binary.
//
// The fast tables are C with vector extensions, compiled ahead of time into Go
// assembly: the sources and the generator are in _src, the results are the
// asm_*.s and asm_*.go files here. Using the package needs Go alone.
//
// The package knows no tensors, no threads and no models. It owns no memory:
// arguments point into buffers of the caller, which keeps them alive and bounds
// the work of a call to about 100 µs, because assembly cannot be preempted. An
// argument struct escapes to the heap, so callers that must not allocate keep
// one per worker.
package vec

import "graft/kernels/quant"

// Lanes is the width of a panel, a page and a vector, in float32.
const Lanes = 16

// NumFormats is the number of weight formats; tables by format have that length.
const NumFormats = int(quant.Q6_K) + 1

// Kernels is the primitives of one instruction set. Every field is set,
// unless its comment says otherwise. What a
// primitive computes is said at its argument type.
//
// The generator in _src reads this struct: a C function named after a field
// (for a table by format, Field_FORMAT) takes that field's place in the tables
// of the instruction sets it is compiled for.
type Kernels struct {
	ISA ISA

	Gemm        func(*GemmArgs)
	Gemv        [NumFormats]func(*GemvArgs)
	GemvRows    [NumFormats]func(*GemvRowsArgs)
	Decode      [NumFormats]func(*DecodeArgs)
	Transpose16 func(*TransposeArgs)

	Gemm8     [NumFormats]func(*Gemm8Args) // nil for formats without blocks
	Quantize8 func(*Quantize8Args)

	// GemmTurned is Gemm8 on panels that Turn8 made.
	GemmTurned func(*Gemm8Args)
	Turn8      func(*Turn8Args)

	SumSquares      func(*SumSquaresArgs)
	Dot             func(*DotArgs)
	RMSNorm         func(*RMSNormArgs)
	RMSNormBackward func(*RMSNormBackwardArgs)
	SwiGLU          func(*SwiGLUArgs)
	SwiGLUBackward  func(*SwiGLUBackwardArgs)
	GeGLU           func(*GeGLUArgs)
	GeGLUBackward   func(*GeGLUBackwardArgs)

	Add             func(*AddArgs)
	Scale           func(*ScaleArgs)
	Axpy            func(*AxpyArgs)
	Mul             func(*MulArgs)
	Softcap         func(*SoftcapArgs)
	SoftcapBackward func(*SoftcapBackwardArgs)
	AdamW           func(*AdamWArgs)
	RoPE            func(*RoPEArgs)

	LogSumExpChunk func(*LogSumExpChunkArgs)
	SoftmaxGrad    func(*SoftmaxGradArgs)
	Exp            func(*ExpArgs)
	ArgMax         func(*ArgMaxArgs)

	AttnForward    func(*AttnArgs)
	AttnScores     func(*AttnScoresArgs)
	AttnValues     func(*AttnValuesArgs)
	AttnFinish     func(*AttnFinishArgs)
	AttnBackwardQ  func(*AttnBackwardQArgs)
	AttnBackwardKV func(*AttnBackwardKVArgs)
}
