package vec

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"graft/kernels/quant"
)

// eachTable runs a benchmark for every instruction set of this machine.
func eachTable(b *testing.B, name string, f func(b *testing.B, k *Kernels)) {
	for _, isa := range Supported() {
		b.Run(fmt.Sprintf("%s/%v", name, isa), func(b *testing.B) { f(b, For(isa)) })
	}
}

// report adds the rate of an operation of flops floating point operations.
func report(b *testing.B, flops float64) {
	b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

func BenchmarkGemm(b *testing.B) {
	const in = 576
	for _, m := range []int{1, 2, 3, 4, 6, 8, 12, 24} {
		eachTable(b, fmt.Sprintf("%dx16x%d", m, in), func(b *testing.B, k *Kernels) {
			x, w, y := fence(m*in, 0), fence(16*in, 0), fence(m*16, 0)
			clear(x.floats())
			clear(w.floats())
			g := &GemmArgs{A: x.at(0), B: w.at(0), C: y.at(0), ARow: in, ARed: 1, BPanel: 16 * in, BRed: 16, CRow: 16, CPanel: 16, M: int64(m), P: 1, K: in}
			for b.Loop() {
				k.Gemm(g)
			}
			report(b, float64(2*m*16*in))
		})
	}
}

// BenchmarkGemv streams a matrix of 1536 outputs, larger than the second-level
// cache of most machines, eight panels a call.
func BenchmarkGemv(b *testing.B) {
	const out, in, panels = 1536, 1536, 8
	for _, f := range quant.Formats() {
		eachTable(b, fmt.Sprintf("%v/%dx%d", f, out, in), func(b *testing.B, k *Kernels) {
			rng := rand.New(rand.NewPCG(1, 2))
			w := packed(rng, f, out, in, false)
			x, y := fence(in, 0), fence(out, 0)
			fillFloats(rng, x.floats(), false)
			clear(y.floats())
			size := PanelBytes(f, in)
			g := &GemvArgs{X: x.at(0), K: in, P: panels, PanelBytes: int64(size)}
			b.SetBytes(int64(len(w)))
			for b.Loop() {
				for p := 0; p < Panels(out); p += panels {
					g.W, g.Y = unsafe.Pointer(&w[p*size]), y.at(16*p)
					k.Gemv[f](g)
				}
			}
			report(b, 2*out*in)
		})
	}
}

func BenchmarkGemvRows(b *testing.B) {
	const out, in = 128, 1536
	for _, m := range []int{2, 3, 4} {
		for _, f := range []quant.Format{quant.BF16, quant.Q4_1, quant.Q4_K, quant.Q6_K, quant.Q8_0} {
			eachTable(b, fmt.Sprintf("%v/%dx%dx%d", f, m, out, in), func(b *testing.B, k *Kernels) {
				w := packed(rand.New(rand.NewPCG(1, 2)), f, out, in, false)
				x, y := fence(m*in, 0), fence(m*out, 0)
				clear(x.floats())
				clear(y.floats())
				g := &GemvRowsArgs{X: x.at(0), W: unsafe.Pointer(&w[0]), Y: y.at(0), K: in, P: out / 16,
					PanelBytes: int64(PanelBytes(f, in)), M: int64(m), XRow: in, YRow: out}
				for b.Loop() {
					k.GemvRows[f](g)
				}
				report(b, float64(2*m*out*in))
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	const in = 768
	for _, f := range quant.Formats() {
		eachTable(b, fmt.Sprintf("%v/16x%d", f, in), func(b *testing.B, k *Kernels) {
			w := packed(rand.New(rand.NewPCG(1, 2)), f, 16, in, false)
			dst := fence(16*in, 0)
			d := &DecodeArgs{Dst: dst.at(0), Panel: unsafe.Pointer(&w[0]), K: in}
			b.SetBytes(4 * 16 * in)
			for b.Loop() {
				k.Decode[f](d)
			}
		})
	}
}

func BenchmarkTranspose16(b *testing.B) {
	eachTable(b, "16x256", func(b *testing.B, k *Kernels) {
		src, dst := fence(16*256, 0), fence(16*256, 0)
		g := &TransposeArgs{Dst: dst.at(0), Src: src.at(0), DstRow: 256, SrcRow: 16, N: 16}
		b.SetBytes(4 * 16 * 256)
		for b.Loop() {
			k.Transpose16(g)
		}
	})
}

// BenchmarkGemm8 is 96 rows, as many as stay in the second-level cache, times twelve panels.
func BenchmarkGemm8(b *testing.B) {
	const out, in, m = 192, 768, 96
	for _, f := range quant.Formats() {
		if f.BlockLen() == 1 {
			continue
		}
		eachTable(b, fmt.Sprintf("%v/%dx%dx%d", f, m, out, in), func(b *testing.B, k *Kernels) {
			rng := rand.New(rand.NewPCG(1, 2))
			w, x, y := packed(rng, f, out, in, false), make([]float32, m*in), make([]float32, m*out)
			fillFloats(rng, x, false)
			blocks, row := rounded(k, x, m, in, 0)
			g := &Gemm8Args{X: unsafe.Pointer(&blocks[0]), W: unsafe.Pointer(&w[0]), Y: unsafe.Pointer(&y[0]), K: in,
				P: out / Lanes, PanelBytes: int64(PanelBytes(f, in)), M: m, XRow: int64(row), YRow: out}
			for b.Loop() {
				k.Gemm8[f](g)
			}
			report(b, 2*m*out*in)
		})
	}
}

// BenchmarkTurned is a strip of a gradient: 96 rows times two panels of 512 outputs, and what it
// takes to make the panels.
func BenchmarkTurned(b *testing.B) {
	const outs, m, panels = 512, 96, 2
	eachTable(b, "Gemm", func(b *testing.B, k *Kernels) {
		w, x, y := make([]float32, outs*16*panels), make([]float32, m*outs), make([]float32, m*16*panels)
		fillFloats(rand.New(rand.NewPCG(1, 2)), x, false)
		panel := turned(k, w, outs*panels, 16)
		blocks, row := roundedTo(k, x, m, outs, 0, quant.GradientTop)
		g := &Gemm8Args{X: unsafe.Pointer(&blocks[0]), W: unsafe.Pointer(&panel[0]), Y: unsafe.Pointer(&y[0]), K: outs,
			P: panels, PanelBytes: int64(len(panel) / panels), M: m, XRow: int64(row), YRow: 16 * panels}
		for b.Loop() {
			k.GemmTurned(g)
		}
		report(b, 2*m*outs*16*panels)
	})
	eachTable(b, "Turn8", func(b *testing.B, k *Kernels) {
		w, panel := make([]float32, outs*16), make([]byte, outs/32*TurnedBytes)
		t := &Turn8Args{W: unsafe.Pointer(&w[0]), Panel: unsafe.Pointer(&panel[0]), Row: 16, N: outs / 32}
		b.SetBytes(4 * outs * 16)
		for b.Loop() {
			k.Turn8(t)
		}
	})
}
