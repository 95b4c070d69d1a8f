package cpu

import (
	"math"
	"unsafe"

	"graft/kernels/cpu/vec"
)

const (
	splitPages   = 24 // pages from which two passes are worth their second start
	stretchLeast = 8  // pages of a task of products with keys
)

// attentionSplitJob is Attention when there are fewer (block, kv head) than it takes to keep every
// worker busy: a few rows that look far back. Products with keys are shared out by pages, and then,
// behind the gate, those with values by elements of the head. A chain stays whole either way, so the
// bits are those of attentionJob.
type attentionSplitJob struct {
	attentionView
	gate *gate

	scores             unsafe.Pointer // [blocks, kv heads, size]: of each [pages, rows·group, 16]
	size               int
	stretch, stretches int // pages of a task of the first pass, and how many of them a block may have
	width, widths      int // elements of a task of the second, and how many of them a head has
	first              int // tasks of the first pass
}

// load decides whether the operation in v is to be split, and how.
func (j *attentionSplitJob) load(v *attentionView, b *Backend) bool {
	workers, groups := len(b.pool.workers), len(v.blocks)*v.KV.Heads
	if workers == 1 || groups >= 4*workers || v.dim%vec.Lanes != 0 {
		return false
	}
	pages, least, rows := 0, math.MaxInt, 0
	for _, block := range v.blocks {
		if v.run(block, block.from) != block {
			return false
		}
		from, to := v.span(block)
		pages, least, rows = max(pages, to-from), min(least, to-from), max(rows, block.to-block.from)
	}
	size := pages * rows * v.group * vec.PageSize
	if least < 1 || pages < splitPages || 4*int64(size)*int64(groups) > int64(len(b.codes)) {
		return false
	}
	j.attentionView, j.gate, j.scores, j.size = *v, &b.pool.gate, unsafe.Pointer(&b.codes[0]), size
	j.stretch = max(stretchLeast, ceil(pages*groups, 8*workers))
	j.stretches = ceil(pages, j.stretch)
	j.width = pad16(ceil(v.dim, ceil(2*workers, groups)))
	j.widths = ceil(v.dim, j.width)
	j.first = groups * j.stretches
	j.gate.close(j.first)
	return true
}

func (j *attentionSplitJob) tasks() int { return j.first + len(j.blocks)*j.KV.Heads*j.widths }

func (j *attentionSplitJob) do(w *worker, task int) {
	if task < j.first {
		j.multiplyKeys(w, task/j.stretches, task%j.stretches)
		j.gate.open()
		return
	}
	j.gate.pass(w)
	task -= j.first
	j.multiplyValues(w, task/j.widths, task%j.widths)
}

// of is the block and the kv head of a group, and where its products with keys begin.
func (j *attentionSplitJob) of(group int) (block rowRange, g int, scores unsafe.Pointer) {
	return j.blocks[group/j.KV.Heads], group % j.KV.Heads, add(j.scores, group*j.size)
}

func (j *attentionSplitJob) multiplyKeys(w *worker, group, stretch int) {
	block, g, scores := j.of(group)
	first, end := j.span(block)
	from := first + stretch*j.stretch
	to := min(end, from+j.stretch)
	if from >= to {
		return
	}
	m := (block.to - block.from) * j.group
	j.addresses(w, block.from, from, to, g)
	a := &w.scores
	*a = vec.AttnScoresArgs{
		Q: at(j.Q, block.from, g*j.group*j.dim), KPages: unsafe.Pointer(&w.pages[0]),
		QRow: int64(j.dim), QTok: int64(j.Q.Stride), Group: int64(j.group), M: int64(m), D: int64(j.dim),
	}
	step := max(1, attentionWork/(j.dim*m))
	for p := from; p < to; p += step {
		a.S, a.Page0, a.PageN = add(scores, (p-first)*m*vec.PageSize), int64(p), int64(min(step, to-p))
		w.k.AttnScores(a)
	}
}

func (j *attentionSplitJob) multiplyValues(w *worker, group, part int) {
	block, g, scores := j.of(group)
	from, to := j.span(block)
	head, d0 := g*j.group, part*j.width
	d := min(j.width, j.dim-d0)
	q := j.queryScratch(w, block, j.group, 0)
	state := floats(q.state, 2*q.m)
	for i := range q.m {
		state[2*i], state[2*i+1] = float32(math.Inf(-1)), 0
	}
	j.addresses(w, block.from, from, to, g)
	for p := from; p < to; p++ {
		w.vpages[p] = add(w.vpages[p], d0)
	}
	out := at(j.Out, block.from, head*j.dim+d0)
	a := &w.values
	*a = vec.AttnValuesArgs{
		Out: out, VPages: unsafe.Pointer(&w.vpages[0]), Start: q.start, Limit: q.limit, State: q.state,
		OutRow: int64(j.dim), OutTok: int64(j.Out.Stride), Group: int64(j.group), M: int64(q.m), D: int64(d), VRow: int64(j.dim),
		Scale: j.Scale, Softcap: j.Softcap,
	}
	step := max(1, attentionWork/(d*q.m))
	for p := from; p < to; p += step {
		a.S, a.Page0, a.PageN = add(scores, (p-from)*q.m*vec.PageSize), int64(p), int64(min(step, to-p))
		w.k.AttnValues(a)
	}
	w.finish = vec.AttnFinishArgs{
		Out: out, State: q.state, LSE: q.lse,
		OutRow: int64(j.dim), OutTok: int64(j.Out.Stride), Group: int64(j.group), M: int64(q.m), D: int64(d),
	}
	w.k.AttnFinish(&w.finish)
	if part == 0 && j.LSE.Present() {
		copyRows(at(j.LSE, block.from, head), j.LSE.Stride, q.lse, j.group, block.to-block.from, j.group, j.group)
	}
}
