package cpu

import (
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/quant"
)

const (
	stripWidth = 32  // columns of dx that a task makes
	stripDepth = 512 // outputs transposed at a time: 64 KB
	gradDepth  = 32  // rows that one call sums into dW: not more pages of memory than a processor follows ahead
	gradWidth  = 256 // columns of a task of dW
	biasWidth  = 256 // columns of a task of dbias
)

// backward is the gradient of one product, as addresses.
type backward struct {
	dy        unsafe.Pointer
	dyRow     int
	w         matrix
	dw        matrix // base nil: frozen
	dbias     unsafe.Pointer
	lora      bool
	a, b      matrix
	da, dbmat matrix // base nil: frozen
	h, dh     unsafe.Pointer
	hRow      int
	dhRow     int
	scale     float32
	codes     int // where this dy begins in a rounded row, in bytes
}

// matMulBackwardJob is every gradient of a MatMul: first dH, which the LoRA terms of dx and dA wait
// for, then sums over rows, then dx.
type matMulBackwardJob struct {
	b     *Backend
	grads []backward
	rows  int
	x, dx unsafe.Pointer
	xRow  int
	dxRow int
	in    int
	keep  bool
	segs  []segment
	tasks int

	rounded roundedGrads
}

const (
	makeDH = iota
	makeDW
	makeDB
	makeDBias
	makeDX
	makeDA
	makeCodes
)

// MatMulBackward computes dx = Σ dy·W + LoRA terms and the parameter gradients asked for.
func (b *Backend) MatMulBackward(dx, x kernels.Tensor, grads []kernels.ProductGrad, keep bool) {
	if len(grads) == 0 || grads[0].DY.Rows == 0 {
		return
	}
	rows := grads[0].DY.Rows
	j := &b.jobs.backward
	*j = matMulBackwardJob{b: b, grads: j.grads[:0], segs: j.segs[:0], rows: rows, keep: keep}
	if x.Present() {
		j.x, j.xRow = at(x, 0, 0), x.Stride
	}
	if dx.Present() {
		j.dx, j.dxRow, j.in = at(dx, 0, 0), dx.Stride, dx.Cols
	}
	work, rounds := 0, false
	for i := range grads {
		g := backwardOf(&grads[i])
		j.grads = append(j.grads, g)
		work += 2 * g.w.out * g.w.in
		rounds = rounds || g.w.rounds
	}
	rounds = rounds && j.dx != nil
	j.plan(!rounds)
	b.run(j.tasks, int64(work)*int64(rows)/workPerNs, j)
	if rounds {
		j.inputGrads(int64(work) / workPerNs)
	}
}

func backwardOf(p *kernels.ProductGrad) backward {
	g := backward{dy: at(p.DY, 0, 0), dyRow: p.DY.Stride, w: matrixOf(p.W)}
	if p.DW.Present() {
		g.dw = matrixOf(p.DW)
	}
	if p.DBias.Present() {
		g.dbias = at(p.DBias, 0, 0)
	}
	if l := p.LoRA; l != nil {
		g.lora, g.a, g.b, g.scale = true, matrixOf(l.A), matrixOf(l.B), l.Scale
		g.h, g.hRow = at(p.H, 0, 0), p.H.Stride
		g.dh, g.dhRow = at(p.DH, 0, 0), p.DH.Stride
		if p.DA.Present() {
			g.da = matrixOf(p.DA)
		}
		if p.DB.Present() {
			g.dbmat = matrixOf(p.DB)
		}
	}
	return g
}

// plan lays out the tasks, dx among them or left to inputGrads.
func (j *matMulBackwardJob) plan(dx bool) {
	for i := range j.grads {
		if g := &j.grads[i]; g.lora && (j.dx != nil || g.da.base != nil) {
			j.push(segment{kind: makeDH, product: i, steps: 1}, 64)
		}
	}
	j.b.pool.gate.close(j.tasks)
	for i := range j.grads {
		g := &j.grads[i]
		if g.dw.base != nil {
			j.push(segment{kind: makeDW, product: i, steps: gradSteps(&g.dw, j.b.gradPanels(&g.dw))}, 0)
		}
		if g.dbmat.base != nil {
			j.push(segment{kind: makeDB, product: i, steps: gradSteps(&g.dbmat, j.b.gradPanels(&g.dbmat))}, 0)
		}
		if g.dbias != nil {
			j.push(segment{kind: makeDBias, product: i, steps: ceil(g.w.out, biasWidth)}, 0)
		}
	}
	if dx && j.dx != nil {
		j.rounded.to = j.rows
		j.planInput(j.rows)
	}
	for i := range j.grads {
		if g := &j.grads[i]; g.da.base != nil {
			j.push(segment{kind: makeDA, product: i, steps: gradSteps(&g.da, j.b.gradPanels(&g.da))}, 0)
		}
	}
}

