package kernelstest

import (
	"fmt"

	"graft/kernels"
	"graft/kernels/quant"
)

// gradCase is a product and which of its gradients are asked for.
type gradCase struct {
	linearCase
	base, adapter bool // trained
}

func (c gradCase) String() string {
	return fmt.Sprintf("%v-base%t-adapter%t", c.linearCase, c.base, c.adapter)
}

// grad makes the operands of one product's backward; the forward has run.
func (l *Lab) grad(c gradCase, p kernels.Product, n, in int) kernels.ProductGrad {
	g := kernels.ProductGrad{W: p.W, LoRA: p.LoRA, H: p.H}
	if c.base {
		g.DW = l.Gradient(c.out, in)
		if c.bias {
			g.DBias = l.Writable(l.Normal(1, c.out, 1))
		}
	}
	if c.rank > 0 {
		g.DH = l.Output(n, padded(c.rank))
		if c.adapter {
			g.DA, g.DB = l.Gradient(c.rank, in), l.Gradient(c.out, c.rank)
		}
	}
	return g
}

// rowsOf is a product's gradient for some of the rows.
func rowsOf(g kernels.ProductGrad, p part) kernels.ProductGrad {
	g.DY = g.DY.Slice(p.from, p.to)
	if g.LoRA != nil {
		g.H, g.DH = g.H.Slice(p.from, p.to), g.DH.Slice(p.from, p.to)
	}
	return g
}

// matMulBackwardScene differentiates products of one x, whose dy are columns of one tensor.
func matMulBackwardScene(n, in int, keep, needDX bool, cases []gradCase) scene {
	return func(l *Lab) {
		x, width := l.Normal(n, in, 1), 0
		for _, c := range cases {
			width += c.out
		}
		dy, at := l.Normal(n, width, 1), 0
		products, grads := make([]kernels.Product, len(cases)), make([]kernels.ProductGrad, len(cases))
		for i, c := range cases {
			products[i] = l.product(c.linearCase, n, in)
			products[i].Y = l.Writable(l.Normal(n, c.out, 1))
			grads[i] = l.grad(c, products[i], n, in)
			grads[i].DY = dy.Columns(at, at+c.out)
			at += c.out
		}
		l.B.MatMul(x, products)
		var dx kernels.Tensor
		if needDX {
			dx = l.Writable(l.Normal(n, in, 1))
		}
		for _, p := range l.parts(n) {
			call, dxp := make([]kernels.ProductGrad, len(grads)), dx
			for i, g := range grads {
				call[i] = rowsOf(g, p)
			}
			if needDX {
				dxp = dx.Slice(p.from, p.to)
			}
			l.B.MatMulBackward(dxp, x.Slice(p.from, p.to), call, keep)
		}
		if needDX {
			l.Report("dx", dx)
		}
		for i, g := range grads {
			l.reportGrad(i, g)
		}
	}
}

func (l *Lab) reportGrad(i int, g kernels.ProductGrad) {
	if g.DW.Present() {
		l.ReportWeight(fmt.Sprintf("dw%d", i), g.DW)
	}
	if g.DBias.Present() {
		l.ReportGrown(fmt.Sprintf("dbias%d", i), g.DBias)
	}
	if g.DA.Present() {
		l.ReportWeight(fmt.Sprintf("da%d", i), g.DA)
		l.ReportWeight(fmt.Sprintf("db%d", i), g.DB)
	}
}

func testMatMulBackward(t tester, b kernels.Backend) {
	run := func(seed, n, in int, keep, needDX bool, cases ...gradCase) {
		t.Run(fmt.Sprintf("%v-in%d-keep%t-dx%t-of%d", cases[0], in, keep, needDX, len(cases)), func(t tester) {
			terms := in + n
			for _, c := range cases {
				terms += c.out + c.rank
			}
			compare(t, b, uint64(seed), check{terms: terms, grown: true}, matMulBackwardScene(n, in, keep, needDX, cases))
		})
	}
	for i, f := range quant.Formats() {
		for j, in := range inputs(f) {
			c := linearCase{format: f, out: []int{1, 16, 49, 30}[j], rank: []int{0, 4, 0, 17}[j]}
			run(i, 23, in, i%2 == 0, true, gradCase{c, f == quant.F32, true})
			c.precision, c.out = kernels.PrecisionInt8, []int{1, 32, 49, 144}[j]
			run(i, 23, in, i%2 == 0, true, gradCase{c, f == quant.F32, true})
		}
	}
	for i := range 32 {
		c := gradCase{linearCase{format: quant.F32, out: 33, bias: i&1 != 0, rank: 12}, i&2 != 0, i&4 != 0}
		if c.rank = ranks[i%len(ranks)]; i&24 == 24 {
			c.rank = 0
		}
		run(i, 13, 40, i&8 != 0, i&16 == 0, c)
	}
	run(1, 19, 256, false, true,
		gradCase{linearCase{format: quant.Q4_K, out: 50, rank: 8}, false, true},
		gradCase{linearCase{format: quant.F32, out: 17, bias: true}, true, false},
		gradCase{linearCase{format: quant.Q8_0, out: 31, rank: 16}, false, false},
		gradCase{linearCase{format: quant.F32, out: 16, rank: 4}, true, true})
	run(1, 19, 256, true, true,
		gradCase{linearCase{format: quant.Q4_K, out: 50, rank: 8, precision: kernels.PrecisionInt8}, false, true},
		gradCase{linearCase{format: quant.F32, out: 17, bias: true, precision: kernels.PrecisionInt8}, true, false},
		gradCase{linearCase{format: quant.Q8_0, out: 31, rank: 16}, false, false},
		gradCase{linearCase{format: quant.Q6_K, out: 80, rank: 16, precision: kernels.PrecisionInt8}, false, false})
	run(4, 109, 64, false, true, gradCase{linearCase{format: quant.Q4_1, out: 1100, rank: 8, precision: kernels.PrecisionInt8}, false, true})
	run(2, 37, 1024, true, true, gradCase{linearCase{format: quant.Q5_K, out: 130, rank: 32}, false, true})
	run(3, 37, 600, false, true, gradCase{linearCase{format: quant.F32, out: 270, bias: true}, true, false})
}
