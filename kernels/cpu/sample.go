package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/libm"
)

// sampleJob is Sample: the logits by runs of panels, then, behind the gate, the chunk states by
// (row, chunk); and in a second job the draws by row.
type sampleJob struct {
	kernels.SampleArgs
	w               matrix
	gate            *gate
	steps, step     int // panels
	blocks, blockOf int // rows
	chunks          int
	states          []chunkState // [M, chunks]
	faults          []fault      // [M]
	drawing         bool
}

// fault is why a row could not be drawn.
type fault uint8

const (
	notFinite fault = 1 + iota
	nothingLeft
)

func (f fault) String() string {
	if f == notFinite {
		return "its logits are not finite: the weights or the hidden state are broken"
	}
	return "no token is left to draw: all are banned"
}

// Sample draws one token a row: see kernels.SampleArgs. A row that cannot be drawn fails, which Sync
// tells; its result is not defined.
func (b *Backend) Sample(a *kernels.SampleArgs) {
	rows := len(a.Rows)
	if rows == 0 {
		return
	}
	j := &b.jobs.sample
	j.SampleArgs, j.w, j.gate, j.drawing = *a, matrixOf(a.W), &b.pool.gate, false
	panels := ceil(j.w.out, vec.Lanes)
	j.step = b.panelStep(panels, rows)
	j.steps = ceil(panels, j.step)
	j.blocks, j.blockOf = split(rows, edgeRows)
	j.chunks = ceil(j.w.out, kernels.VocabChunk)
	j.states = b.chunkStates(rows * j.chunks)
	if cap(j.faults) < rows {
		j.faults = make([]fault, rows)
	}
	j.faults = j.faults[:rows]
	clear(j.faults)

	work := int64(rows) * int64(j.w.out)
	j.gate.close(j.steps * j.blocks)
	b.run(j.steps*j.blocks+rows*j.chunks, work*int64(j.w.in)/workPerNs, j)
	j.drawing = true
	b.run(rows, work, j)
	for i, f := range j.faults {
		if f != 0 {
			b.fail(fmt.Errorf("cpu: Sample: row %d: %v", i, f))
			break
		}
	}
}

func (j *sampleJob) do(w *worker, task int) {
	if j.drawing {
		j.faults[task] = j.sample(w, task)
		return
	}
	if first := j.steps * j.blocks; task < first {
		p0, r0 := task/j.blocks*j.step, task%j.blocks*j.blockOf
		p1, rows := min(p0+j.step, ceil(j.w.out, vec.Lanes)), min(j.blockOf, len(j.Rows)-r0)
		w.logits(at(j.Logits, r0, p0*vec.Lanes), j.Logits.Stride, &j.w, p0, p1,
			at(j.Hidden, r0, 0), j.Hidden.Stride, rows, j.Softcap)
		j.gate.open()
		return
	}
	j.gate.pass(w)
	task -= j.steps * j.blocks
	row, c := task/j.chunks, task%j.chunks
	j.states[task] = w.scaledChunk(at(j.Logits, row, 0), c, j.w.out, j.Rows[row].InvT)
}

// scaledChunk is the state of chunk c of raw logits of a row.
func (w *worker) scaledChunk(raw unsafe.Pointer, c, vocab int, invT float32) chunkState {
	v := c * kernels.VocabChunk
	n := min(kernels.VocabChunk, vocab-v)
	w.scaled(w.tile, add(raw, v), n, invT)
	return w.chunk(w.tile, n)
}

