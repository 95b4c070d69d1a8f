package kernelstest

import (
	"fmt"
	"math"

	"graft/kernels"
	"graft/kernels/quant"
)

// testMove covers Upload, Download, Zero, Copy, Add, Gather and ScatterAdd: moves, and additions in
// a stated order, so ref's bits are the only right ones.
func testMove(t tester, b kernels.Backend) {
	for i, shape := range [][2]int{{1, 1}, {1, 4099}, {7, 5}, {37, 48}} {
		n, cols := shape[0], shape[1]
		t.Run(fmt.Sprintf("%dx%d", n, cols), func(t tester) {
			compare(t, b, uint64(i), check{exact: true}, func(l *Lab) {
				x, zero := l.Normal(n, cols, 1), l.Writable(l.Normal(n, cols, 1))
				l.B.Zero(zero)
				l.Report("zero", zero)
				y := l.Output(n, cols)
				l.B.Copy(y, x)
				l.Report("copy", y)
				l.B.Add(y, l.Normal(n, cols, 1))
				l.Report("add", y)
				rows := make([]int32, 2*n+1)
				for i := range rows {
					rows[i] = int32(l.R.IntN(n))
				}
				picked := l.Output(len(rows), cols)
				l.B.Gather(picked, x, l.Ints(1, len(rows), rows))
				l.Report("gather", picked)
				l.B.ScatterAdd(y, l.Normal(len(rows), cols, 1), l.Ints(1, len(rows), rows))
				l.Report("scatter", y)
			})
		})
	}
}

// ids are n token ids below vocab, some of them several times.
func (l *Lab) ids(n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(l.R.IntN(vocab))
		if i > 0 && l.R.IntN(3) == 0 {
			ids[i] = ids[l.R.IntN(i)]
		}
	}
	return ids
}

func testEmbed(t tester, b kernels.Backend) {
	for i, f := range quant.Formats() {
		for _, in := range inputs(f) {
			t.Run(fmt.Sprintf("%v-c%d", f, in), func(t tester) {
				// One product of a decoded value: one rounding.
				compare(t, b, uint64(i), check{exact: true, rows: true}, func(l *Lab) {
					const n, vocab = 21, 53
					w, y, ids := l.Weight(f, vocab, in, 1), l.Output(n, in), l.Ints(1, n, l.ids(n, vocab))
					for _, p := range l.parts(n) {
						l.B.Embed(y.Slice(p.from, p.to), w, ids.Columns(p.from, p.to), 1.7)
					}
					l.Report("y", y)
				})
			})
		}
	}
}

func testEmbedBackward(t tester, b kernels.Backend) {
	for i, width := range []int{1, 16, 45} {
		t.Run(fmt.Sprintf("c%d", width), func(t tester) {
			compare(t, b, uint64(i), check{terms: 37, grown: true}, func(l *Lab) {
				const n, vocab = 37, 19
				dw, dy, ids := l.Gradient(vocab, width), l.Normal(n, width, 1), l.Ints(1, n, l.ids(n, vocab))
				for _, p := range l.parts(n) {
					l.B.EmbedBackward(dw, dy.Slice(p.from, p.to), ids.Columns(p.from, p.to), 1.7)
				}
				l.ReportWeight("dw", dw)
			})
		})
	}
}

// normCase is rows of runs·width channels.
type normCase struct {
	runs, width int
	keep        bool
	eps         float32
	size        float64 // of x: small ones make eps count
}

func (c normCase) String() string {
	return fmt.Sprintf("runs%d-w%d-keep%t", c.runs, c.width, c.keep)
}

var normCases = []normCase{
	{1, 1, false, 1e-5, 1}, {1, 7, true, 1e-6, 1}, {1, 64, false, 1e-5, 1e-3}, {1, 131, false, 1e-5, 1},
	{4, 16, false, 1e-6, 3}, {3, 24, true, 1e-6, 1}, {2, 128, false, 1e-6, 30}, {1, 1030, true, 1e-6, 1},
}

