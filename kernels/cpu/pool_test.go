package cpu

import (
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/kernelstest"
	"graft/kernels/quant"
)

// funcJob is a job of a test.
type funcJob func(w *worker, task int)

func (f funcJob) do(w *worker, task int) { f(w, task) }

func TestPoolDoesEveryTaskOnce(t *testing.T) {
	p := newPool(4, vec.For(vec.Generic))
	defer p.close()
	for n := range 200 {
		counts := make([]atomic.Int32, n)
		require.NoError(t, p.run(n, true, funcJob(func(_ *worker, i int) { counts[i].Add(1) })))
		for i := range counts {
			require.EqualValues(t, 1, counts[i].Load(), "task %d of %d", i, n)
		}
	}
}

func TestPoolGoesOnAfterHelpersSlept(t *testing.T) {
	p := newPool(3, vec.For(vec.Generic))
	defer p.close()
	for range 5 {
		for p.asleep.Load() < 2 {
			time.Sleep(time.Millisecond)
		}
		// Tasks that wait for each other need all three workers awake.
		var here atomic.Int32
		require.NoError(t, p.run(3, true, funcJob(func(*worker, int) {
			for here.Add(1); here.Load() < 3; {
				time.Sleep(10 * time.Microsecond)
			}
		})))
	}
}

func TestPoolWorkersAreDifferentAtAnyTime(t *testing.T) {
	p := newPool(4, vec.For(vec.Generic))
	defer p.close()
	busy := make([]atomic.Bool, 4)
	require.NoError(t, p.run(400, true, funcJob(func(w *worker, _ int) {
		if !busy[w.id].CompareAndSwap(false, true) {
			panic("two tasks at once on one worker")
		}
		time.Sleep(time.Microsecond)
		busy[w.id].Store(false)
	})))
}

func TestGateHoldsLaterTasks(t *testing.T) {
	p := newPool(4, vec.For(vec.Generic))
	defer p.close()
	for range 100 {
		var made, early atomic.Int32
		p.gate.close(5)
		require.NoError(t, p.run(20, true, funcJob(func(w *worker, i int) {
			if i < 5 {
				made.Add(1)
				p.gate.open()
				return
			}
			p.gate.pass(w)
			if made.Load() != 5 {
				early.Add(1)
			}
		})))
		require.Zero(t, early.Load())
	}
}

func TestPanicOfATaskReachesTheCaller(t *testing.T) {
	p := newPool(3, vec.For(vec.Generic))
	defer p.close()
	for _, shared := range []bool{false, true} {
		p.gate.close(1) // the failed task would have opened it
		require.PanicsWithValue(t, "cpu: a worker: broken", func() {
			defer func() {
				if s, ok := recover().(string); ok {
					panic(s[:len("cpu: a worker: broken")]) // without the stack
				}
			}()
			_ = p.run(8, shared, funcJob(func(w *worker, i int) {
				if i == 0 {
					panic("broken")
				}
				p.gate.pass(w)
			}))
		})
		require.NoError(t, p.run(8, shared, funcJob(func(*worker, int) {})), "the next job")
	}
}

func TestMissingScratchIsAnErrorOfSync(t *testing.T) {
	b := New(Options{Threads: 2})
	full := errors.New("no memory")
	b.run(4, shareCost, funcJob(func(*worker, int) { panic(noMemory{full}) }))
	require.ErrorIs(t, b.Sync(), full)
	require.NoError(t, b.Sync(), "told once")
	require.NoError(t, b.Close())
	require.NoError(t, b.Close(), "closing again")
}

func TestAllocIsZeroedAlignedAndWritable(t *testing.T) {
	b := New(Options{Threads: 1})
	defer func() { require.NoError(t, b.Close()) }()
	for _, n := range []int64{1, 4097, 5 << 20} {
		m, err := b.Alloc(n)
		require.NoError(t, err)
		require.Len(t, m.Host, int(n))
		for i := range m.Host {
			if m.Host[i] != 0 {
				t.Fatalf("byte %d of %d is not zero", i, n)
			}
			m.Host[i] = 1
		}
		address := kernels.Tensor{Mem: m, DType: kernels.F32, Rows: 1, Cols: 1, Stride: 1}
		require.Zero(t, uintptr(at(address, 0, 0))%64)
		b.Free(m)
		require.Nil(t, m.Host)
	}
	_, err := b.Alloc(math.MaxInt64 / 2)
	require.ErrorContains(t, err, "bytes of memory")
	require.NoError(t, b.Sync())
}