// sample draws for one row and reports on it.
func (j *sampleJob) sample(w *worker, row int) fault {
	r, out := &j.Rows[row], &j.Out[row]
	raw, states := at(j.Logits, row, 0), j.states[row*j.chunks:][:j.chunks]
	lse, entropy := merge(states)
	if math.IsNaN(lse) || math.IsInf(lse, 0) {
		return notFinite
	}
	logits := floats(raw, j.w.out)
	out.Top = out.Top[:0]
	if r.NumTop > 0 {
		z := w.scratchRow(j.w.out)
		w.scaledRow(z, raw, j.w.out, r.InvT)
		w.mostProbable(floats(z, j.w.out), r.NumTop, float32(math.Inf(-1)))
		for _, c := range w.candidates {
			out.Top = append(out.Top, kernels.TokenLogP{ID: c.id, LogP: logP(logits[c.id], r.InvT, lse)})
		}
	}
	if len(r.Bias) > 0 || len(r.Banned) > 0 {
		raw, states = j.adjust(w, r, raw)
		top := largest(states)
		switch {
		case math.IsInf(top, -1):
			return nothingLeft
		case math.IsInf(top, 1) || sumIsNaN(states):
			return notFinite
		}
	}
	var id int
	switch {
	case r.Greedy:
		w.argmax = vec.ArgMaxArgs{X: raw, N: int64(j.w.out)}
		w.k.ArgMax(&w.argmax)
		id = int(w.argmax.Index)
	case r.TopK > 0 || r.TopP < 1 || r.MinP > 0:
		id = w.drawTruncated(raw, largest(states), j.w.out, r)
	default:
		id = w.draw(raw, states, j.w.out, r.InvT, r.U)
	}
	out.ID, out.LogP, out.Entropy = int32(id), logP(logits[id], r.InvT, lse), float32(entropy)
	return 0
}

func sumIsNaN(states []chunkState) bool {
	for _, c := range states {
		if c.sum != c.sum {
			return true
		}
	}
	return false
}

// adjust returns a copy of a row's raw logits with its bias and bans, and the states of that. The
// copy is in the second half of the worker's scratch for two rows, see scratchRow.
func (j *sampleJob) adjust(w *worker, r *kernels.SampleRow, raw unsafe.Pointer) (unsafe.Pointer, []chunkState) {
	p := add(w.floats(2*j.w.out), j.w.out)
	z := floats(p, j.w.out)
	copy(z, floats(raw, j.w.out))
	for _, b := range r.Bias {
		z[index(b.ID, j.w.out, "biased token")] += b.Value
	}
	for _, id := range r.Banned {
		z[index(id, j.w.out, "banned token")] = float32(math.Inf(-1))
	}
	w.states = w.states[:0]
	for c := range j.chunks {
		w.states = append(w.states, w.scaledChunk(p, c, j.w.out, r.InvT))
	}
	return p, w.states
}

// draw inverts the cumulative distribution of softmax(raw·InvT) in ascending order of id: first over
// the chunks' sums, then inside one chunk. A token whose probability is 0 is never drawn.
func (w *worker) draw(raw unsafe.Pointer, states []chunkState, vocab int, invT float32, u float64) int {
	top, total := largest(states), 0.0
	for _, c := range states {
		total += mass(c, top)
	}
	target, sum, before, in := float64(u*total), 0.0, 0.0, -1 // sum: of the chunks before in
	for i, c := range states {
		if c.sum == 0 {
			continue
		}
		m := mass(c, top)
		if in >= 0 {
			sum += before
		}
		in, before = i, m
		if sum+m > target {
			break
		}
	}
	v := in * kernels.VocabChunk
	n := min(kernels.VocabChunk, vocab-v)
	w.scaled(w.tile, add(raw, v), n, invT)
	w.exp = vec.ExpArgs{Y: w.tile, X: w.tile, N: int64(n), Shift: states[in].max}
	w.k.Exp(&w.exp)
	scale, id := libm.Exp(float64(states[in].max)-top), v
	for i, p := range floats(w.tile, n) {
		if p == 0 {
			continue
		}
		id = v + i
		if sum += float64(float64(p) * scale); sum > target {
			break
		}
	}
	return id
}

// mass is what a chunk has of Σ exp(z − top).
func mass(c chunkState, top float64) float64 {
	return float64(float64(c.sum) * libm.Exp(float64(c.max)-top))
}

// scratchRow is scratch for one row of the vocabulary, which leaves the copy that adjust made alone.
func (w *worker) scratchRow(vocab int) unsafe.Pointer { return w.floats(2 * vocab) }

// scaledRow is z = raw·invT over a whole vocabulary, in pieces that bound the time in assembly.
func (w *worker) scaledRow(z, raw unsafe.Pointer, vocab int, invT float32) {
	for v := 0; v < vocab; v += kernels.VocabChunk {
		w.scaled(add(z, v), add(raw, v), min(kernels.VocabChunk, vocab-v), invT)
	}
}
