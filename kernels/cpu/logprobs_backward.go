package cpu

import (
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
)

// gradVocab is the vocabulary entries whose gradients a worker holds at a time. Sums over the
// vocabulary are chains, so it does not show in any bit.
const gradVocab = 1024

// gradRow is the distance between rows of gradients of n vocabulary entries: not a power of two, for
// rows on the same sets of the cache push each other out. There is room: see LogProbsScratch.
func gradRow(n int) int { return pad16(n) + vec.Lanes }

// logProbsBackwardJob is LogProbsBackward: dHidden by blocks of rows, then DW by runs of the
// vocabulary. Each computes the logits again.
type logProbsBackwardJob struct {
	kernels.LogProbsArgs
	grad            kernels.LogProbsGrad
	w, dw           matrix
	blocks, blockOf int
}

// LogProbsBackward: see kernels.LogProbsGrad.
func (b *Backend) LogProbsBackward(a *kernels.LogProbsArgs, g *kernels.LogProbsGrad) {
	rows := a.Hidden.Rows
	if rows == 0 {
		return
	}
	j := &b.jobs.logBack
	*j = logProbsBackwardJob{LogProbsArgs: *a, grad: *g, w: matrixOf(a.W)}
	tasks := 0
	if g.DHidden.Present() {
		workers, least := len(b.pool.workers), ceil(rows, mostGradRows(&j.LogProbsArgs))
		blocks := min(ceil(least, workers)*workers, max(least, ceil(rows, 8))) // as many for each, but none of a few rows only
		j.blocks, j.blockOf = split(rows, ceil(rows, blocks))
		tasks = j.blocks
	}
	if g.DW.Present() {
		j.dw = matrixOf(g.DW)
		tasks += ceil(j.w.out, gradVocab)
	}
	b.run(tasks, 3*int64(rows)*int64(j.w.out)*int64(j.w.in)/workPerNs, j)
}

// mostGradRows is the rows whose gradients there is room for at a time: the more, the fewer times
// the weights are decoded.
func mostGradRows(a *kernels.LogProbsArgs) int {
	row := gradRow(min(gradVocab, a.W.Out))
	if a.Softcap > 0 {
		row *= 2
	}
	return min(edgeRows, kernels.LogProbsScratch(a.Hidden.Rows, a.W.Out, 1)/row)
}

func (j *logProbsBackwardJob) do(w *worker, task int) {
	if task < j.blocks {
		j.hiddenGrad(w, task*j.blockOf, min((task+1)*j.blockOf, j.Hidden.Rows))
		return
	}
	v := (task - j.blocks) * gradVocab
	n := min(gradVocab, j.w.out-v)
	part := j.dw
	part.base, part.out = j.dw.at(v/vec.Lanes), n
	for r := 0; r < j.Hidden.Rows; r += kernels.LogProbsRows {
		rows := min(kernels.LogProbsRows, j.Hidden.Rows-r)
		dz := j.logitGrads(w, r, rows, v, n)
		const group = 2
		for step := range gradSteps(&part, group) {
			w.weightGrad(&part, group, step, at(j.Hidden, r, 0), j.Hidden.Stride, dz, gradRow(n), rows)
		}
	}
}

// hiddenGrad is dHidden = dz·W for some rows, over the vocabulary in order.
func (j *logProbsBackwardJob) hiddenGrad(w *worker, from, to int) {
	d := j.grad.DHidden
	for v := 0; v < j.w.out; v += gradVocab {
		n := min(gradVocab, j.w.out-v)
		dz := j.logitGrads(w, from, to-from, v, n)
		if j.w.rounds {
			j.hiddenGrad8(w, d, from, to-from, dz, v, n)
			continue
		}
		for k := 0; k < j.w.in; k += stripWidth {
			kn := min(stripWidth, j.w.in-k)
			w.inputStrip(at(d, from, k), d.Stride, to-from, dz, gradRow(n), &j.w, v, v+n, k, kn, v > 0)
		}
	}
}

// logitGrads is dL/dlogit, before the softcap, of n vocabulary entries from v for some rows:
// [rows, gradRow(n)] in the worker's space.
func (j *logProbsBackwardJob) logitGrads(w *worker, r0, rows, v, n int) unsafe.Pointer {
	z, zRow := w.space(&j.LogProbsArgs, j.w.out), gradRow(n)
	beside := add(z, rows*zRow)
	p := v / vec.Lanes
	w.logits(z, zRow, &j.w, p, p+pad16(n)/vec.Lanes, at(j.Hidden, r0, 0), j.Hidden.Stride, rows, j.Softcap)
	pairs, targets, dlogp := j.PairRows.I32(), j.Targets.I32(), j.grad.DLogP.F32()
	invT, lse, entropy := j.InvT.F32(), j.LSE.F32(), j.Entropy.F32()
	for i := range rows {
		row, m := add(z, i*zRow), r0+i
		dz := row
		if j.Softcap > 0 {
			dz = beside // the capped logits are needed once more
		}
		from, to := pairsOf(pairs, m, m+1)
		g := float32(0)
		for _, d := range dlogp[from:to] {
			g += d
		}
		w.scaled(dz, row, n, invT[m])
		w.softmax = vec.SoftmaxGradArgs{
			DZ: dz, Z: dz, N: int64(n),
			LSE: lse[m], G: g, Entropy: entropy[m], InvT: invT[m],
		}
		if j.grad.DEntropy.Present() {
			w.softmax.H = j.grad.DEntropy.F32()[m]
		}
		w.k.SoftmaxGrad(&w.softmax)
		grads := floats(dz, n)
		for p := from; p < to; p++ {
			if y := int(targets[p]) - v; y >= 0 && y < n {
				grads[y] += float32(dlogp[p] * invT[m])
			}
		}
		if j.Softcap > 0 {
			w.dcap = vec.SoftcapBackwardArgs{DX: row, Y: row, DY: dz, N: int64(n), Cap: j.Softcap}
			w.k.SoftcapBackward(&w.dcap)
		}
		clear(floats(add(row, n), pad16(n)-n))
	}
	return z
}