// planInput adds the tasks of dx for the rows of the run, of which there are `rows`.
func (j *matMulBackwardJob) planInput(rows int) {
	strips := ceil(j.in, stripWidth)
	blocks := max(ceil(rows, edgeRows), ceil(6*len(j.b.pool.workers), strips))
	s := segment{kind: makeDX, first: j.tasks, steps: strips}
	s.blocks, s.blockOf = split(rows, max(48, ceil(rows, blocks)))
	j.tasks += s.steps * s.blocks
	j.segs = append(j.segs, s)
}

// push adds tasks: s.steps times the blocks of at most most rows, or one block if most is 0.
func (j *matMulBackwardJob) push(s segment, most int) {
	s.first, s.blocks, s.blockOf = j.tasks, 1, j.rows
	if most > 0 {
		s.blocks, s.blockOf = split(j.rows, most)
	}
	j.tasks += s.steps * s.blocks
	j.segs = append(j.segs, s)
}

// gradPanels is the panels of a task of a dW, an even number: of few columns many, so that rows of dy are
// read in long pieces, but enough tasks for all workers.
func (b *Backend) gradPanels(m *matrix) int {
	if m.in > gradWidth/4 {
		return 2
	}
	return max(2, min(ceil(m.out, vec.Lanes)/(2*len(b.pool.workers)), 16)&^1)
}

// gradSteps is the tasks of a dW: groups of panels times runs of columns.
func gradSteps(m *matrix, group int) int {
	return ceil(ceil(m.out, vec.Lanes), group) * ceil(m.in, gradWidth)
}

func (j *matMulBackwardJob) do(w *worker, task int) {
	s, step, block := find(j.segs, task)
	r0 := block * s.blockOf
	rows := min(s.blockOf, j.rows-r0)
	g := &j.grads[s.product]
	switch s.kind {
	case makeDH:
		j.loraHidden(w, g, r0, rows)
		j.b.pool.gate.open()
	case makeDW:
		w.weightGrad(&g.dw, j.b.gradPanels(&g.dw), step, j.x, j.xRow, g.dy, g.dyRow, j.rows)
	case makeDB:
		w.weightGrad(&g.dbmat, j.b.gradPanels(&g.dbmat), step, g.h, g.hRow, g.dy, g.dyRow, j.rows)
	case makeDBias:
		c := step * biasWidth
		for i := range j.rows {
			w.plus(add(g.dbias, c), add(g.dy, i*g.dyRow+c), min(biasWidth, g.w.out-c))
		}
	case makeDX:
		r0 += j.rounded.from
		j.inputGrad(w, r0, min(s.blockOf, j.rounded.to-r0), step*stripWidth)
	case makeCodes:
		j.roundSome(w, step)
	case makeDA:
		j.b.pool.gate.pass(w)
		w.weightGrad(&g.da, j.b.gradPanels(&g.da), step, j.x, j.xRow, g.dh, g.dhRow, j.rows)
	}
}

// loraHidden is dH = Scale·dy·B for some rows. The lanes beyond R become zero.
func (j *matMulBackwardJob) loraHidden(w *worker, g *backward, r0, rows int) {
	dh, width := add(g.dh, r0*g.dhRow), pad16(g.b.in)
	for k := 0; k < g.b.in; k += stripWidth {
		kn := min(stripWidth, g.b.in-k)
		w.transposed(add(dh, k), g.dhRow, rows, add(g.dy, r0*g.dyRow), g.dyRow, &g.b, 0, g.b.out, k, kn, false)
	}
	for i := range rows {
		w.scaled(add(dh, i*g.dhRow), add(dh, i*g.dhRow), width, g.scale)
	}
}

// inputGrad is the columns [k, k+stripWidth) of dx for some rows: for each product in order the
// chain over its outputs, then the chain over its LoRA's rank.
func (j *matMulBackwardJob) inputGrad(w *worker, r0, rows, k int) {
	kn, keep := min(stripWidth, j.in-k), j.keep
	dx := add(j.dx, r0*j.dxRow+k)
	for i := range j.grads {
		g := &j.grads[i]
		if g.w.rounds {
			codes := unsafe.Add(j.rounded.codes, (r0-j.rounded.from)*j.rounded.row+g.codes)
			w.turned(dx, j.dxRow, rows, codes, j.rounded.row, &g.w, 0, g.w.out, k, kn, keep)
		} else {
			w.inputStrip(dx, j.dxRow, rows, add(g.dy, r0*g.dyRow), g.dyRow, &g.w, 0, g.w.out, k, kn, keep)
		}
		keep = true
		if g.lora {
			j.b.pool.gate.pass(w)
			w.inputStrip(dx, j.dxRow, rows, add(g.dh, r0*g.dhRow), g.dhRow, &g.a, 0, g.a.out, k, kn, true)
		}
	}
}

