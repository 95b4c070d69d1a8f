package kernelstest

import (
	"bytes"
	"fmt"
	"math"

	"graft/kernels"
	"graft/kernels/quant"
)

// linearCase is one product of a MatMul scene.
type linearCase struct {
	format     quant.Format
	out        int
	bias, keep bool
	rank       int // 0: no LoRA
	precision  kernels.Precision
}

func (c linearCase) String() string {
	s := fmt.Sprintf("%v-out%d", c.format, c.out)
	if c.bias {
		s += "-bias"
	}
	if c.keep {
		s += "-keep"
	}
	if c.rank > 0 {
		s += fmt.Sprintf("-lora%d", c.rank)
	}
	if c.precision != kernels.PrecisionF32 {
		s += "-" + c.precision.String()
	}
	return s
}

// padded is n rounded up to a multiple of 16.
func padded(n int) int { return (n + 15) &^ 15 }

// weightStd makes outputs of about unit size from inputs of unit size.
func weightStd(in int) float64 { return 1 / math.Sqrt(float64(in)) }

// product makes the operands of one product with n rows, y aside.
func (l *Lab) product(c linearCase, n, in int) kernels.Product {
	p := kernels.Product{W: l.Weight(c.format, c.out, in, weightStd(in)), Keep: c.keep}
	p.W.Precision = c.precision
	if c.bias {
		p.Bias = l.Normal(1, c.out, 1)
	}
	if c.rank > 0 {
		p.LoRA = &kernels.LowRank{A: l.Weight(quant.F32, c.rank, in, weightStd(in)),
			B: l.Weight(quant.F32, c.out, c.rank, weightStd(c.rank)), Scale: 0.75}
		p.H = l.Output(n, padded(c.rank))
	}
	return p
}

// matMulScene multiplies n rows by every case at once. The outputs are columns of one tensor, as
// those of a fused q, k, v are.
func matMulScene(n, in int, cases []linearCase) scene {
	return func(l *Lab) {
		x := l.Normal(n, in, 1)
		width := 0
		for _, c := range cases {
			width += c.out
		}
		y := l.Writable(l.Normal(n, width, 1)) // Keep adds to these values, others must overwrite them
		products := make([]kernels.Product, len(cases))
		at := 0
		for i, c := range cases {
			products[i] = l.product(c, n, in)
			products[i].Y = y.Columns(at, at+c.out)
			at += c.out
		}
		for _, part := range l.parts(n) {
			call := make([]kernels.Product, len(products))
			for i, p := range products {
				p.Y = p.Y.Slice(part.from, part.to)
				if p.LoRA != nil {
					p.H = p.H.Slice(part.from, part.to)
				}
				call[i] = p
			}
			l.B.MatMul(x.Slice(part.from, part.to), call)
		}
		l.Report("y", y)
		for i, p := range products {
			if p.LoRA != nil {
				l.Report(fmt.Sprintf("h%d", i), p.H.Columns(0, cases[i].rank))
			}
		}
	}
}

// inputs are the widths a format is tried with: one block, several, and odd ones where blocks allow.
func inputs(f quant.Format) []int {
	switch f.BlockLen() {
	case 1:
		return []int{1, 7, 48, 131}
	case 32:
		return []int{32, 96, 160}
	}
	return []int{f.BlockLen(), 2 * f.BlockLen()}
}

var ranks = []int{1, 4, 8, 16, 17, 32, 64}

