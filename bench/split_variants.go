package main

import (
	"math"

	"graft/kernels"
	"graft/kernels/quant"
)

// The shapes of SmolLM2-135M, whose layers follow each other in memory as in the model: a variant
// that only wins while everything is in a cache does not count.
const (
	splitLayers = 30
	splitDim    = 576
	splitFF     = 1536
	splitHeads  = 9
	splitKV     = 3
	splitHead   = 64
)

// attentionVariants attends one row to a sequence in every layer: ours, which shares out heads among
// the threads, and the sequence cut among them with the parts merged by their log-sum-exps (Dao et
// al. 2023, "Flash-Decoding").
func attentionVariants(length, threads int) (*variants, error) {
	b := newWorkbench(threads)
	pages := length / kernels.PageSize
	table := make([]int32, pages)
	for i := range table {
		table[i] = int32(i)
	}
	tables, zero, last := b.integers(table...), b.integers(0), b.integers(int32(length-1))
	q := b.noise(1, splitHeads*splitHead, 1)
	args := func(layer int, out, lse kernels.Tensor) kernels.AttentionArgs {
		kv := kernels.KV{K: b.noise(pages, splitKV*splitHead*kernels.PageSize, uint64(2+layer)),
			V: b.noise(pages, splitKV*splitHead*kernels.PageSize, uint64(100+layer)), Heads: splitKV, Dim: splitHead}
		return kernels.AttentionArgs{Out: out, LSE: lse, Q: q, KV: kv, Tables: tables, Seq: zero, Positions: last, Heads: splitHeads, Scale: 0.125}
	}
	whole, merged := b.tensor(kernels.F32, 1, splitHeads*splitHead), b.tensor(kernels.F32, 1, splitHeads*splitHead)
	wholeLSE := b.tensor(kernels.F32, 1, splitHeads)
	type part struct{ out, lse, position kernels.Tensor }
	parts, windows := make([]part, threads), make([]int, threads)
	for t := range parts {
		from, to := pages*t/threads*kernels.PageSize, pages*(t+1)/threads*kernels.PageSize
		parts[t] = part{b.tensor(kernels.F32, 1, splitHeads*splitHead), b.tensor(kernels.F32, 1, splitHeads), b.integers(int32(to - 1))}
		windows[t] = to - from
	}
	exact := make([]kernels.AttentionArgs, splitLayers)
	inexact := make([][]kernels.AttentionArgs, threads)
	for l := range exact {
		exact[l] = args(l, whole, wholeLSE)
		for t, p := range parts {
			a := exact[l]
			a.Out, a.LSE, a.Positions, a.Window = p.out, p.lse, p.position, windows[t]
			inexact[t] = append(inexact[t], a)
		}
	}
	if b.err != nil {
		b.close()
		return nil, b.err
	}
	merge := func() {
		for h := range splitHeads {
			top, sum := math.Inf(-1), 0.0
			for _, p := range parts {
				top = max(top, float64(p.lse.F32()[h]))
			}
			out := merged.F32()[h*splitHead : (h+1)*splitHead]
			clear(out)
			for _, p := range parts {
				weight := math.Exp(float64(p.lse.F32()[h]) - top)
				sum += weight
				for d, x := range p.out.F32()[h*splitHead : (h+1)*splitHead] {
					out[d] += float32(weight) * x
				}
			}
			for d := range out {
				out[d] /= float32(sum)
			}
		}
	}
	team := &team{n: int64(threads)}
	return &variants{
		exact: func() {
			for l := range exact {
				b.whole.Attention(&exact[l])
			}
		},
		inexact: func() {
			team.run(func(t int) {
				for l := range splitLayers {
					b.ones[t].Attention(&inexact[t][l])
					team.meet()
					if t == 0 {
						merge()
					}
					team.meet()
				}
			})
		},
		difference: func() float64 { return largest(whole, merged) },
		close:      b.close,
	}, nil
}

// operation is the products of one input in a layer: ours whole, and in parts along the input.
type operation struct {
	x     kernels.Tensor
	whole []kernels.Product
	parts [][]kernels.Product // by thread
	px    []kernels.Tensor    // the inputs of each thread
	sums  []kernels.Tensor    // of each product
}

