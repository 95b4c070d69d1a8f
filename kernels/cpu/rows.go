package cpu

import (
	"unsafe"

	"graft/kernels"
)

// rowsJob is an operation whose rows know nothing of each other, or (columns) whose columns do not.
type rowsJob struct {
	op    func(j *rowsJob, w *worker, from, to int)
	n     int // rows, or columns
	grain int // of a task

	y, a, b, c, d kernels.Tensor // operands, in the order of the operation's arguments
	eps           float32
	keep          bool
	act           kernels.Activation
	rope          kernels.Rope
	kv            kernels.KV
	order         *pageOrder
}

func (j *rowsJob) do(w *worker, task int) {
	from := task * j.grain
	j.op(j, w, from, min(from+j.grain, j.n))
}

// runRows runs b.jobs.rows over n rows, each about cost nanoseconds.
func (b *Backend) runRows(j rowsJob, n int, cost float64) {
	if n == 0 {
		return
	}
	total := int64(cost * float64(n))
	tasks := min(n, max(1, int(total/taskCost)))
	j.n, j.grain = n, ceil(n, tasks)
	b.jobs.rows = j
	b.run(ceil(n, j.grain), total, &b.jobs.rows)
}

// taskCost is the work of a task of small operations, in nanoseconds: far above what handing it out
// costs, far below what a delayed worker may hold up.
const taskCost = 5000

// Guesses at the nanoseconds that an element costs one worker.
const (
	moveCost = 0.15
	normCost = 0.2
	gateCost = 0.8
)

// Zero clears t.
func (b *Backend) Zero(t kernels.Tensor) {
	b.runRows(rowsJob{op: zeroRows, y: flat(t)}, flat(t).Rows, moveCost*float64(flat(t).Cols*int(t.DType.Size())/4))
}

// Copy copies src to dst.
func (b *Backend) Copy(dst, src kernels.Tensor) {
	if dst.Contiguous() && src.Contiguous() {
		dst, src = flat(dst), flat(src)
	}
	b.runRows(rowsJob{op: moveRows, y: dst, a: src}, dst.Rows, moveCost*float64(dst.Cols*int(dst.DType.Size())/4))
}

// Add is y += x.
func (b *Backend) Add(y, x kernels.Tensor) {
	if y.Contiguous() && x.Contiguous() {
		y, x = flat(y), flat(x)
	}
	b.runRows(rowsJob{op: addRows, y: y, a: x}, y.Rows, moveCost*float64(y.Cols))
}

// flat cuts a contiguous tensor that is one long row, or many short ones, into rows that make tasks:
// 4096 elements each where that divides, else as it is.
func flat(t kernels.Tensor) kernels.Tensor {
	const wide = 4096
	if !t.Contiguous() {
		return t
	}
	for cols := wide; cols >= 256; cols /= 2 {
		if n := t.Len(); n%cols == 0 {
			t.Rows, t.Cols, t.Stride = n/cols, cols, cols
			return t
		}
	}
	return t
}

func bytesOf(t kernels.Tensor, row int) []byte {
	n := t.Cols * int(t.DType.Size())
	return unsafe.Slice((*byte)(at(t, row, 0)), n)
}

func zeroRows(j *rowsJob, _ *worker, from, to int) {
	for i := from; i < to; i++ {
		clear(bytesOf(j.y, i))
	}
}

func moveRows(j *rowsJob, _ *worker, from, to int) {
	for i := from; i < to; i++ {
		copy(bytesOf(j.y, i), bytesOf(j.a, i))
	}
}

func addRows(j *rowsJob, w *worker, from, to int) {
	for i := from; i < to; i++ {
		w.plus(at(j.y, i, 0), at(j.a, i, 0), j.y.Cols)
	}
}

// Gather is y[i] = x[rows[i]].
func (b *Backend) Gather(y, x, rows kernels.Tensor) {
	b.runRows(rowsJob{op: gatherRows, y: y, a: x, b: rows}, y.Rows, 20+moveCost*float64(y.Cols))
}

func gatherRows(j *rowsJob, _ *worker, from, to int) {
	rows := j.b.I32()
	for i := from; i < to; i++ {
		copy(bytesOf(j.y, i), bytesOf(j.a, index(rows[i], j.a.Rows, "row")))
	}
}

// ScatterAdd is y[rows[i]] += x[i], i ascending: columns are shared out, since rows may repeat.
func (b *Backend) ScatterAdd(y, x, rows kernels.Tensor) {
	b.runColumns(rowsJob{op: scatterColumns, y: y, a: x, b: rows}, y.Cols, 20*float64(x.Rows), moveCost*float64(x.Rows))
}

func scatterColumns(j *rowsJob, w *worker, from, to int) {
	for i, row := range j.b.I32()[:j.a.Rows] {
		w.plus(at(j.y, index(row, j.y.Rows, "row"), from), at(j.a, i, from), to-from)
	}
}

// runColumns runs b.jobs.rows over n columns in tasks of at least a few cache lines: fixed is the
// cost of a task that does not shrink with its columns, cost that of a column.
func (b *Backend) runColumns(j rowsJob, n int, fixed, cost float64) {
	if n == 0 {
		return
	}
	j.n, j.grain = n, max(64, pad16(ceil(n, 2*len(b.pool.workers))))
	b.jobs.rows = j
	b.run(ceil(n, j.grain), int64(fixed+cost*float64(n)), &b.jobs.rows)
}
