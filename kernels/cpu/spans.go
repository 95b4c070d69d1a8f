package cpu

import (
	"math"

	"graft/kernels"
	"graft/kernels/cpu/vec"
)

// sumBlock is the elements that SumSquares adds up in float32.
const sumBlock = 4096

// stepBlock is the parameters that a task of AdamW moves.
const stepBlock = 16384

// spansJob is an operation on flat tensors, in blocks.
type spansJob struct {
	op         func(j *spansJob, w *worker, block int)
	n          int
	p, g, m, v kernels.Tensor
	step       vec.AdamWArgs
	sums       []float64
}

func (j *spansJob) do(w *worker, task int) { j.op(j, w, task) }

// AdamW moves flat parameters once. The scalars are computed in float64 and rounded once.
func (b *Backend) AdamW(p, g, m, v kernels.Tensor, s kernels.AdamWStep) {
	j := &b.jobs.spans
	*j = spansJob{op: stepSpan, n: p.Len(), p: p, g: g, m: m, v: v, step: vec.AdamWArgs{
		GradScale: float32(s.GradScale),
		Decay:     float32(1 - float64(s.LR*s.WeightDecay)),
		Beta1:     float32(s.Beta1), Rest1: float32(1 - s.Beta1),
		Beta2: float32(s.Beta2), Rest2: float32(1 - s.Beta2),
		RootBias2: float32(math.Sqrt(1 - power(s.Beta2, s.T))),
		Step:      float32(s.LR / (1 - power(s.Beta1, s.T))),
		Eps:       float32(s.Eps),
	}}
	b.run(ceil(j.n, stepBlock), int64(j.n)/2, j)
}

// power is xⁿ by squaring: products alone, so the same bits on every platform.
func power(x float64, n int) float64 {
	y := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			y *= x
		}
		x *= x
	}
	return y
}

func stepSpan(j *spansJob, w *worker, block int) {
	i := block * stepBlock
	a := &w.adamw
	*a = j.step
	a.P, a.G, a.M, a.V = at(j.p, 0, i), at(j.g, 0, i), at(j.m, 0, i), at(j.v, 0, i)
	a.N = int64(min(stepBlock, j.n-i))
	w.k.AdamW(a)
}

// SumSquares returns Σ x²: float32 chains inside blocks of 4096, float64 in order across them.
func (b *Backend) SumSquares(x kernels.Tensor) float64 {
	blocks := ceil(x.Len(), sumBlock)
	if cap(b.sums) < blocks {
		b.sums = make([]float64, blocks)
	}
	j := &b.jobs.spans
	*j = spansJob{op: sumSpan, n: x.Len(), p: x, sums: b.sums[:blocks]}
	b.run(ceil(blocks, sumBlocks), int64(j.n)/8, j)
	total := 0.0
	for _, s := range j.sums {
		total += s
	}
	return total
}

// sumBlocks is the blocks of a task of SumSquares.
const sumBlocks = 8

func sumSpan(j *spansJob, w *worker, task int) {
	first := task * sumBlocks
	for block := first; block < min(first+sumBlocks, len(j.sums)); block++ {
		i := block * sumBlock
		w.sum = vec.SumSquaresArgs{X: at(j.p, 0, i), N: int64(min(sumBlock, j.n-i))}
		w.k.SumSquares(&w.sum)
		j.sums[block] = float64(w.sum.Sum)
	}
}