func testMatMul(t tester, b kernels.Backend) {
	for _, f := range quant.Formats() {
		for i, in := range inputs(f) {
			out := []int{1, 16, 49, 30}[i]
			c := linearCase{format: f, out: out, bias: i%2 == 1}
			t.Run(fmt.Sprintf("%v-in%d", c, in), func(t tester) {
				compare(t, b, uint64(i), check{terms: in, rows: true}, matMulScene(37, in, []linearCase{c}))
			})
		}
	}
	testMatMulInt8(t, b)
	for i := range 4 * (len(ranks) + 1) {
		c := linearCase{format: quant.F32, out: 33, bias: i&1 != 0, keep: i&2 != 0}
		if i >= 4 {
			c.rank = ranks[i/4-1]
		}
		t.Run(c.String(), func(t tester) {
			compare(t, b, uint64(i), check{terms: 40 + c.rank, rows: true}, matMulScene(11, 40, []linearCase{c}))
		})
	}
	t.Run("several", func(t tester) {
		compare(t, b, 1, check{terms: 320, rows: true}, matMulScene(23, 256, []linearCase{
			{format: quant.Q4_K, out: 50, rank: 8}, {format: quant.Q6_K, out: 17, bias: true, rank: 64},
			{format: quant.F32, out: 16, keep: true}, {format: quant.Q8_0, out: 31, rank: 17}}))
	})
	// Large enough for every blocking of k and of outputs to begin anew.
	for i, f := range []quant.Format{quant.F32, quant.Q4_0, quant.Q5_K} {
		t.Run(fmt.Sprintf("large-%v", f), func(t tester) {
			compare(t, b, uint64(i), check{terms: 1040, rows: true},
				matMulScene(40, 1024, []linearCase{{format: f, out: 130, keep: true, rank: 16}}))
		})
	}
}

// testMatMulInt8 does the same under the int8 contract, which formats without blocks do not know.
func testMatMulInt8(t tester, b kernels.Backend) {
	for _, f := range quant.Formats() {
		for i, in := range inputs(f) {
			c := linearCase{format: f, out: []int{1, 16, 49, 150}[i], bias: i%2 == 1, keep: i > 1, precision: kernels.PrecisionInt8}
			t.Run(fmt.Sprintf("%v-in%d", c, in), func(t tester) {
				compare(t, b, uint64(i), check{terms: in, rows: true}, matMulScene(37, in, []linearCase{c}))
			})
		}
	}
	t.Run("several-int8", func(t tester) {
		compare(t, b, 1, check{terms: 1100, rows: true}, matMulScene(120, 1024, []linearCase{
			{format: quant.Q4_K, out: 50, rank: 8, precision: kernels.PrecisionInt8},
			{format: quant.Q6_K, out: 17, bias: true, rank: 64, precision: kernels.PrecisionInt8},
			{format: quant.F32, out: 16, keep: true, precision: kernels.PrecisionInt8},
			{format: quant.Q8_0, out: 31, rank: 17}}))
	})
}

// testPack: Unpack is the exact inverse of Pack, in whole or in runs of 16 rows, and padding is zero.
func testPack(t tester, b kernels.Backend) {
	for _, f := range quant.Formats() {
		for i, out := range []int{1, 15, 16, 17, 50} {
			in := inputs(f)[i%len(inputs(f))]
			t.Run(fmt.Sprintf("%v-out%d-in%d", f, out, in), func(t tester) {
				packRoundTrip(t, NewLab(t, b, uint64(out)), f, out, in)
			})
		}
	}
}

func packRoundTrip(t tester, l *Lab, f quant.Format, out, in int) {
	raw, row := RandomRaw(l.R, f, out*in, 1), f.Bytes(in)
	whole := l.Packed(f, out, in, raw)
	pieces := l.newWeight(f, out, in)
	for from := padded(out) - 16; from >= 0; from -= 16 {
		to := min(out, from+16)
		l.B.Pack(pieces, from, raw[from*row:to*row])
	}
	l.remember(kernels.Tensor{Mem: pieces.Mem})
	for name, w := range map[string]kernels.Weight{"packed at once": whole, "packed by 16": pieces} {
		got := make([]byte, len(raw))
		l.B.Unpack(got, w, 0)
		l.require(bytes.Equal(got, raw), "%s, Unpack returned other bytes", name)
		clear(got)
		for from := 0; from < out; from += 16 {
			l.B.Unpack(got[from*row:min(out, from+16)*row], w, from)
		}
		l.require(bytes.Equal(got, raw), "%s, Unpack by 16 rows returned other bytes", name)
	}
	l.Check()
	if f == quant.F32 {
		var left int
		for _, v := range l.Read(whole.Flat()) {
			if v != 0 {
				left++
			}
		}
		l.require(left == out*in, "Flat has %d values that are not zero, want %d: padding is zero", left, out*in)
	}
}
