package cpu

import (
	"math"
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
)

// attentionWork bounds a call into the inner loops: query rows times pages times head dimension.
const attentionWork = 1 << 15

// blockQueries is the most query rows of a task; with more, pages fall out of the first cache.
const blockQueries = 96

// rowRange is the rows [from, to) of a batch.
type rowRange struct{ from, to int }

// attentionView is AttentionArgs as the tasks use them.
type attentionView struct {
	kernels.AttentionArgs
	group, dim     int
	seq, positions []int32
	tables         []int32
	blocks         []rowRange // rows of one sequence, or of sequences that begin with the same page
	parts, part    int        // a group's query heads are cut into parts of part heads
}

// attentionJob is Attention over (block, kv head, part of the group).
type attentionJob struct{ attentionView }

// Attention: see kernels.AttentionArgs.
func (b *Backend) Attention(a *kernels.AttentionArgs) {
	if a.Q.Rows == 0 {
		return
	}
	j := &b.jobs.attention
	work := j.load(a, len(b.pool.workers))
	if s := &b.jobs.split; s.load(&j.attentionView, b) {
		b.run(s.tasks(), work/8, s)
		return
	}
	b.run(len(j.blocks)*a.KV.Heads*j.parts, work/8, j)
}

// load reads the arguments, cuts the rows into blocks and returns the multiply-adds of the whole.
func (j *attentionView) load(a *kernels.AttentionArgs, workers int) int64 {
	j.AttentionArgs = *a
	j.group, j.dim = a.Heads/a.KV.Heads, a.KV.Dim
	j.seq, j.positions, j.tables = a.Seq.I32(), a.Positions.I32(), a.Tables.I32()
	n := a.Q.Rows
	most := min(ceil(n*a.KV.Heads, 4*workers), max(1, blockQueries/j.group))
	j.blocks = j.blocks[:0]
	seen := int64(0)
	for from := 0; from < n; {
		page := j.first(from) / vec.PageSize
		to := from + 1
		for to < n && to-from < most && j.shares(from, to, page) {
			to++
		}
		j.blocks = append(j.blocks, rowRange{from, to})
		from = to
	}
	for i := range n {
		seen += int64(int(j.positions[i]) + 1 - j.first(i))
	}
	tasks := len(j.blocks) * a.KV.Heads
	j.part = ceil(j.group, min(j.group, ceil(2*workers, tasks)))
	j.parts = ceil(j.group, j.part)
	return 2 * seen * int64(a.Heads*j.dim)
}

// first is the first position that row i sees.
func (j *attentionView) first(i int) int {
	if j.Window > 0 {
		return max(0, int(j.positions[i])-j.Window+1)
	}
	return 0
}

func (j *attentionView) page(row, page int) int32 {
	return j.tables[int(j.seq[row])*j.Tables.Stride+page]
}

// shares tells whether two rows read the same page of keys at page.
func (j *attentionView) shares(a, b, page int) bool {
	return j.seq[a] == j.seq[b] || j.page(a, page) == j.page(b, page)
}

// span is the pages [from, to) that the rows of a range see.
func (j *attentionView) span(r rowRange) (from, to int) {
	from = math.MaxInt
	for i := r.from; i < r.to; i++ {
		from = min(from, j.first(i)/vec.PageSize)
		to = max(to, int(j.positions[i])/vec.PageSize+1)
	}
	return from, to
}

// run is the longest range of rows of one sequence that begins at from, within r.
func (j *attentionView) run(r rowRange, from int) rowRange {
	to := from + 1
	for to < r.to && j.seq[to] == j.seq[from] {
		to++
	}
	return rowRange{from, to}
}

// shared is the end of the pages from page on that every sequence of the block has in common and
// reaches.
func (j *attentionView) shared(block rowRange, page int) int {
	end := math.MaxInt
	for at := block.from; at < block.to; {
		run := j.run(block, at)
		_, to := j.span(run)
		end = min(end, to)
		for p := page; p < end; p++ {
			if j.page(at, p) != j.page(block.from, p) {
				end = p
			}
		}
		at = run.to
	}
	return max(end, page)
}

// visit calls f for stretches of pages of the block, so that each row meets its pages in ascending
// order: first the pages that all its sequences share, for all rows at once, then for each sequence
// its own. w.pages and w.vpages hold the addresses of a stretch's pages for kv head g.
func (j *attentionView) visit(w *worker, block rowRange, g int, f func(w *worker, r rowRange, from, to int)) {
	from, _ := j.span(block)
	common := from
	if j.run(block, block.from) != block {
		if common = j.shared(block, from); common > from {
			j.addresses(w, block.from, from, common, g)
			f(w, block, from, common)
		}
	}
	for at := block.from; at < block.to; {
		run := j.run(block, at)
		lo, hi := j.span(run)
		if lo = max(lo, common); lo < hi {
			j.addresses(w, at, lo, hi, g)
			f(w, run, lo, hi)
		}
		at = run.to
	}
}

// addresses fills w.pages and w.vpages for the logical pages [from, to) of a row's table.
func (j *attentionView) addresses(w *worker, row, from, to, g int) {
	if len(w.pages) < to {
		w.pages, w.vpages = make([]unsafe.Pointer, 2*to), make([]unsafe.Pointer, 2*to)
	}
	for p := from; p < to; p++ {
		id := index(j.page(row, p), j.KV.K.Rows, "page")
		w.pages[p], w.vpages[p] = j.key(id, g), j.value(id, g)
	}
}

