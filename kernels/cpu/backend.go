// Package cpu is the backend that computes on processor cores: kernels.Backend as tiles and rows
// over a pool of workers, with the arithmetic of kernels/cpu/vec.
//
// Work is split by output panels, rows, heads and chunks, never along a sum, so every result has
// the same bits whatever the number of threads, the split, the batch around a row and the
// instruction set. Backward operations sum over rows in ascending order.
//
// The package knows shapes and packed layouts. It may not know models, schedules or losses. It owns
// its workers and their scratch; tensors belong to whoever allocated them. In the steady state no
// operation allocates: job and argument structs live as long as the backend, and scratch grows to
// the largest need once.
//
// A Backend is for one goroutine at a time. A failure that comes from the data or the machine (a
// row of logits that is not finite, no memory for scratch) sticks until Sync; a panic in a worker is
// a bug of ours and is raised again in the caller, once the other workers have left the operation.
package cpu

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/quant"
)

// Options say what a Backend runs on. The zero value is the best that the machine has.
type Options struct {
	Threads int          // workers, the caller included; 0: GOMAXPROCS
	Kernels *vec.Kernels // inner loops; nil: those of the first of vec.Supported
}

// Backend is kernels.Backend on processor cores. See the package comment for its rules.
type Backend struct {
	k    *vec.Kernels
	pool *pool
	err  error // first failure since the last Sync

	jobs  jobs
	order pageOrder
	sums  []float64 // block sums of SumSquares
	codes []byte    // of codesBytes, or one row if that is more
	state []chunkState
}

// jobs are the operations in flight, one of each kind, so that handing one to the pool allocates
// nothing.
type jobs struct {
	matmul    matMulJob
	round     roundJob
	backward  matMulBackwardJob
	rows      rowsJob
	spans     spansJob
	embed     embedJob
	pack      packJob
	attention attentionJob
	split     attentionSplitJob
	attnBack  attentionBackwardJob
	logProbs  logProbsJob
	logBack   logProbsBackwardJob
	sample    sampleJob
}

var _ kernels.Backend = (*Backend)(nil)

// New starts the workers of a backend. Close ends them.
func New(opt Options) *Backend {
	if opt.Threads <= 0 {
		opt.Threads = runtime.GOMAXPROCS(0)
	}
	if opt.Kernels == nil {
		opt.Kernels = vec.For(vec.Supported()[0])
	}
	codes, err := mapMemory(codesBytes)
	if err != nil {
		panic(fmt.Sprintf("cpu: room for rounded rows: %v", err))
	}
	b := &Backend{k: opt.Kernels, codes: codes}
	b.pool = newPool(opt.Threads, opt.Kernels)
	return b
}

// Name says what computes, such as "cpu avx2 x2".
func (b *Backend) Name() string {
	return fmt.Sprintf("cpu %s x%d", strings.ToLower(b.k.ISA.String()), len(b.pool.workers))
}

// Threads is the number of workers, the caller included.
func (b *Backend) Threads() int { return len(b.pool.workers) }

// Alloc maps zeroed memory outside of Go's heap, in huge pages where the system offers them.
func (b *Backend) Alloc(bytes int64) (*kernels.Memory, error) {
	host, err := mapMemory(bytes)
	if err != nil {
		return nil, fmt.Errorf("cpu: %d bytes of memory: %w", bytes, err)
	}
	return &kernels.Memory{Host: host, Bytes: bytes}, nil
}

// Free returns memory that Alloc gave.
func (b *Backend) Free(m *kernels.Memory) {
	if m == nil || m.Host == nil {
		return
	}
	if err := unmapMemory(m.Host); err != nil {
		b.fail(fmt.Errorf("cpu: freeing %d bytes: %w", m.Bytes, err))
	}
	m.Host, m.Bytes = nil, 0
}

// Upload copies raw bytes to a tensor, row after row.
func (b *Backend) Upload(dst kernels.Tensor, src []byte) {
	for i := range dst.Rows {
		row := bytesOf(dst, i)
		src = src[copy(row, src[:len(row)]):]
	}
}

// Download copies a tensor's elements to raw bytes, row after row.
func (b *Backend) Download(dst []byte, src kernels.Tensor) {
	for i := range src.Rows {
		row := bytesOf(src, i)
		dst = dst[copy(dst[:len(row)], row):]
	}
}

// Sync returns the first failure since the last Sync. Operations are done when they return.
func (b *Backend) Sync() error {
	err := b.err
	b.err = nil
	return err
}

// Close ends the workers and returns their scratch.
func (b *Backend) Close() error {
	b.pool.close()
	if b.codes == nil {
		return nil
	}
	codes := b.codes
	b.codes = nil
	return unmapMemory(codes)
}

func (b *Backend) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// run does the n tasks of j. cost is a guess at the whole work in nanoseconds of one worker: work
// too small to share is done by the caller alone.
func (b *Backend) run(n int, cost int64, j job) {
	if n == 0 {
		return
	}
	if err := b.pool.run(n, cost >= shareCost, j); err != nil {
		b.fail(err)
	}
}

// shareCost is the work in nanoseconds from which handing tasks to spinning workers pays.
const shareCost = 8000

// PackedBytes is the size of a packed [out, in] weight: panels of 16 outputs.
func (b *Backend) PackedBytes(f quant.Format, out, in int) int64 {
	return int64(vec.Panels(out)) * int64(vec.PanelBytes(f, in))
}

// at is the address of element (row, col) of t, nil if t has no elements.
func at(t kernels.Tensor, row, col int) unsafe.Pointer {
	if t.Mem == nil || t.Rows == 0 || t.Cols == 0 {
		return nil
	}
	return unsafe.Add(unsafe.Pointer(&t.Mem.Host[t.Off]), (row*t.Stride+col)*int(t.DType.Size()))
}

// add moves p by n float32.
func add(p unsafe.Pointer, n int) unsafe.Pointer { return unsafe.Add(p, 4*n) }

// floats is the n float32 at p.
func floats(p unsafe.Pointer, n int) []float32 { return unsafe.Slice((*float32)(p), n) }

// index is i as a number below n. What lies outside would be read or written without a check.
func index(i int32, n int, what string) int {
	if uint(i) >= uint(n) {
		panic(fmt.Sprintf("cpu: %s %d of %d", what, i, n))
	}
	return int(i)
}

// ceil is a/b rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

// pad16 is n rounded up to whole panels.
func pad16(n int) int { return (n + vec.Lanes - 1) &^ (vec.Lanes - 1) }

// matrix is a packed weight as the inner loops see it.
type matrix struct {
	base    unsafe.Pointer
	format  quant.Format
	out, in int
	panel   int  // bytes of a panel
	rounds  bool // kernels.PrecisionInt8: x is rounded first
}

func matrixOf(w kernels.Weight) matrix {
	return matrix{
		base:   unsafe.Pointer(&w.Mem.Host[w.Off]),
		format: w.Format,
		out:    w.Out,
		in:     w.In,
		panel:  vec.PanelBytes(w.Format, w.In),
		rounds: w.Rounds(),
	}
}

func (m *matrix) at(panel int) unsafe.Pointer { return unsafe.Add(m.base, panel*m.panel) }