func testRMSNorm(t tester, b kernels.Backend) {
	for i, c := range normCases {
		t.Run(c.String(), func(t tester) {
			compare(t, b, uint64(i), check{terms: 16 + c.width, rows: true}, func(l *Lab) {
				const n = 19
				cols := c.runs * c.width
				x, w, inv := l.Normal(n, cols, c.size), l.Normal(1, c.width, 1), l.Output(n, c.runs)
				y := l.Writable(l.Normal(n, cols, 1))
				for _, p := range l.parts(n) {
					l.B.RMSNorm(y.Slice(p.from, p.to), inv.Slice(p.from, p.to), x.Slice(p.from, p.to), w, c.eps, c.keep)
				}
				l.Report("y", y)
				l.Report("inv", inv)
			})
		})
	}
}

func testRMSNormBackward(t tester, b kernels.Backend) {
	for i, c := range normCases {
		for _, frozen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v-frozen%t", c, frozen), func(t tester) {
				// dx is a difference of terms of the size of w·dy·inv, and near 0 where a run is one channel.
				k := check{terms: 64 + c.width, slack: 32, floor: 1 / c.size, grown: true}
				compare(t, b, uint64(i), k, func(l *Lab) {
					const n = 19
					cols := c.runs * c.width
					x, w, inv := l.Normal(n, cols, c.size), l.Normal(1, c.width, 1), l.Output(n, c.runs)
					y, dy := l.Output(n, cols), l.Normal(n, cols, 1)
					l.B.RMSNorm(y, inv, x, w, c.eps, false)
					var dw kernels.Tensor
					if !frozen {
						dw = l.Writable(l.Normal(1, c.width, 1))
					}
					dx := l.Writable(l.Normal(n, cols, 1))
					for _, p := range l.parts(n) {
						l.B.RMSNormBackward(dx.Slice(p.from, p.to), dw, dy.Slice(p.from, p.to), x.Slice(p.from, p.to), w,
							inv.Slice(p.from, p.to), c.keep)
					}
					l.Report("dx", dx)
					if !frozen {
						l.ReportGrown("dw", dw)
					}
				})
			})
		}
	}
}

// ropeTable is cos and sin of positions·dims/2 angles, times factor.
func ropeTable(positions, dims int, factor float64) []float32 {
	table := make([]float32, 0, positions*dims)
	for p := range positions {
		for _, f := range []func(float64) float64{math.Cos, math.Sin} {
			for i := range dims / 2 {
				table = append(table, float32(factor*f(float64(p)*math.Pow(10000, -2*float64(i)/float64(dims)))))
			}
		}
	}
	return table
}

func testRoPE(t tester, b kernels.Backend) {
	for i, c := range []struct{ heads, dim, dims int }{{1, 16, 16}, {3, 24, 24}, {4, 32, 16}, {2, 80, 20}, {2, 128, 128}, {1, 256, 256}, {2, 10, 6}} {
		for mode := range 4 {
			paired, inverse := mode&1 != 0, mode&2 != 0
			t.Run(fmt.Sprintf("h%d-d%d-dims%d-paired%t-inverse%t", c.heads, c.dim, c.dims, paired, inverse), func(t tester) {
				compare(t, b, uint64(i), check{terms: 1, rows: true}, func(l *Lab) {
					const n, positions = 13, 90
					r := kernels.Rope{Table: l.Floats(positions, c.dims, ropeTable(positions, c.dims, 1.1)),
						Dims: c.dims, HeadDim: c.dim, Paired: paired}
					x, at := l.Writable(l.Normal(n, c.heads*c.dim, 1)), l.Ints(1, n, l.ids(n, positions))
					for _, p := range l.parts(n) {
						l.B.RoPE(x.Slice(p.from, p.to), r, at.Columns(p.from, p.to), inverse)
					}
					l.Report("x", x)
				})
			})
		}
	}
}

// gates are normal, and at the ends of exp's range.
func (l *Lab) gates(n, cols int) kernels.Tensor {
	v := l.normals(n*cols, 3)
	copy(v, []float32{0, float32(math.Copysign(0, -1)), 100, -100, 88.8, -88.8, -104.5, 1e-30, -1e-30, 20, -20, 1e4, -1e4})
	return l.Floats(n, cols, v)
}

