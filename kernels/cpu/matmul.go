package cpu

import (
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/quant"
)

const (
	tileDepth = 512 // k decoded at a time, so that two panels are 64 KB
	fewRows   = 4   // up to here a call of Gemm needs four panels to have enough chains in flight
	rowBlock  = 96  // rows of x that one call of Gemm sees: 192 KB at full depth
	gemvWork  = 1 << 20
)

// forward is one product y = start + x·Wᵀ over the rows of a call, and the second half of its LoRA.
type forward struct {
	x    unsafe.Pointer
	xRow int
	y    unsafe.Pointer
	yRow int
	w    matrix
	bias unsafe.Pointer // [Out] or nil
	keep bool

	a     matrix // [R, In]
	b     matrix // [Out, R]
	h     unsafe.Pointer
	hRow  int
	scale float32
	lora  bool
}

// matMulJob is every product of one x: first the tasks that make H, which the second half of the
// others waits for, then runs of panels.
type matMulJob struct {
	b        *Backend
	products []forward
	rows     int
	segs     []segment
}

// segment is a run of tasks of one kind: steps along the panels times blocks of rows.
type segment struct {
	kind, product   int
	first           int // task
	steps, step     int // panels or columns
	blocks, blockOf int // rows
}

const (
	makeH = iota
	makeY
)

// find returns the segment of a task and the task's step and row block.
func find(segs []segment, task int) (s *segment, step, block int) {
	i := len(segs) - 1
	for segs[i].first > task {
		i--
	}
	s = &segs[i]
	task -= s.first
	return s, task / s.blocks, task % s.blocks
}

// MatMul computes every product of the same x [N, In].
func (b *Backend) MatMul(x kernels.Tensor, products []kernels.Product) {
	rounds := false
	for i := range products {
		rounds = rounds || products[i].W.Rounds()
	}
	if !rounds {
		b.matMul(x, products, 0, x.Rows)
		return
	}
	row := codesRow(x.Cols)
	if err := b.roomForCodes(row); err != nil {
		b.fail(err)
		return
	}
	most := len(b.codes) / row
	for r := 0; r < x.Rows; r += most {
		n := min(most, x.Rows-r)
		b.round(x, r, n)
		b.matMul(x, products, r, n)
	}
}

// matMul is MatMul for the rows [r0, r0+rows).
func (b *Backend) matMul(x kernels.Tensor, products []kernels.Product, r0, rows int) {
	if rows == 0 {
		return
	}
	j := &b.jobs.matmul
	j.b, j.rows, j.products, j.segs = b, rows, j.products[:0], j.segs[:0]
	panels, cost := 0, 0
	for i := range products {
		f := forwardOf(x, &products[i], r0)
		j.products = append(j.products, f)
		panels += ceil(f.w.out, vec.Lanes)
		cost += f.cost()
	}
	tasks, waits := 0, 0
	for i := range j.products {
		if f := &j.products[i]; f.lora {
			s := segment{kind: makeH, product: i, first: tasks, steps: ceil(f.a.out, vec.Lanes), step: 1}
			s.blocks, s.blockOf = split(j.rows, 32)
			tasks += s.steps * s.blocks
			j.segs = append(j.segs, s)
		}
	}
	waits = tasks
	step := b.panelStep(panels, j.rows)
	for i := range j.products {
		n := ceil(j.products[i].w.out, vec.Lanes)
		s := segment{kind: makeY, product: i, first: tasks, steps: ceil(n, step), step: step}
		s.blocks, s.blockOf = split(j.rows, edgeRows)
		tasks += s.steps * s.blocks
		j.segs = append(j.segs, s)
	}
	b.pool.gate.close(waits)
	b.run(tasks, int64(cost)*int64(j.rows)/workPerNs, j)
}

// workPerNs is a guess at the multiply-adds of one worker in a nanosecond, to tell small from large.
const workPerNs = 16

// cost is the multiply-adds of one row; those of bytes count less.
func (f *forward) cost() int {
	n := f.w.out * f.w.in
	if f.w.rounds {
		n /= 2
	}
	if f.lora {
		n += f.a.out * (f.a.in + f.b.out)
	}
	return n
}

