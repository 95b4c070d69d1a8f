package kernelstest

import (
	"fmt"
	"slices"

	"graft/kernels"
	"graft/kernels/quant"
)

// threads is enough for the scratch of any backend under test.
const threads = 16

// headCase is a LogProbs scene: rows of hidden states against a vocabulary.
type headCase struct {
	format         quant.Format
	rows, vocab, c int
	softcap        float32
	precision      kernels.Precision
}

func (c headCase) String() string {
	return fmt.Sprintf("%v-m%d-v%d-c%d-cap%v-%v", c.format, c.rows, c.vocab, c.c, c.softcap, c.precision)
}

// headCases cross the bounds of rows and of vocabulary that are summed as one unit.
var headCases = []headCase{
	{quant.F32, 1, 1, 5, 0, kernels.PrecisionF32}, {quant.F32, 9, 7, 16, 0, kernels.PrecisionF32}, {quant.F32, 5, 300, 45, 4, kernels.PrecisionF32},
	{quant.Q8_0, 33, 300, 64, 0, kernels.PrecisionF32}, {quant.Q6_K, 6, 515, 256, 30, kernels.PrecisionF32}, {quant.Q4_0, 3, 2 * kernels.VocabChunk, 32, 0, kernels.PrecisionF32},
	{quant.Q8_0, 70, 300, 64, 0, kernels.PrecisionInt8}, {quant.Q6_K, 6, 515, 256, 30, kernels.PrecisionInt8},
	{quant.Q4_0, 3, kernels.VocabChunk + 5, 32, 0, kernels.PrecisionInt8}, {quant.F32, 5, 40, 16, 0, kernels.PrecisionInt8},
	{quant.Q4_1, 2*kernels.LogProbsRows + 7, 1100, 64, 30, kernels.PrecisionInt8},
	{quant.F32, kernels.LogProbsRows + 6, kernels.VocabChunk + 37, 16, 0, kernels.PrecisionF32},
}

// scored is the operands of a head.
type scored struct {
	headCase
	hidden            kernels.Tensor
	w                 kernels.Weight
	invT              []float32
	pairRows, targets []int32
}

// scored makes rows with none, one or several targets each.
func (l *Lab) scored(c headCase) *scored {
	s := &scored{headCase: c, hidden: l.Normal(c.rows, c.c, 1), w: l.Weight(c.format, c.vocab, c.c, 2*weightStd(c.c))}
	for m := range c.rows {
		s.invT = append(s.invT, []float32{1, 1 / 0.7, 0.5}[m%3])
		for range (m + 1) % 4 {
			s.pairRows = append(s.pairRows, int32(m))
			s.targets = append(s.targets, int32(l.R.IntN(c.vocab)))
		}
	}
	s.w.Precision = c.precision
	return s
}

// args are the arguments for a part's rows; the results are columns.
func (s *scored) args(l *Lab, p part, logp, entropy, lse kernels.Tensor) *kernels.LogProbsArgs {
	first, _ := slices.BinarySearch(s.pairRows, int32(p.from))
	last, _ := slices.BinarySearch(s.pairRows, int32(p.to))
	rows := slices.Clone(s.pairRows[first:last])
	for i := range rows {
		rows[i] -= int32(p.from)
	}
	n := p.to - p.from
	return &kernels.LogProbsArgs{LogP: logp.Columns(first, last), Entropy: entropy.Columns(p.from, p.to),
		LSE: lse.Columns(p.from, p.to), Hidden: s.hidden.Slice(p.from, p.to), W: s.w,
		PairRows: l.Ints(1, len(rows), rows), Targets: l.Ints(1, len(rows), s.targets[first:last]),
		InvT: l.Floats(1, n, s.invT[p.from:p.to]), Softcap: s.softcap,
		Scratch: l.Scratch(1, kernels.LogProbsScratch(n, s.vocab, threads))}
}

// check: a logit's error is that of a chain over C, doubled by the temperature; log-sum-exp and
// entropy are differences of numbers of the logits' size.
func (c headCase) check() check { return check{terms: 2 * c.c, slack: 64, floor: 4} }

func testLogProbs(t tester, b kernels.Backend) {
	for i, c := range headCases {
		t.Run(c.String(), func(t tester) {
			k := c.check()
			k.rows = true
			compare(t, b, uint64(i), k, func(l *Lab) {
				s := l.scored(c)
				logp, entropy, lse := l.Output(1, len(s.pairRows)), l.Output(1, c.rows), l.Output(1, c.rows)
				for _, p := range l.parts(c.rows) {
					l.B.LogProbs(s.args(l, p, logp, entropy, lse))
				}
				l.Report("logp", logp)
				l.Report("entropy", entropy)
				l.Report("lse", lse)
			})
		})
	}
}

func testLogProbsBackward(t tester, b kernels.Backend) {
	for i, c := range headCases {
		for mode := range 3 {
			hidden, weight := mode != 1, mode != 2 && c.format == quant.F32
			if !hidden && !weight {
				continue
			}
			t.Run(fmt.Sprintf("%v-dhidden%t-dw%t", c, hidden, weight), func(t tester) {
				compare(t, b, uint64(i), check{terms: 64 + c.c + c.rows, slack: 256}, func(l *Lab) {
					l.headBackward(l.scored(c), hidden, weight)
				})
			})
		}
	}
}

// headBackward runs the forward and the backward of all rows and reports the gradients asked for.
func (l *Lab) headBackward(s *scored, hidden, weight bool) {
	logp, entropy, lse := l.Output(1, len(s.pairRows)), l.Output(1, s.rows), l.Output(1, s.rows)
	a := s.args(l, part{0, s.rows}, logp, entropy, lse)
	l.B.LogProbs(a)
	g := kernels.LogProbsGrad{DLogP: l.Normal(1, len(s.pairRows), 1), DEntropy: l.Normal(1, s.rows, 0.5)}
	if hidden {
		g.DHidden = l.Output(s.rows, s.c)
	}
	if weight {
		g.DW = l.Gradient(s.vocab, s.c)
	}
	l.B.LogProbsBackward(a, &g)
	if hidden {
		l.Report("dhidden", g.DHidden)
	}
	if weight {
		l.ReportWeight("dw", g.DW)
	}
}