// decode is the operations of a decode step of one layer and the head, for some rows.
func decode(tb testing.TB, b *bench, rows int) func() {
	const c, f, heads, groups, dim, vocab = 64, 96, 4, 2, 16, 5000
	x, h, q := b.floats(rows, c), b.floats(rows, c), b.floats(rows, heads*dim)
	k, v, norm, inv := b.floats(rows, groups*dim), b.floats(rows, groups*dim), b.floats(1, c), b.floats(rows, 1)
	gate, up, out, lse := b.floats(rows, f), b.floats(rows, f), b.floats(rows, heads*dim), b.floats(rows, heads)
	lora := &kernels.LowRank{A: b.weight(quant.F32, 16, c), B: b.weight(quant.F32, heads*dim, 16), Scale: 2}
	qkv := []kernels.Product{
		{Y: q, W: b.weight(quant.Q4_1, heads*dim, c), LoRA: lora, H: b.floats(rows, 16)},
		{Y: k, W: b.weight(quant.Q4_1, groups*dim, c)}, {Y: v, W: b.weight(quant.Q4_1, groups*dim, c)},
	}
	down := []kernels.Product{{Y: x, W: b.weight(quant.Q4_1, c, f), Keep: true}}
	both := []kernels.Product{{Y: gate, W: b.weight(quant.Q4_1, f, c)}, {Y: up, W: b.weight(quant.Q4_1, f, c)}}
	kv := kernels.KV{K: b.floats(4*rows, groups*dim*kernels.PageSize), V: b.floats(4*rows, groups*dim*kernels.PageSize), Heads: groups, Dim: dim}
	ids := b.ints(rows, func(i int) int32 { return int32(i) })
	positions := b.ints(rows, func(i int) int32 { return int32(20 + i%8) })
	tables := b.ints(4*rows, func(i int) int32 { return int32(i) })
	tables.Rows, tables.Cols, tables.Stride = rows, 4, 4
	slots := b.ints(rows, func(i int) int32 { return int32((4*i+1)*kernels.PageSize + i%8) })
	attention := &kernels.AttentionArgs{Out: out, LSE: lse, Q: q, KV: kv, Tables: tables, Seq: ids, Positions: positions, Heads: heads, Scale: 0.25}
	table := b.floats(64, dim)
	head := b.weight(quant.Q4_1, vocab, c)
	sample := &kernels.SampleArgs{Hidden: h, W: head, Logits: b.floats(rows, pad16(vocab)), Rows: make([]kernels.SampleRow, rows), Out: make([]kernels.Sampled, rows)}
	for i := range sample.Rows {
		sample.Rows[i] = kernels.SampleRow{InvT: 1, TopP: []float32{1, 0.8}[i%2], U: 0.3, NumTop: 3, TopK: i % 3}
	}
	return func() {
		b.Embed(x, head, ids, 1)
		b.RMSNorm(h, inv, x, norm, 1e-5, false)
		b.MatMul(h, qkv)
		b.RoPE(q, kernels.Rope{Table: table, Dims: dim, HeadDim: dim}, positions, false)
		b.WriteKV(kv, k, v, ids, slots)
		b.Attention(attention)
		b.MatMul(h, both)
		b.GLU(gate, gate, up, kernels.SiLU)
		b.MatMul(gate, down)
		b.Sample(sample)
		require.NoError(tb, b.Sync())
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	for _, rows := range []int{1, 9} {
		step := decode(t, newBench(t, Options{Threads: 2}), rows)
		step()
		require.Zero(t, testing.AllocsPerRun(50, step), "rows %d", rows)
	}
}

func TestTrainingAllocatesNothing(t *testing.T) {
	const heads, groups, dim, c, vocab = 4, 2, 16, 64, 5000
	b := newBench(t, Options{Threads: 2})
	batch := kernelstest.NewBatch(b.rng, []kernelstest.Group{{Prompt: 40, Completions: []int{9, 20}}})
	n, size := batch.N(), groups*dim*kernels.PageSize
	copied := func(v []int32) kernels.Tensor { return b.ints(len(v), func(i int) int32 { return v[i] }) }
	tables, first := copied(batch.Tables), b.ints(n, func(i int) int32 { return int32(i) })
	tables.Rows, tables.Cols, tables.Stride = batch.Seqs, batch.Width, batch.Width
	a := &kernels.AttentionArgs{Out: b.floats(n, heads*dim), LSE: b.floats(n, heads), Q: b.floats(n, heads*dim),
		KV:     kernels.KV{K: b.floats(batch.Pages, size), V: b.floats(batch.Pages, size), Heads: groups, Dim: dim},
		Tables: tables, Seq: copied(batch.Seq), Positions: copied(batch.Positions), Heads: heads, Scale: 0.25}
	g := &kernels.AttentionGrad{DOut: b.floats(n, heads*dim), DQ: b.floats(n, heads*dim), DK: b.floats(n, groups*dim), DV: b.floats(n, groups*dim),
		Rows: copied(batch.Rows), Slots: copied(batch.Slots), Scratch: b.floats(1, kernels.AttentionScratch(n, batch.Pages, heads, groups, dim))}
	lp := &kernels.LogProbsArgs{LogP: b.floats(1, n), Entropy: b.floats(1, n), LSE: b.floats(1, n), Hidden: b.floats(n, c), W: b.weight(quant.Q8_0, vocab, c),
		PairRows: first, Targets: first, InvT: b.floats(1, n), Scratch: b.floats(1, kernels.LogProbsScratch(n, vocab, 1))}
	lg := &kernels.LogProbsGrad{DLogP: b.floats(1, n), DEntropy: b.floats(1, n), DHidden: b.floats(n, c)}
	grads := []kernels.ProductGrad{{DY: b.floats(n, 96), W: b.weight(quant.Q4_1, 96, c), H: b.floats(n, 16), DH: b.floats(n, 16),
		LoRA: &kernels.LowRank{A: b.weight(quant.F32, 16, c), B: b.weight(quant.F32, 96, 16), Scale: 2},
		DA:   b.weight(quant.F32, 16, c), DB: b.weight(quant.F32, 96, 16)}}
	p, m, v := b.floats(1, 40000), b.floats(1, 40000), b.floats(1, 40000)
	clear(v.F32())
	step := func() {
		b.Attention(a)
		b.LogProbs(lp)
		b.LogProbsBackward(lp, lg)
		b.MatMulBackward(lp.Hidden, lg.DHidden, grads, false)
		b.AttentionBackward(a, g)
		b.AdamW(p, m, m, v, kernels.AdamWStep{LR: 1e-3, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, GradScale: b.SumSquares(p), T: 1})
	}
	step()
	require.Zero(t, testing.AllocsPerRun(20, step))
}

func TestSampleNamesTheBrokenRow(t *testing.T) {
	b := newBench(t, Options{Threads: 2})
	hidden, w := b.floats(3, 32), b.weight(quant.Q8_0, 50, 32)
	rows := make([]kernels.SampleRow, 3)
	for i := range rows {
		rows[i] = kernels.SampleRow{InvT: 1, TopP: 1}
	}
	a := &kernels.SampleArgs{Hidden: hidden, W: w, Logits: b.floats(3, 64), Rows: rows, Out: make([]kernels.Sampled, 3)}
	b.Sample(a)
	require.NoError(t, b.Sync())
	keep := hidden.Row(1)[5]
	hidden.Row(1)[5] = float32(math.NaN())
	b.Sample(a)
	require.ErrorContains(t, b.Sync(), "row 1: its logits are not finite")
	hidden.Row(1)[5] = keep
	for id := range int32(50) {
		rows[2].Banned = append(rows[2].Banned, id)
	}
	b.Sample(a)
	require.ErrorContains(t, b.Sync(), "row 2: no token is left to draw")
}