// split cuts rows into nearly equal blocks of at most most.
func split(rows, most int) (blocks, blockOf int) {
	blocks = ceil(rows, most)
	blockOf = ceil(rows, blocks)
	return ceil(rows, blockOf), blockOf
}

// panelStep is the panels of a task: enough tasks to share evenly, each of whole groups of four.
func (b *Backend) panelStep(panels, rows int) int {
	step := panels / (8 * len(b.pool.workers) * ceil(rows, edgeRows))
	return max(4, min(step, 64)&^3)
}

func forwardOf(x kernels.Tensor, p *kernels.Product, r0 int) forward {
	f := forward{
		x: at(x, r0, 0), xRow: x.Stride,
		y: at(p.Y, r0, 0), yRow: p.Y.Stride,
		w: matrixOf(p.W), keep: p.Keep,
	}
	if p.Bias.Present() {
		f.bias = at(p.Bias, 0, 0)
	}
	if l := p.LoRA; l != nil {
		f.lora, f.a, f.b, f.scale = true, matrixOf(l.A), matrixOf(l.B), l.Scale
		f.h, f.hRow = at(p.H, r0, 0), p.H.Stride
	}
	return f
}

func (j *matMulJob) do(w *worker, task int) {
	s, step, block := find(j.segs, task)
	f := &j.products[s.product]
	r0 := block * s.blockOf
	rows := min(s.blockOf, j.rows-r0)
	x := add(f.x, r0*f.xRow)
	if s.kind == makeH {
		h := add(f.h, r0*f.hRow+step*vec.Lanes)
		w.multiply(h, f.hRow, &f.a, step, step+1, x, f.xRow, rows, false)
		for i := range rows {
			w.scaled(add(h, i*f.hRow), add(h, i*f.hRow), vec.Lanes, f.scale)
		}
		j.b.pool.gate.open()
		return
	}
	p0 := step * s.step
	p1 := min(p0+s.step, ceil(f.w.out, vec.Lanes))
	whole := min(p1, f.w.out/vec.Lanes)
	if p0 < whole {
		y := add(f.y, r0*f.yRow+p0*vec.Lanes)
		keep := w.start(f, y, f.yRow, rows, p0*vec.Lanes, (whole-p0)*vec.Lanes)
		j.base(w, f, y, f.yRow, p0, whole, r0, rows, keep)
		if f.lora {
			j.b.pool.gate.pass(w)
			w.multiply(y, f.yRow, &f.b, p0, whole, add(f.h, r0*f.hRow), f.hRow, rows, true)
		}
	}
	if whole < p1 {
		j.edge(w, f, r0, rows, whole)
	}
}

// base is the product with the base weight, under its contract.
func (j *matMulJob) base(w *worker, f *forward, y unsafe.Pointer, yRow, p0, p1, r0, rows int, keep bool) {
	if f.w.rounds {
		w.multiply8(y, yRow, &f.w, p0, p1, j.b.codesOf(r0, f.w.in), codesRow(f.w.in), rows, keep)
		return
	}
	w.multiply(y, yRow, &f.w, p0, p1, add(f.x, r0*f.xRow), f.xRow, rows, keep)
}

// edge computes the last panel, of which y has only the first outputs, beside y.
func (j *matMulJob) edge(w *worker, f *forward, r0, rows, panel int) {
	n := f.w.out - panel*vec.Lanes
	y := add(f.y, r0*f.yRow+panel*vec.Lanes)
	keep := w.start(f, y, f.yRow, rows, panel*vec.Lanes, n)
	if keep {
		copyRows(w.edge, vec.Lanes, y, f.yRow, rows, n, vec.Lanes)
	}
	j.base(w, f, w.edge, vec.Lanes, panel, panel+1, r0, rows, keep)
	if f.lora {
		j.b.pool.gate.pass(w)
		w.multiply(w.edge, vec.Lanes, &f.b, panel, panel+1, add(f.h, r0*f.hRow), f.hRow, rows, true)
	}
	copyRows(y, f.yRow, w.edge, vec.Lanes, rows, n, n)
}

