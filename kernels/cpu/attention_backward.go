package cpu

import (
	"fmt"
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
)

// attentionBackwardJob is AttentionBackward: first delta by rows, then, at the same time, dQ over
// (block, kv head, part) and the pages' dK and dV over (distinct page, kv head).
type attentionBackwardJob struct {
	attentionView
	grad  kernels.AttentionGrad
	order *pageOrder
	gate  *gate
	delta unsafe.Pointer // [N, H]
	dims  int            // tasks before dQ's
	dqs   int            // tasks before the pages'
}

// deltaRows is the rows of a task that makes delta.
const deltaRows = 32

// AttentionBackward: see kernels.AttentionGrad.
func (b *Backend) AttentionBackward(a *kernels.AttentionArgs, g *kernels.AttentionGrad) {
	if a.Q.Rows == 0 {
		return
	}
	j := &b.jobs.attnBack
	work := j.load(a, len(b.pool.workers))
	j.grad, j.order, j.gate = *g, &b.order, &b.pool.gate
	j.order.build(&j.attentionView)
	pages, n := len(j.order.pages), a.Q.Rows
	if need := kernels.AttentionScratch(n, pages, a.Heads, a.KV.Heads, j.dim); g.Scratch.Len() < need {
		panic(fmt.Sprintf("cpu: AttentionBackward: scratch of %d floats, want %d for %d pages", g.Scratch.Len(), need, pages))
	}
	j.delta = at(g.Scratch.Reshape(1, g.Scratch.Len()), 0, pages*2*a.KV.Heads*j.dim*vec.PageSize)
	j.dims = ceil(n, deltaRows)
	j.dqs = j.dims + len(j.blocks)*a.KV.Heads*j.parts
	j.gate.close(j.dims)
	b.run(j.dqs+pages*a.KV.Heads, work/3, j)

	gather := rowsJob{op: gatherKV, y: g.DK, a: g.DV, b: g.Rows, c: g.Slots, d: g.Scratch, kv: a.KV}
	gather.order = j.order
	b.runColumns(gather, a.KV.Heads*j.dim, 0, 4*float64(g.DK.Rows))
}

func (j *attentionBackwardJob) do(w *worker, task int) {
	switch {
	case task < j.dims:
		j.makeDelta(w, task*deltaRows, min((task+1)*deltaRows, j.Q.Rows))
		j.gate.open()
	case task < j.dqs:
		j.gate.pass(w)
		j.queryGrad(w, task-j.dims)
	default:
		j.gate.pass(w)
		task -= j.dqs
		j.pageGrad(w, task/j.KV.Heads, task%j.KV.Heads)
	}
}

// makeDelta is delta[n, h] = Σ dOut·Out.
func (j *attentionBackwardJob) makeDelta(w *worker, from, to int) {
	delta := floats(j.delta, j.Q.Rows*j.Heads)
	for i := from; i < to; i++ {
		for h := range j.Heads {
			w.dot = vec.DotArgs{X: at(j.grad.DOut, i, h*j.dim), Y: at(j.Out, i, h*j.dim), N: int64(j.dim)}
			w.k.Dot(&w.dot)
			delta[i*j.Heads+h] = w.dot.Sum
		}
	}
}

// gatherScores fills lse and delta of query rows from those of the batch.
func (j *attentionBackwardJob) gatherScores(q *queries, r rowRange, head, n int) {
	copyRows(q.lse, n, at(j.LSE, r.from, head), j.LSE.Stride, r.to-r.from, n, n)
	copyRows(q.delta, n, add(j.delta, r.from*j.Heads+head), j.Heads, r.to-r.from, n, n)
}

func (j *attentionBackwardJob) queryGrad(w *worker, task int) {
	block, g, head, n := j.heads(task)
	rows, width := block.to-block.from, n*j.dim
	q := j.queryScratch(w, block, n, vec.AttnScratch(j.dim)+2*rows*width)
	j.gatherScores(&q, block, head, n)
	a := &w.dattn
	*a = vec.AttnBackwardQArgs{
		Q: at(j.Q, block.from, head*j.dim), DQ: at(j.grad.DQ, block.from, head*j.dim),
		DOut: at(j.grad.DOut, block.from, head*j.dim),
		QRow: int64(j.dim), QTok: int64(j.Q.Stride), OutRow: int64(j.dim), OutTok: int64(j.grad.DOut.Stride),
		Group: int64(n), D: int64(j.dim), Scale: j.Scale, Softcap: j.Softcap,
		Scratch: q.rest,
	}
	beside := j.Q.Stride != j.grad.DQ.Stride // one stride serves both
	if beside {
		mine := add(q.rest, vec.AttnScratch(j.dim))
		copyRows(mine, width, a.Q, j.Q.Stride, rows, width, width)
		a.Q, a.DQ, a.QTok = mine, add(mine, rows*width), int64(width)
	}
	for i := range rows {
		clear(floats(add(a.DQ, i*int(a.QTok)), width))
	}
	w.task = attentionTask{view: &j.attentionView, block: block, head: head, heads: n, queries: q}
	w.task.q, w.task.dq, w.task.dout = a.Q, a.DQ, a.DOut
	j.visit(w, block, g, backwardPages)
	if beside {
		copyRows(at(j.grad.DQ, block.from, head*j.dim), j.grad.DQ.Stride, w.task.dq, width, rows, width, width)
	}
}