// key and value are the addresses of a page of kv head g.
func (j *attentionView) key(page, g int) unsafe.Pointer {
	return at(j.KV.K, page, g*j.dim*vec.PageSize)
}

func (j *attentionView) value(page, g int) unsafe.Pointer {
	return at(j.KV.V, page, g*j.dim*vec.PageSize)
}

// queries is the per-row scratch of a block: M = rows·heads query rows in order of row, then head.
type queries struct {
	m            int
	start, limit unsafe.Pointer // [M] int32
	state        unsafe.Pointer // [M, 2]
	lse, delta   unsafe.Pointer // [M]
	rest         unsafe.Pointer // as many float32 as asked for
}

// queryScratch lays out scratch for the rows of a block and n heads, and fills in what they see.
func (j *attentionView) queryScratch(w *worker, block rowRange, n, rest int) queries {
	m := (block.to - block.from) * n
	size := pad16(m)
	p := w.floats(6*size + rest)
	q := queries{m, p, add(p, size), add(p, 2*size), add(p, 4*size), add(p, 5*size), add(p, 6*size)}
	start, limit := unsafe.Slice((*int32)(q.start), m), unsafe.Slice((*int32)(q.limit), m)
	for i := range m {
		row := block.from + i/n
		start[i], limit[i] = int32(j.first(row)), j.positions[row]+1
	}
	return q
}

// heads are the query heads of a task: part of those that share kv head g.
func (j *attentionView) heads(task int) (block rowRange, g, from, n int) {
	part := task % j.parts
	task /= j.parts
	g = task % j.KV.Heads
	block = j.blocks[task/j.KV.Heads]
	from = part * j.part
	return block, g, g*j.group + from, min(j.part, j.group-from)
}

func (j *attentionJob) do(w *worker, task int) {
	block, g, head, n := j.heads(task)
	q := j.queryScratch(w, block, n, 0)
	state := floats(q.state, 2*q.m)
	for i := range q.m {
		state[2*i], state[2*i+1] = float32(math.Inf(-1)), 0
	}
	w.attn = vec.AttnArgs{
		QRow: int64(j.dim), QTok: int64(j.Q.Stride), OutRow: int64(j.dim), OutTok: int64(j.Out.Stride),
		Group: int64(n), D: int64(j.dim), Scale: j.Scale, Softcap: j.Softcap,
	}
	w.task = attentionTask{view: &j.attentionView, block: block, head: head, heads: n, queries: q}
	j.visit(w, block, g, forwardPages)
	w.finish = vec.AttnFinishArgs{
		Out: at(j.Out, block.from, head*j.dim), State: q.state, LSE: q.lse,
		OutRow: int64(j.dim), OutTok: int64(j.Out.Stride), Group: int64(n), M: int64(q.m), D: int64(j.dim),
	}
	w.k.AttnFinish(&w.finish)
	if j.LSE.Present() {
		copyRows(at(j.LSE, block.from, head), j.LSE.Stride, q.lse, n, block.to-block.from, n, n)
	}
}

// attentionTask is what visit's functions need to know of the task at hand.
type attentionTask struct {
	view        *attentionView
	block       rowRange
	head, heads int
	queries     queries

	q, dq, dout unsafe.Pointer // of the backward, at the block's first row
}

// forwardPages visits a stretch of pages for some rows of the block.
func forwardPages(w *worker, r rowRange, from, to int) {
	t, a := &w.task, &w.attn
	j, skip := t.view, (r.from-t.block.from)*t.heads
	a.M = int64((r.to - r.from) * t.heads)
	a.Q, a.Out = at(j.Q, r.from, t.head*j.dim), at(j.Out, r.from, t.head*j.dim)
	a.Start, a.Limit, a.State = add(t.queries.start, skip), add(t.queries.limit, skip), add(t.queries.state, 2*skip)
	a.KPages, a.VPages = unsafe.Pointer(&w.pages[0]), unsafe.Pointer(&w.vpages[0])
	step := max(1, attentionWork/(j.dim*int(a.M)))
	for p := from; p < to; p += step {
		a.Page0, a.PageN = int64(p), int64(min(step, to-p))
		w.k.AttnForward(a)
	}
}

// WriteKV stores rows of k and v at slots of the layer's pages.
func (b *Backend) WriteKV(kv kernels.KV, k, v, rows, slots kernels.Tensor) {
	n := slots.Cols
	b.runRows(rowsJob{op: writeRows, kv: kv, a: k, b: v, c: rows, d: slots}, n, 2*float64(kv.Heads*kv.Dim))
}

func writeRows(j *rowsJob, _ *worker, from, to int) {
	rows, slots, dim := j.c.I32(), j.d.I32(), j.kv.Dim
	for i := from; i < to; i++ {
		row := index(rows[i], j.a.Rows, "row")
		slot := index(slots[i], j.kv.K.Rows*vec.PageSize, "slot")
		page, pos := slot/vec.PageSize, slot%vec.PageSize
		k := floats(at(j.a, row, 0), j.kv.Heads*dim)
		dst := floats(add(at(j.kv.K, page, 0), pos), (len(k)-1)*vec.PageSize+1)
		for c, v := range k { // heads follow each other, each [D, 16]
			dst[c*vec.PageSize] = v
		}
		for g := range j.kv.Heads {
			copy(floats(at(j.kv.V, page, (g*vec.PageSize+pos)*dim), dim), floats(at(j.b, row, g*dim), dim))
		}
	}
}