// start puts what the chains of n outputs from column c on begin with into y, and tells whether
// that is something else than zero.
func (w *worker) start(f *forward, y unsafe.Pointer, yRow, rows, c, n int) bool {
	if f.bias == nil {
		return f.keep
	}
	bias := add(f.bias, c)
	for i := range rows {
		if f.keep {
			w.plus(add(y, i*yRow), bias, n)
		} else {
			copy(floats(add(y, i*yRow), n), floats(bias, n))
		}
	}
	return true
}

// copyRows copies rows of n float32, and zeros from there to width.
func copyRows(dst unsafe.Pointer, dstRow int, src unsafe.Pointer, srcRow, rows, n, width int) {
	for i := range rows {
		d := floats(add(dst, i*dstRow), width)
		copy(d, floats(add(src, i*srcRow), n))
		clear(d[n:])
	}
}

// multiply is y = x·Wᵀ for rows of x and the whole panels [p0, p1), y beginning at panel p0. keep:
// the chains go on from what y holds. Each output is one chain over k in ascending order, whichever
// way it is computed.
func (w *worker) multiply(y unsafe.Pointer, yRow int, m *matrix, p0, p1 int, x unsafe.Pointer, xRow, rows int, keep bool) {
	if rows == 1 {
		w.multiplyRow(y, m, p0, p1, x, keep)
		return
	}
	group, most := 2, tileDepth
	if rows <= fewRows {
		group, most = 4, tileDepth/2
	}
	depth := (ceil(m.in, ceil(m.in, most)) + 31) &^ 31
	for p := p0; p < p1; p += group {
		n := min(group, p1-p)
		for k := 0; k < m.in; k += depth {
			kn := min(depth, m.in-k)
			g := &w.gemm
			if m.format == quant.F32 {
				g.B, g.BPanel = add(m.at(p), k*vec.Lanes), int64(m.panel/4)
			} else {
				for i := range n {
					w.decodePanel(add(w.tile, i*kn*vec.Lanes), m, p+i, k, kn)
				}
				g.B, g.BPanel = w.tile, int64(kn*vec.Lanes)
			}
			g.BRed, g.ARed, g.CPanel = vec.Lanes, 1, vec.Lanes
			g.ARow, g.CRow = int64(xRow), int64(yRow)
			g.P, g.K = int64(n), int64(kn)
			g.Keep = flag(keep || k > 0)
			for r := 0; r < rows; r += rowBlock {
				g.A, g.C = add(x, r*xRow+k), add(y, r*yRow+(p-p0)*vec.Lanes)
				g.M = int64(min(rowBlock, rows-r))
				w.k.Gemm(g)
			}
		}
	}
}

// multiplyRow is multiply for one row, decoding in registers.
func (w *worker) multiplyRow(y unsafe.Pointer, m *matrix, p0, p1 int, x unsafe.Pointer, keep bool) {
	if !keep {
		clear(floats(y, (p1-p0)*vec.Lanes))
	}
	most := max(4, gemvWork/(m.in*vec.Lanes)&^3) // bounds the time in assembly
	for p := p0; p < p1; p += most {
		n := min(most, p1-p)
		w.gemv = vec.GemvArgs{
			X: x, W: m.at(p), Y: add(y, (p-p0)*vec.Lanes),
			K: int64(m.in), P: int64(n), PanelBytes: int64(m.panel),
		}
		w.k.Gemv[m.format](&w.gemv)
	}
}

// decodePanel writes k [k, k+n) of a panel to dst [n, 16].
func (w *worker) decodePanel(dst unsafe.Pointer, m *matrix, panel, k, n int) {
	w.decode = vec.DecodeArgs{Dst: dst, Panel: m.at(panel), K0: int64(k), K: int64(n)}
	w.k.Decode[m.format](&w.decode)
}

// plus is y += x over n float32.
func (w *worker) plus(y, x unsafe.Pointer, n int) {
	w.add = vec.AddArgs{Y: y, X: x, N: int64(n)}
	w.k.Add(&w.add)
}

// scaled is y = a·x over n float32.
func (w *worker) scaled(y, x unsafe.Pointer, n int, a float32) {
	w.scale = vec.ScaleArgs{Y: y, X: x, N: int64(n), A: a}
	w.k.Scale(&w.scale)
}