// backwardPages adds the gradient over a stretch of pages for some rows of the block.
func backwardPages(w *worker, r rowRange, from, to int) {
	t, a := &w.task, &w.dattn
	row := r.from - t.block.from
	skip := row * t.heads
	a.M = int64((r.to - r.from) * t.heads)
	a.Q, a.DQ, a.DOut = add(t.q, row*int(a.QTok)), add(t.dq, row*int(a.QTok)), add(t.dout, row*int(a.OutTok))
	a.Start, a.Limit = add(t.queries.start, skip), add(t.queries.limit, skip)
	a.LSE, a.Delta = add(t.queries.lse, skip), add(t.queries.delta, skip)
	a.KPages, a.VPages = unsafe.Pointer(&w.pages[0]), unsafe.Pointer(&w.vpages[0])
	step := max(1, attentionWork/2/(t.view.dim*int(a.M)))
	for p := from; p < to; p += step {
		a.Page0, a.PageN = int64(p), int64(min(step, to-p))
		w.k.AttnBackwardQ(a)
	}
}

// pageGrad is dK and dV of one page and kv head: over the rows that see it, in ascending order.
func (j *attentionBackwardJob) pageGrad(w *worker, slot, g int) {
	size := j.dim * vec.PageSize
	dk, dv := j.order.grads(j.grad.Scratch, j.KV, slot, g)
	clear(floats(dk, size))
	clear(floats(dv, size))
	id := int(j.order.pages[slot].id)
	a := &w.dkv
	*a = vec.AttnBackwardKVArgs{
		K: j.key(id, g), DK: dk, V: j.value(id, g), DV: dv,
		QRow: int64(j.dim), QTok: int64(j.Q.Stride), OutRow: int64(j.dim), OutTok: int64(j.grad.DOut.Stride),
		Group: int64(j.group), D: int64(j.dim), Scale: j.Scale, Softcap: j.Softcap,
	}
	head, step := g*j.group, max(1, attentionWork/2/(j.dim*j.group))
	for e := j.order.pages[slot].first; e != 0; e = j.order.visits[e].next {
		v := &j.order.visits[e]
		a.Page = int64(v.page)
		r := j.seeing(v.rows, int(v.page))
		for from := r.from; from < r.to; from += step {
			part := rowRange{from, min(from+step, r.to)}
			q := j.queryScratch(w, part, j.group, vec.AttnScratch(j.dim))
			j.gatherScores(&q, part, head, j.group)
			a.Q, a.DOut = at(j.Q, from, head*j.dim), at(j.grad.DOut, from, head*j.dim)
			a.Start, a.Limit, a.LSE, a.Delta, a.Scratch, a.M = q.start, q.limit, q.lse, q.delta, q.rest, int64(q.m)
			w.k.AttnBackwardKV(a)
		}
	}
}

// seeing cuts rows off both ends of r that see nothing of a page.
func (j *attentionView) seeing(r rowRange, page int) rowRange {
	sees := func(i int) bool {
		return int(j.positions[i]) >= page*vec.PageSize && j.first(i) < (page+1)*vec.PageSize
	}
	for r.from < r.to && !sees(r.from) {
		r.from++
	}
	for r.from < r.to && !sees(r.to-1) {
		r.to--
	}
	return r
}

// gatherKV brings the pages' gradients of some columns to the rows: pairs in order.
func gatherKV(j *rowsJob, _ *worker, from, to int) {
	for i := range j.y.Rows {
		clear(floats(at(j.y, i, from), to-from))
		clear(floats(at(j.a, i, from), to-from))
	}
	rows, slots, dim := j.b.I32(), j.c.I32(), j.kv.Dim
	for i, slot := range slots {
		place, seen := j.order.place(slot / vec.PageSize)
		if !seen {
			continue // no row attends to it
		}
		pos := int(slot % vec.PageSize)
		row := index(rows[i], j.y.Rows, "row")
		dk, dv := floats(at(j.y, row, 0), to), floats(at(j.a, row, 0), to)
		for c := from; c < to; {
			g, d := c/dim, c%dim
			n := min(dim-d, to-c)
			k, v := j.order.grads(j.d, j.kv, place, g)
			column := floats(add(k, d*vec.PageSize+pos), (n-1)*vec.PageSize+1)
			for x, y := range floats(add(v, pos*dim+d), n) {
				dk[c+x] += column[x*vec.PageSize]
				dv[c+x] += y
			}
			c += n
		}
	}
}
