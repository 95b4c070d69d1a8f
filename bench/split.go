package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"graft/kernels"
	"graft/kernels/cpu"
	"graft/kernels/quant"
	"graft/kernels/rng"
)

// inexactName is the other side of kindSplit: the same operations, with sums cut at the number of
// threads and their parts added afterwards, which the row law forbids.
const inexactName = "sums split among threads"

// What is split.
const (
	splitPositions = "positions" // attention: each thread sees a part of the sequence
	splitChannels  = "channels"  // products: each thread multiplies a part of the inputs
)

// splitRates is a child's answer: calls a second, by round.
type splitRates struct {
	Exact   []float64 `json:"exact"`
	Inexact []float64 `json:"inexact"`
}

// split measures ours against the inexact variant, in turns within one process.
func (c *comparison) split(ctx context.Context, r *row) ([]result, error) {
	w := startWatch()
	var got splitRates
	state, err := job{Row: *r, Threads: c.opt.threads, Rounds: c.opt.rounds}.do(ctx, &got)
	if err != nil {
		return nil, err
	}
	res := &result{row: *r, Unit: callsPerSecond, Ours: side{Who: "graft", Values: got.Exact}, Theirs: &side{Who: inexactName, Values: got.Inexact}}
	res.load(w.others(cpuTime(state)))
	res.finish(0)
	return []result{*res}, nil
}

// variants are two ways to compute the same numbers, up to rounding.
type variants struct {
	exact, inexact func()
	difference     func() float64 // largest, relative to the largest result
	close          func()
}

// splitTry is the length of one measurement of one variant.
const splitTry = 300 * time.Millisecond

// runSplit times both variants of a row in turns, once their results were seen to agree.
func (j *job) runSplit() (*splitRates, error) {
	var v *variants
	var err error
	if j.Row.Split == splitPositions {
		v, err = attentionVariants(j.Row.Prompt, j.Threads)
	} else {
		precision, ok := kernels.ParsePrecision(j.Row.Precision)
		if !ok {
			return nil, fmt.Errorf("a row of unknown precision %q", j.Row.Precision)
		}
		v, err = productVariants(j.Row.Rows, j.Threads, precision)
	}
	if err != nil {
		return nil, err
	}
	defer v.close()
	v.exact()
	v.inexact()
	if d := v.difference(); !(d < 1e-3) {
		return nil, fmt.Errorf("the variants differ by %g of the largest result: they do not compute the same", d)
	}
	out := &splitRates{}
	for range j.Rounds {
		out.Exact = append(out.Exact, callRate(v.exact))
		out.Inexact = append(out.Inexact, callRate(v.inexact))
	}
	return out, nil
}

func callRate(f func()) float64 {
	begin, calls := time.Now(), 0
	for time.Since(begin) < splitTry {
		f()
		calls++
	}
	return float64(calls) / time.Since(begin).Seconds()
}

// team runs a function on several goroutines, which meet at barriers: what a stack that splits sums
// needs between an operation and the next.
type team struct {
	n       int64
	arrived atomic.Int64
	phase   atomic.Int64
}

func (t *team) run(f func(thread int)) {
	var group sync.WaitGroup
	for i := range int(t.n) - 1 {
		group.Go(func() { f(i + 1) })
	}
	f(0)
	group.Wait()
}

// meet waits until all have come, spinning as such stacks do.
func (t *team) meet() {
	phase := t.phase.Load()
	if t.arrived.Add(1) == t.n {
		t.arrived.Store(0)
		t.phase.Add(1)
		return
	}
	for spins := 0; t.phase.Load() == phase; spins++ {
		if spins&0xfff == 0xfff {
			runtime.Gosched()
		}
	}
}

// workbench is memory for variants and the backends that compute them: one with all threads, and one of
// a single thread for each.
type workbench struct {
	whole     *cpu.Backend
	ones      []*cpu.Backend
	precision kernels.Precision // of weights
	mem       []*kernels.Memory
	err       error
}

func newWorkbench(threads int) *workbench {
	b := &workbench{whole: cpu.New(cpu.Options{Threads: threads})}
	for range threads {
		b.ones = append(b.ones, cpu.New(cpu.Options{Threads: 1}))
	}
	return b
}

func (b *workbench) close() {
	for _, m := range b.mem {
		b.whole.Free(m)
	}
	for _, one := range b.ones {
		one.Close()
	}
	b.whole.Close()
}

// tensor allocates; the first error sticks.
func (b *workbench) tensor(d kernels.DType, rows, cols int) kernels.Tensor {
	if b.err != nil {
		return kernels.Tensor{}
	}
	m, err := b.whole.Alloc(int64(rows) * int64(cols) * d.Size())
	if err != nil {
		b.err = err
		return kernels.Tensor{}
	}
	b.mem = append(b.mem, m)
	return kernels.Tensor{Mem: m, DType: d, Rows: rows, Cols: cols, Stride: cols}
}

// noise fills a tensor with numbers in [−1, 1).
func (b *workbench) noise(rows, cols int, seed uint64) kernels.Tensor {
	t := b.tensor(kernels.F32, rows, cols)
	if b.err == nil {
		fillNoise(t.F32(), seed)
	}
	return t
}

func fillNoise(x []float32, seed uint64) {
	source := rng.New(seed, "bench")
	for i := range x {
		x[i] = float32(source.Below(1<<20, uint32(i), 0, 0))/(1<<19) - 1
	}
}

func (b *workbench) integers(x ...int32) kernels.Tensor {
	t := b.tensor(kernels.I32, 1, len(x))
	if b.err == nil {
		copy(t.I32(), x)
	}
	return t
}

// matrix is noise as rows of Q4_1 blocks.
func (b *workbench) matrix(out, in int, seed uint64) []byte {
	row, bytes := make([]float32, in), quant.Q4_1.Bytes(in)
	raw := make([]byte, out*bytes)
	for i := range out {
		fillNoise(row, seed<<16+uint64(i))
		quant.Encode(raw[i*bytes:(i+1)*bytes], quant.Q4_1, row)
	}
	return raw
}

// packed packs the inputs [from, to) of such a matrix.
func (b *workbench) packed(raw []byte, out, in, from, to int) kernels.Weight {
	w := kernels.Weight{Precision: b.precision, Format: quant.Q4_1, Out: out, In: to - from, Bytes: b.whole.PackedBytes(quant.Q4_1, out, to-from)}
	t := b.tensor(kernels.F32, 1, int(w.Bytes/4))
	if b.err != nil {
		return w
	}
	w.Mem = t.Mem
	bytes, part := quant.Q4_1.Bytes(in), make([]byte, 0, out*quant.Q4_1.Bytes(to-from))
	for i := range out {
		part = append(part, raw[i*bytes+quant.Q4_1.Bytes(from):i*bytes+quant.Q4_1.Bytes(to)]...)
	}
	b.whole.Pack(w, 0, part)
	return w
}

// largest is the largest difference of two tensors over the largest value.
func largest(a, b kernels.Tensor) float64 {
	diff, top := 0.0, 0.0
	x, y := a.F32(), b.F32()
	for i := range x {
		diff = max(diff, math.Abs(float64(x[i])-float64(y[i])))
		top = max(top, math.Abs(float64(x[i])))
	}
	return diff / top
}
