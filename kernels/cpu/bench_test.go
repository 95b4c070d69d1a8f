package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"graft/kernels"
	"graft/kernels/kernelstest"
	"graft/kernels/quant"
)

// bench is a backend and what its tensors hold: numbers of no meaning.
type bench struct {
	*Backend
	tb  testing.TB
	rng *rand.Rand
}

func newBench(tb testing.TB, opt Options) *bench {
	b := New(opt)
	tb.Cleanup(func() { _ = b.Close() })
	return &bench{b, tb, rand.New(rand.NewPCG(1, 2))}
}

func (b *bench) memory(bytes int64) *kernels.Memory {
	m, err := b.Alloc(bytes)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(func() { b.Free(m) })
	return m
}

// floats is a [rows, cols] tensor of numbers around zero.
func (b *bench) floats(rows, cols int) kernels.Tensor {
	t := kernels.Tensor{Mem: b.memory(int64(4 * rows * cols)), DType: kernels.F32, Rows: rows, Cols: cols, Stride: cols}
	for i := range t.F32() {
		t.F32()[i] = float32(b.rng.NormFloat64())
	}
	return t
}

func (b *bench) ints(n int, f func(i int) int32) kernels.Tensor {
	t := kernels.Tensor{Mem: b.memory(int64(4 * n)), DType: kernels.I32, Rows: 1, Cols: n, Stride: n}
	for i := range n {
		t.I32()[i] = f(i)
	}
	return t
}

// weight is a packed weight of small numbers.
func (b *bench) weight(f quant.Format, out, in int) kernels.Weight {
	w := kernels.Weight{Format: f, Out: out, In: in, Bytes: b.PackedBytes(f, out, in)}
	w.Mem = b.memory(w.Bytes)
	for row := 0; row < out; row += 1024 {
		b.Pack(w, row, kernelstest.RandomRaw(b.rng, f, min(1024, out-row)*in, 0.05))
	}
	return w
}