// productVariants multiplies rows by the matrices of every layer: ours, which shares out outputs
// among the threads, and the inputs cut among them with the partial sums added (split-K).
func productVariants(rows, threads int, precision kernels.Precision) (*variants, error) {
	b := newWorkbench(threads)
	b.precision = precision
	first := []*operation{
		b.operation(rows, splitDim, threads, 10, splitHeads*splitHead, splitKV*splitHead, splitKV*splitHead),
		b.operation(rows, splitHeads*splitHead, threads, 20, splitDim),
		b.operation(rows, splitDim, threads, 30, splitFF, splitFF),
		b.operation(rows, splitFF, threads, 40, splitDim),
	}
	layers := [][]*operation{first}
	for range splitLayers - 1 {
		var layer []*operation
		for _, op := range first {
			layer = append(layer, b.again(op))
		}
		layers = append(layers, layer)
	}
	if b.err != nil {
		b.close()
		return nil, b.err
	}
	team := &team{n: int64(threads)}
	return &variants{
		exact: func() {
			for _, layer := range layers {
				for _, op := range layer {
					b.whole.MatMul(op.x, op.whole)
				}
			}
		},
		inexact: func() {
			team.run(func(t int) {
				for _, layer := range layers {
					for _, op := range layer {
						b.ones[t].MatMul(op.px[t], op.parts[t])
						team.meet()
						op.add(t)
						team.meet()
					}
				}
			})
		},
		difference: func() float64 {
			worst := 0.0
			for _, op := range first {
				for i, p := range op.whole {
					worst = max(worst, largest(p.Y, op.sums[i]))
				}
			}
			return worst
		},
		close: b.close,
	}, nil
}

// operation makes the weights of some outputs on one input.
func (b *workbench) operation(rows, in, threads int, seed uint64, outs ...int) *operation {
	op := &operation{x: b.noise(rows, in, seed), parts: make([][]kernels.Product, threads), px: make([]kernels.Tensor, threads)}
	blocks := in / quant.Q4_1.BlockLen()
	cut := func(t int) int { return blocks * t / threads * quant.Q4_1.BlockLen() }
	for t := range threads {
		op.px[t] = op.x
		op.px[t].Off += int64(cut(t)) * 4
		op.px[t].Cols = cut(t+1) - cut(t)
	}
	for i, out := range outs {
		raw := b.matrix(out, in, seed+uint64(1+i))
		op.whole = append(op.whole, kernels.Product{Y: b.tensor(kernels.F32, rows, out), W: b.packed(raw, out, in, 0, in)})
		op.sums = append(op.sums, b.tensor(kernels.F32, rows, out))
		for t := range threads {
			op.parts[t] = append(op.parts[t], kernels.Product{Y: b.tensor(kernels.F32, rows, out), W: b.packed(raw, out, in, cut(t), cut(t+1))})
		}
	}
	return op
}

// again is an operation of another layer: the same numbers elsewhere in memory.
func (b *workbench) again(op *operation) *operation {
	twin := *op
	copied := func(products []kernels.Product) []kernels.Product {
		out := append([]kernels.Product{}, products...)
		for i := range out {
			t := b.tensor(kernels.F32, 1, int(out[i].W.Bytes/4))
			if b.err != nil {
				return out
			}
			copy(t.Mem.Host, out[i].W.Mem.Host[:out[i].W.Bytes])
			out[i].W.Mem = t.Mem
		}
		return out
	}
	if b.err != nil {
		return &twin
	}
	twin.whole, twin.parts = copied(op.whole), make([][]kernels.Product, len(op.parts))
	for t := range twin.parts {
		twin.parts[t] = copied(op.parts[t])
	}
	return &twin
}

// add sums one thread's share of every output over the parts.
func (op *operation) add(thread int) {
	n := len(op.parts)
	for i := range op.sums {
		sum := op.sums[i].F32()
		from, to := len(sum)*thread/n, len(sum)*(thread+1)/n
		sum = sum[from:to]
		copy(sum, op.parts[0][i].Y.F32()[from:to])
		for _, part := range op.parts[1:] {
			for k, y := range part[i].Y.F32()[from:to] {
				sum[k] += y
			}
		}
	}
}
