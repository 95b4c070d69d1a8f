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