// BenchmarkMatMul is products of SmolLM2-135M. The ceiling is cores × FMA units × lanes × 2.
func BenchmarkMatMul(b *testing.B) {
	for _, shape := range []struct {
		name    string
		format  quant.Format
		outs    []int
		in      int
		largest int
	}{
		{"gate+up Q4_1 2x1536x576", quant.Q4_1, []int{1536, 1536}, 576, 512},
		{"down Q4_1 576x1536", quant.Q4_1, []int{576}, 1536, 512},
		{"qkv Q4_1 960x576", quant.Q4_1, []int{576, 192, 192}, 576, 512},
		{"head Q4_1 49152x576", quant.Q4_1, []int{49152}, 576, 64},
		{"gate+up Q6_K 2x1536x512", quant.Q6_K, []int{1536, 1536}, 512, 512},
	} {
		for _, rows := range []int{1, 2, 3, 4, 8, 32, 192} {
			if rows > shape.largest {
				continue
			}
			b.Run(fmt.Sprintf("%s/rows=%d", shape.name, rows), func(b *testing.B) {
				be := newBench(b, Options{})
				x := be.floats(rows, shape.in)
				var products []kernels.Product
				flops := 0
				for _, out := range shape.outs {
					products = append(products, kernels.Product{Y: be.floats(rows, out), W: be.weight(shape.format, out, shape.in)})
					flops += 2 * rows * out * shape.in
				}
				b.ReportAllocs()
				for b.Loop() {
					be.MatMul(x, products)
				}
				b.ReportMetric(float64(flops)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkMatMulBackward is dx and the LoRA gradients of gate and up.
func BenchmarkMatMulBackward(b *testing.B) {
	for _, rows := range []int{64, 192, 768} {
		b.Run(fmt.Sprintf("gate+up Q4_1 2x1536x576 r16/rows=%d", rows), func(b *testing.B) {
			be := newBench(b, Options{})
			x, dx := be.floats(rows, 576), be.floats(rows, 576)
			var grads []kernels.ProductGrad
			for range 2 {
				grads = append(grads, kernels.ProductGrad{
					DY: be.floats(rows, 1536), W: be.weight(quant.Q4_1, 1536, 576),
					LoRA: &kernels.LowRank{A: be.weight(quant.F32, 16, 576), B: be.weight(quant.F32, 1536, 16), Scale: 2},
					H:    be.floats(rows, 16), DH: be.floats(rows, 16),
					DA: be.weight(quant.F32, 16, 576), DB: be.weight(quant.F32, 1536, 16),
				})
			}
			flops := 2 * 2 * rows * (1536*576 + 2*16*(1536+576))
			for b.Loop() {
				be.MatMulBackward(dx, x, grads, false)
			}
			b.ReportMetric(float64(flops)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

// BenchmarkLoRAGrads is the gradients of adapters alone, over the rows of a micro-batch: gate, whose
// dy is wide, and down, whose x is.
func BenchmarkLoRAGrads(b *testing.B) {
	const rows, rank = 1536, 16
	be := newBench(b, Options{})
	apart := func(cols int) kernels.Tensor { // as activations are laid out
		t := be.floats(rows, cols+16)
		t.Cols = cols
		return t
	}
	for _, shape := range []struct {
		name    string
		in, out int
	}{{"gate", 576, 1536}, {"down", 1536, 576}} {
		x, g := apart(shape.in), kernels.ProductGrad{
			DY: apart(shape.out), W: be.weight(quant.Q4_1, shape.out, shape.in), H: be.floats(rows, rank), DH: be.floats(rows, rank),
			LoRA: &kernels.LowRank{A: be.weight(quant.F32, rank, shape.in), B: be.weight(quant.F32, shape.out, rank), Scale: 2},
		}
		for _, which := range []string{"dA", "dB"} {
			g := g
			if which == "dA" {
				g.DA = be.weight(quant.F32, rank, shape.in)
			} else {
				g.DB = be.weight(quant.F32, shape.out, rank)
			}
			b.Run(shape.name+"/"+which, func(b *testing.B) {
				flops := 2 * rows * rank * shape.out
				if which == "dA" {
					flops += 2 * rows * rank * shape.in // dH comes first
				}
				for b.Loop() {
					be.MatMulBackward(kernels.Tensor{}, x, []kernels.ProductGrad{g}, false)
				}
				b.ReportMetric(float64(flops)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkHead is Sample and LogProbs with SmolLM2-135M's vocabulary.
func BenchmarkHead(b *testing.B) {
	const vocab, channels = 49152, 576
	rate := func(b *testing.B, flops int) {
		b.ReportMetric(float64(flops)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	}
	for _, topP := range []float32{1, 0.9} {
		for _, rows := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("Sample/top-p=%v/rows=%d", topP, rows), func(b *testing.B) {
				be := newBench(b, Options{})
				a := &kernels.SampleArgs{Hidden: be.floats(rows, channels), W: be.weight(quant.Q4_1, vocab, channels), Logits: be.floats(rows, vocab),
					Rows: make([]kernels.SampleRow, rows), Out: make([]kernels.Sampled, rows)}
				for i := range a.Rows {
					a.Rows[i] = kernels.SampleRow{InvT: 3, TopP: topP, U: 0.5}
				}
				for b.Loop() {
					be.Sample(a)
				}
				rate(b, 2*rows*vocab*channels)
			})
		}
	}
	for _, backward := range []bool{false, true} {
		b.Run(fmt.Sprintf("LogProbs/backward=%t/rows=128", backward), func(b *testing.B) {
			const rows = 128
			be := newBench(b, Options{})
			ids := be.ints(rows, func(i int) int32 { return int32(i) })
			a := &kernels.LogProbsArgs{LogP: be.floats(1, rows), Entropy: be.floats(1, rows), LSE: be.floats(1, rows),
				Hidden: be.floats(rows, channels), W: be.weight(quant.Q4_1, vocab, channels), PairRows: ids, Targets: ids,
				InvT: be.floats(1, rows), Scratch: be.floats(1, kernels.LogProbsScratch(rows, vocab, be.Threads()))}
			g := &kernels.LogProbsGrad{DLogP: be.floats(1, rows), DEntropy: be.floats(1, rows), DHidden: be.floats(rows, channels)}
			for b.Loop() {
				if backward {
					be.LogProbsBackward(a, g)
				} else {
					be.LogProbs(a)
				}
			}
			if backward {
				rate(b, 4*rows*vocab*channels)
			} else {
				rate(b, 2*rows*vocab*channels)
			}
		})
	}
}

// BenchmarkAttention is one layer of SmolLM2-135M: 8 completions of 64 tokens that share a prompt of
// 256, as training sees them, and one step of decoding.
func BenchmarkAttention(b *testing.B) {
	const heads, groups, dim = 9, 3, 64
	be := newBench(b, Options{})
	batch := kernelstest.NewBatch(be.rng, []kernelstest.Group{{Prompt: 256, Completions: []int{64, 64, 64, 64, 64, 64, 64, 64}}})
	copied := func(v []int32) kernels.Tensor { return be.ints(len(v), func(i int) int32 { return v[i] }) }
	tables, n, size := copied(batch.Tables), batch.N(), groups*dim*kernels.PageSize
	tables.Rows, tables.Cols, tables.Stride = batch.Seqs, batch.Width, batch.Width
	all := &kernels.AttentionArgs{Out: be.floats(n, heads*dim), LSE: be.floats(n, heads), Q: be.floats(n, heads*dim),
		KV:     kernels.KV{K: be.floats(batch.Pages, size), V: be.floats(batch.Pages, size), Heads: groups, Dim: dim},
		Tables: tables, Seq: copied(batch.Seq), Positions: copied(batch.Positions), Heads: heads, Scale: 0.125}
	one := *all
	one.Out, one.LSE, one.Q = be.floats(8, heads*dim), be.floats(8, heads), be.floats(8, heads*dim)
	one.Seq, one.Positions = be.ints(8, func(i int) int32 { return int32(i) }), be.ints(8, func(int) int32 { return 319 })
	grad := &kernels.AttentionGrad{DOut: be.floats(n, heads*dim), DQ: be.floats(n, heads*dim),
		DK: be.floats(n, groups*dim), DV: be.floats(n, groups*dim), Rows: copied(batch.Rows), Slots: copied(batch.Slots),
		Scratch: be.floats(1, kernels.AttentionScratch(n, batch.Pages, heads, groups, dim))}
	measure := func(name string, a *kernels.AttentionArgs, products int, f func()) {
		seen := 0
		for _, p := range a.Positions.I32() {
			seen += int(p) + 1
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f()
			}
			b.ReportMetric(float64(2*products*seen*heads*dim)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
	measure("group", all, 2, func() { be.Attention(all) })
	measure("group backward", all, 7, func() { be.AttentionBackward(all, grad) })
	measure("decode 8", &one, 2, func() { be.Attention(&one) })
}
