package cpu

import (
	"math"
	"slices"
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/libm"
)

// chunkState is what one chunk of the vocabulary adds to a row's log-sum-exp and entropy.
type chunkState struct{ max, sum, sumZ float32 }

// merge is the log-sum-exp of a row and its entropy, from its chunks in order. A logit that is not
// finite makes the first NaN or infinite.
func merge(chunks []chunkState) (lse, entropy float64) {
	top, sum, sumZ := largest(chunks), 0.0, 0.0
	for _, c := range chunks {
		scale := libm.Exp(float64(c.max) - top)
		sum += float64(float64(c.sum) * scale)
		sumZ += float64(float64(c.sumZ) * scale)
	}
	lse = top + libm.Log(sum)
	return lse, lse - sumZ/sum
}

func largest(chunks []chunkState) float64 {
	top := math.Inf(-1)
	for _, c := range chunks {
		top = max(top, float64(c.max))
	}
	return top
}

// logP is the log-prob of a token with raw logit z: the one place where it is rounded, for LogProbs
// and Sample alike.
func logP(z, invT float32, lse float64) float32 {
	return float32(float64(float32(z*invT)) - lse)
}

// logits is softcap(hidden·Wᵀ) for rows and the panels [p0, p1), z beginning at panel p0.
func (w *worker) logits(z unsafe.Pointer, zRow int, m *matrix, p0, p1 int, hidden unsafe.Pointer, hRow, rows int, softcap float32) {
	if m.rounds {
		w.multiplyRounding(z, zRow, m, p0, p1, hidden, hRow, rows)
	} else {
		w.multiply(z, zRow, m, p0, p1, hidden, hRow, rows, false)
	}
	if softcap > 0 {
		for i := range rows {
			row := add(z, i*zRow)
			w.cap = vec.SoftcapArgs{Y: row, X: row, N: int64((p1 - p0) * vec.Lanes), Cap: softcap}
			w.k.Softcap(&w.cap)
		}
	}
}

// chunk is the state of n scaled logits.
func (w *worker) chunk(z unsafe.Pointer, n int) chunkState {
	w.lse = vec.LogSumExpChunkArgs{Z: z, N: int64(n)}
	w.k.LogSumExpChunk(&w.lse)
	return chunkState{w.lse.Max, w.lse.Sum, w.lse.SumZ}
}

// logProbsJob is LogProbs over (block of rows, chunk of the vocabulary).
type logProbsJob struct {
	kernels.LogProbsArgs
	w              matrix
	chunks, blocks int
	blockOf        int
	states         []chunkState // [M, chunks]
}

// LogProbs: see kernels.LogProbsArgs.
func (b *Backend) LogProbs(a *kernels.LogProbsArgs) {
	rows := a.Hidden.Rows
	if rows == 0 {
		return
	}
	j := &b.jobs.logProbs
	j.LogProbsArgs, j.w = *a, matrixOf(a.W)
	j.chunks = ceil(j.w.out, kernels.VocabChunk)
	j.blocks, j.blockOf = split(rows, kernels.LogProbsRows)
	j.states = b.chunkStates(rows * j.chunks)
	b.run(j.blocks*j.chunks, int64(rows)*int64(j.w.out)*int64(j.w.in)/workPerNs, j)

	logp, entropy, lse, invT := a.LogP.F32(), a.Entropy.F32(), a.LSE.F32(), a.InvT.F32()
	pairs, pair := a.PairRows.I32(), 0
	for m := range rows {
		l, h := merge(j.states[m*j.chunks:][:j.chunks])
		lse[m], entropy[m] = float32(l), float32(h)
		for ; pair < len(pairs) && int(pairs[pair]) == m; pair++ {
			logp[pair] = logP(logp[pair], invT[m], l)
		}
	}
}

func (b *Backend) chunkStates(n int) []chunkState {
	if cap(b.state) < n {
		b.state = make([]chunkState, n)
	}
	return b.state[:n]
}

// space is the room of a worker for logits: a part of a.Scratch while there is one for it.
func (w *worker) space(a *kernels.LogProbsArgs, vocab int) unsafe.Pointer {
	n := kernels.LogProbsScratch(a.Hidden.Rows, vocab, 1)
	if a.Scratch.Present() && (w.id+1)*n <= a.Scratch.Len() {
		return at(a.Scratch.Reshape(1, a.Scratch.Len()), 0, w.id*n)
	}
	return w.floats(n)
}

// pairsOf is the pairs of the rows [r0, r1).
func pairsOf(pairRows []int32, r0, r1 int) (from, to int) {
	from, _ = slices.BinarySearch(pairRows, int32(r0))
	to, _ = slices.BinarySearch(pairRows, int32(r1))
	return from, to
}

func (j *logProbsJob) do(w *worker, task int) {
	// A chunk's weights are read by all blocks of rows one after the other.
	c, r0 := task/j.blocks, task%j.blocks*j.blockOf
	rows := min(j.blockOf, j.Hidden.Rows-r0)
	v0 := c * kernels.VocabChunk
	n := min(kernels.VocabChunk, j.w.out-v0)
	z, zRow := w.space(&j.LogProbsArgs, j.w.out), pad16(n)
	p0 := v0 / vec.Lanes
	w.logits(z, zRow, &j.w, p0, p0+zRow/vec.Lanes, at(j.Hidden, r0, 0), j.Hidden.Stride, rows, j.Softcap)

	pairs, targets, logp := j.PairRows.I32(), j.Targets.I32(), j.LogP.F32()
	from, to := pairsOf(pairs, r0, r0+rows)
	for i := from; i < to; i++ { // the raw logit waits in logp for the sum
		if y := index(targets[i], j.w.out, "target"); y >= v0 && y < v0+n {
			logp[i] = floats(add(z, (int(pairs[i])-r0)*zRow), n)[y-v0]
		}
	}
	invT := j.InvT.F32()
	for i := range rows {
		row := add(z, i*zRow)
		w.scaled(row, row, n, invT[r0+i])
		j.states[(r0+i)*j.chunks+c] = w.chunk(row, n)
	}
}