// inputStrip is transposed for a dx that has just kn columns here, and at most edgeRows rows.
func (w *worker) inputStrip(dx unsafe.Pointer, dxRow, rows int, dy unsafe.Pointer, dyRow int, m *matrix, o0, o1, k, kn int, keep bool) {
	if kn%vec.Lanes == 0 {
		w.transposed(dx, dxRow, rows, dy, dyRow, m, o0, o1, k, kn, keep)
		return
	}
	if keep {
		copyRows(w.edge, stripWidth, dx, dxRow, rows, kn, stripWidth)
	}
	w.transposed(w.edge, stripWidth, rows, dy, dyRow, m, o0, o1, k, kn, keep)
	copyRows(dx, dxRow, w.edge, stripWidth, rows, kn, kn)
}

// transposed is dx = dy·W for rows of dy and the columns [k, k+kn) of W, kn at most stripWidth,
// summed over the outputs [o0, o1), o0 a multiple of 16; dx and dy begin at column k and output o0.
// keep: the chains go on from dx. It writes whole groups of 16 columns.
func (w *worker) transposed(dx unsafe.Pointer, dxRow, rows int, dy unsafe.Pointer, dyRow int, m *matrix, o0, o1, k, kn int, keep bool) {
	width := pad16(kn)
	for o := o0; o < o1; o += stripDepth {
		n := min(stripDepth, o1-o)
		w.transposePanels(m, o, n, k, kn)
		g := &w.gemm
		g.B, g.BPanel, g.BRed = w.tile, vec.Lanes, int64(width)
		g.ARow, g.ARed, g.CRow, g.CPanel = int64(dyRow), 1, int64(dxRow), vec.Lanes
		g.P, g.K = int64(width/vec.Lanes), int64(n)
		g.Keep = flag(keep || o > o0)
		for r := 0; r < rows; r += rowBlock {
			g.A, g.C, g.M = add(dy, r*dyRow+o-o0), add(dx, r*dxRow), int64(min(rowBlock, rows-r))
			w.k.Gemm(g)
		}
	}
}

// transposePanels fills the tile with [n outputs from o, columns k … k+kn−1 and zeros up to whole
// groups of 16].
func (w *worker) transposePanels(m *matrix, o, n, k, kn int) {
	width := pad16(kn)
	for i := 0; i < n; i += vec.Lanes {
		panel := (o + i) / vec.Lanes
		src := w.strip()
		if m.format == quant.F32 && kn == width {
			src = add(m.at(panel), k*vec.Lanes)
		} else {
			w.decodePanel(src, m, panel, k, kn)
			clear(floats(add(src, kn*vec.Lanes), (width-kn)*vec.Lanes))
		}
		w.transpose = vec.TransposeArgs{
			Dst: add(w.tile, i*width), Src: src,
			DstRow: int64(width), SrcRow: vec.Lanes, N: int64(width / vec.Lanes),
		}
		w.k.Transpose16(&w.transpose)
	}
}

// weightGrad adds dyᵀ·x, summed over all rows in order, to one step of gradSteps, of `group` panels, of a
// packed F32 gradient. dy is read up to the gradient's outputs only, and the padding gets zeros.
func (w *worker) weightGrad(m *matrix, group, step int, x unsafe.Pointer, xRow int, dy unsafe.Pointer, dyRow, rows int) {
	runs := ceil(m.in, gradWidth)
	first, k := step/runs*group, step%runs*gradWidth
	end := min(first+group, ceil(m.out, vec.Lanes))
	g := &w.gemm
	for r := 0; r < rows; r += gradDepth {
		depth := min(gradDepth, rows-r)
		g.A, g.ARow, g.ARed = add(x, r*xRow+k), 1, int64(xRow)
		g.M, g.K, g.Keep = int64(min(gradWidth, m.in-k)), int64(depth), 1
		g.BPanel, g.CRow, g.CPanel = vec.Lanes, vec.Lanes, int64(m.panel/4)
		for p := first; p < end; p += 2 {
			panels := min(2, end-p)
			n := min(panels*vec.Lanes, m.out-p*vec.Lanes)
			g.B, g.BRed = add(dy, r*dyRow+p*vec.Lanes), int64(dyRow)
			if n < panels*vec.Lanes { // what lies beyond the outputs is not there to be read
				copyRows(w.edge, 2*vec.Lanes, g.B, dyRow, depth, n, 2*vec.Lanes)
				g.B, g.BRed = w.edge, 2*vec.Lanes
			}
			g.C, g.P = add(m.at(p), k*vec.Lanes), int64(panels)
			w.k.Gemm(g)
		}
	}
}
