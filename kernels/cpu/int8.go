package cpu

import (
	"fmt"
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/quant"
)

const (
	codesBytes = 4 << 20 // rounded rows of x or dy that one pass sees; products with keys of a split Attention
	roundRows  = 16      // rows that a task rounds
	headRows   = 64      // rows that a worker rounds for itself, for the vocabulary
	int8Work   = 1 << 21 // multiply-adds of one call, which bounds the time in assembly
	int8Block  = 96      // rows whose codes should stay in the second-level cache
)

// codesRow is the bytes of one row of `in` rounded activations.
func codesRow(in int) int {
	return in / quant.ActivationLen * int(unsafe.Sizeof(quant.ActivationBlock{}))
}

// codesOf is where row r of the rounded x of a MatMul lies.
func (b *Backend) codesOf(r, in int) unsafe.Pointer { return unsafe.Pointer(&b.codes[r*codesRow(in)]) }

// roomForCodes makes room for one row at least, however wide.
func (b *Backend) roomForCodes(row int) error {
	if row <= len(b.codes) {
		return nil
	}
	wider, err := mapMemory(int64(row))
	if err != nil {
		return fmt.Errorf("cpu: %d bytes for a rounded row: %w", row, err)
	}
	_ = unmapMemory(b.codes) // the process keeps what the system will not take back
	b.codes = wider
	return nil
}

// roundJob rounds rows of x, a run of rows a task.
type roundJob struct {
	b        *Backend
	x        kernels.Tensor
	r0, rows int
}

// round puts the rows [r0, r0+rows) of x, rounded, where codesOf says.
func (b *Backend) round(x kernels.Tensor, r0, rows int) {
	j := &b.jobs.round
	*j = roundJob{b: b, x: x, r0: r0, rows: rows}
	b.run(ceil(rows, roundRows), int64(rows)*int64(x.Cols)/2, j)
}

func (j *roundJob) do(w *worker, task int) {
	r := task * roundRows
	w.roundRows(j.b.codesOf(r, j.x.Cols), at(j.x, j.r0+r, 0), j.x.Stride, j.x.Cols, min(roundRows, j.rows-r))
}

// roundRows rounds rows of n activations.
func (w *worker) roundRows(codes, x unsafe.Pointer, xRow, n, rows int) {
	for i := range rows {
		w.quantize8 = vec.Quantize8Args{X: add(x, i*xRow), Q: unsafe.Add(codes, i*codesRow(n)), N: int64(n), Largest: quant.ActivationTop}
		w.k.Quantize8(&w.quantize8)
	}
}

// multiply8 is multiply under the int8 contract: codes is the rounded rows of x, codesRow bytes apart.
func (w *worker) multiply8(y unsafe.Pointer, yRow int, m *matrix, p0, p1 int, codes unsafe.Pointer, codesRow, rows int, keep bool) {
	panel := m.in * vec.Lanes
	block := min(rows, int8Block, max(8, int8Work/panel&^7))
	for r := 0; r < rows; r += block {
		n := min(block, rows-r)
		most := max(1, int8Work/(panel*n))
		for p := p0; p < p1; p += most {
			w.gemm8 = vec.Gemm8Args{
				X: unsafe.Add(codes, r*codesRow), W: m.at(p), Y: add(y, r*yRow+(p-p0)*vec.Lanes),
				K: int64(m.in), P: int64(min(most, p1-p)), PanelBytes: int64(m.panel),
				M: int64(n), XRow: int64(codesRow), YRow: int64(yRow), Keep: flag(keep),
			}
			w.k.Gemm8[m.format](&w.gemm8)
		}
	}
}

// multiplyRounding is multiply8 for rows of x that the worker rounds itself: for a head, whose
// products outweigh that many times over.
func (w *worker) multiplyRounding(y unsafe.Pointer, yRow int, m *matrix, p0, p1 int, x unsafe.Pointer, xRow, rows int) {
	size := codesRow(m.in)
	for r := 0; r < rows; r += headRows {
		n := min(headRows, rows-r)
		codes := w.codes.bytes(headRows * size)
		w.roundRows(codes, add(x, r*xRow), xRow, m.in, n)
		w.multiply8(add(y, r*yRow), yRow, m, p0, p1, codes, size, n, false)
	}
}

// flag is what inner loops take for true and false.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
