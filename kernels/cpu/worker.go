package cpu

import (
	"fmt"
	"unsafe"

	"graft/kernels/cpu/vec"
)

// worker is what one member of the pool owns: the inner loops, an argument struct for each (they
// escape, so they cannot live on a stack), and scratch.
type worker struct {
	id    int
	k     *vec.Kernels
	place place

	gemm      vec.GemmArgs
	gemv      vec.GemvArgs
	decode    vec.DecodeArgs
	gemm8     vec.Gemm8Args
	quantize8 vec.Quantize8Args
	transpose vec.TransposeArgs
	turn8     vec.Turn8Args

	sum     vec.SumSquaresArgs
	dot     vec.DotArgs
	norm    vec.RMSNormArgs
	dnorm   vec.RMSNormBackwardArgs
	add     vec.AddArgs
	scale   vec.ScaleArgs
	mul     vec.MulArgs
	cap     vec.SoftcapArgs
	dcap    vec.SoftcapBackwardArgs
	adamw   vec.AdamWArgs
	swiglu  vec.SwiGLUArgs
	dswiglu vec.SwiGLUBackwardArgs
	geglu   vec.GeGLUArgs
	dgeglu  vec.GeGLUBackwardArgs
	rope    vec.RoPEArgs
	lse     vec.LogSumExpChunkArgs
	softmax vec.SoftmaxGradArgs
	exp     vec.ExpArgs
	argmax  vec.ArgMaxArgs

	attn   vec.AttnArgs
	scores vec.AttnScoresArgs
	values vec.AttnValuesArgs
	finish vec.AttnFinishArgs
	dattn  vec.AttnBackwardQArgs
	dkv    vec.AttnBackwardKVArgs
	task   attentionTask

	tile          unsafe.Pointer   // [tileFloats] decoded weights
	edge          unsafe.Pointer   // [edgeFloats] outputs of a panel that is not whole
	own           []byte           // tile, edge and strip
	big           scratch          // of floats
	codes         scratch          // of multiplyRounding
	pages, vpages []unsafe.Pointer // addresses of pages by logical number
	candidates    []candidate      // of Sample
	bins          [nucleusBins]float64
	states        []chunkState // of a row of Sample with bias or bans
}

// Sizes of a worker's fixed scratch, in float32.
const (
	tileFloats = 2 * tileDepth * vec.Lanes
	edgeFloats = edgeRows * 2 * vec.Lanes
	edgeRows   = 384
)

func newWorker(id int, k *vec.Kernels) *worker {
	own, err := mapMemory(4 * (tileFloats + edgeFloats + stripWidth*vec.Lanes))
	if err != nil {
		panic(fmt.Sprintf("cpu: scratch of a worker: %v", err))
	}
	w := &worker{id: id, k: k, own: own}
	w.place.core.Store(-1)
	w.place.asked.Store(-1)
	w.tile = unsafe.Pointer(unsafe.SliceData(own))
	w.edge = add(w.tile, tileFloats)
	return w
}

// strip is where a piece of one panel is decoded before it is transposed.
func (w *worker) strip() unsafe.Pointer { return add(w.edge, edgeFloats) }

// noMemory is the panic that the pool turns into an error.
type noMemory struct{ err error }

// scratch is memory outside of Go's heap that grows to the largest need.
type scratch struct{ mem []byte }

// bytes returns room for n bytes that lasts until the next call. What is in it is arbitrary.
func (s *scratch) bytes(n int) unsafe.Pointer {
	if need := int64(n); int64(len(s.mem)) < need {
		need += need / 4
		s.free()
		mem, err := mapMemory(need)
		if err != nil {
			panic(noMemory{fmt.Errorf("cpu: %d bytes of scratch: %w", need, err)})
		}
		s.mem = mem
	}
	return unsafe.Pointer(unsafe.SliceData(s.mem))
}

func (s *scratch) free() {
	if s.mem != nil {
		_ = unmapMemory(s.mem) // the process keeps what the system will not take back
	}
	s.mem = nil
}

// floats returns scratch for n float32 that lasts until the next call.
func (w *worker) floats(n int) unsafe.Pointer { return w.big.bytes(4 * n) }

func (w *worker) free() {
	w.big.free()
	w.codes.free()
	own := scratch{w.own}
	own.free()
	w.own = nil
}