func testGLU(t tester, b kernels.Backend) {
	for _, act := range []kernels.Activation{kernels.SiLU, kernels.GELUTanh} {
		for _, cols := range []int{1, 16, 45} {
			t.Run(fmt.Sprintf("act%d-f%d", act, cols), func(t tester) {
				const n = 17
				// The largest gates must not hide the errors of ordinary ones.
				c := check{slack: 64, floor: 1, each: true}
				forward := c
				forward.rows = true
				compare(t, b, uint64(cols), forward, func(l *Lab) {
					y, gate, up := l.Output(n, cols), l.gates(n, cols), l.Normal(n, cols, 1)
					for _, p := range l.parts(n) {
						l.B.GLU(y.Slice(p.from, p.to), gate.Slice(p.from, p.to), up.Slice(p.from, p.to), act)
					}
					l.Report("y", y)
				})
				for _, inPlace := range []bool{false, true} {
					compare(t, b, uint64(cols), c, func(l *Lab) { gluBackward(l, n, cols, act, inPlace) })
				}
			})
		}
	}
}

// gluBackward differentiates, in place or not.
func gluBackward(l *Lab, n, cols int, act kernels.Activation, inPlace bool) {
	gate, up, dy := l.gates(n, cols), l.Normal(n, cols, 1), l.Normal(n, cols, 1)
	dgate, dup := l.Output(n, cols), l.Output(n, cols)
	if inPlace {
		dgate, dup = l.Writable(gate), l.Writable(up)
	}
	l.B.GLUBackward(dgate, dup, dy, gate, up, act)
	l.Report("dgate", dgate)
	l.Report("dup", dup)
}

func testAdamW(t tester, b kernels.Backend) {
	for i, n := range []int{1, 16, 100, 5003} {
		t.Run(fmt.Sprintf("n%d", n), func(t tester) {
			// rate·m/(√v+eps) is a few roundings and a quotient of nearly equal sizes.
			compare(t, b, uint64(i), check{terms: 4, slack: 16}, func(l *Lab) {
				p, m, v := l.Writable(l.Normal(1, n, 1)), l.Scratch(1, n), l.Scratch(1, n)
				l.B.Zero(m)
				l.B.Zero(v)
				for step := 1; step <= 3; step++ {
					l.B.AdamW(p, l.Normal(1, n, 1), m, v, kernels.AdamWStep{LR: 0.3 / float64(step), Beta1: 0.9, Beta2: 0.99,
						Eps: 1e-6, WeightDecay: 0.1, GradScale: 0.5, T: step})
				}
				l.Report("p", p)
				l.Report("m", m)
				l.Report("v", v)
			})
		})
	}
	t.Run("padding", func(t tester) { adamWKeepsPadding(t, b) })
}

// adamWKeepsPadding: a packed weight's padding is zero after a step, and Unpack sees the step.
func adamWKeepsPadding(t tester, b kernels.Backend) {
	l := NewLab(t, b, 1)
	const out, in = 19, 7
	p, g := l.Gradient(out, in), l.Gradient(out, in)
	n := p.Flat().Cols
	m, v := l.Scratch(1, n), l.Scratch(1, n)
	l.B.Zero(m)
	l.B.Zero(v)
	before, grad := l.ReadWeight(p), l.ReadWeight(g)
	l.B.AdamW(p.Flat(), g.Flat(), m, v, kernels.AdamWStep{LR: 0.1, Beta1: 0.9, Beta2: 0.9, Eps: 1e-8, GradScale: 1, T: 1})
	for i, after := range l.ReadWeight(p) { // the first step moves by LR in the gradient's direction
		want := float64(before[i]) - math.Copysign(0.1, float64(grad[i]))
		l.require(math.Abs(float64(after)-want) < 1e-5, "parameter %d is %v after a step, want %v", i, after, want)
	}
	values := 0
	for _, x := range l.Read(p.Flat()) {
		if x != 0 {
			values++
		}
	}
	l.require(values <= out*in, "%d values of the flat weight are not zero after a step, want at most %d", values, out*in)
	l.Check()
}

func testSumSquares(t tester, b kernels.Backend) {
	for i, n := range []int{1, 15, 4096, 4097, 30011} {
		t.Run(fmt.Sprintf("n%d", n), func(t tester) {
			compare(t, b, uint64(i), check{terms: 256}, func(l *Lab) { // float32 inside blocks, float64 over them
				sum := l.B.SumSquares(l.Normal(1, n, 3))
				l.reports = append(l.reports, report{name: "sum", values: []float32{float32(sum)}})
			})
		})
	}
}
