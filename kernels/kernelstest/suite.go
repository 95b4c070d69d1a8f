package kernelstest

import (
	"math"
	"testing"

	"graft/kernels"
	"graft/kernels/ref"
)

// tester is a test that can have parts. The suite's own test uses another one, to watch it fail.
type tester interface {
	T
	Run(name string, f func(tester)) bool
}

// goTest is *testing.T as a tester.
type goTest struct{ *testing.T }

func (g goTest) Run(name string, f func(tester)) bool {
	return g.T.Run(name, func(t *testing.T) { f(goTest{t}) })
}

// section is one operation's part of the suite.
type section struct {
	name string
	run  func(t tester, b kernels.Backend)
}

// Run is the conformance suite: every backend passes all of it.
func Run(t *testing.T, b kernels.Backend) {
	for _, s := range sections() {
		t.Run(s.name, func(t *testing.T) { s.run(goTest{t}, b) })
	}
}

func sections() []section {
	return []section{
		{"Move", testMove},
		{"Pack", testPack},
		{"Embed", testEmbed},
		{"EmbedBackward", testEmbedBackward},
		{"RMSNorm", testRMSNorm},
		{"RMSNormBackward", testRMSNormBackward},
		{"MatMul", testMatMul},
		{"MatMulBackward", testMatMulBackward},
		{"RoPE", testRoPE},
		{"WriteKV", testWriteKV},
		{"Attention", testAttention},
		{"AttentionBackward", testAttentionBackward},
		{"GLU", testGLU},
		{"LogProbs", testLogProbs},
		{"LogProbsBackward", testLogProbsBackward},
		{"Sample", testSample},
		{"AdamW", testAdamW},
		{"SumSquares", testSumSquares},
	}
}

// epsilon is half the distance from 1 to the next float32: the largest relative error of one rounding.
const epsilon = 1.0 / (1 << 24)

// check says how close a scene's results must come to ref's, and which laws hold for it.
type check struct {
	// terms is the length of the longest chain of float32 additions behind a result. Their rounding
	// errors are a random walk: about ε·√terms of the sum's size. The bound is 16 times that.
	terms int
	// slack adds to the bound, in ε: for exponentials, divisions and what amplifies them.
	slack float64
	// floor is the least size that errors are relative to; otherwise it is the largest value of the
	// result, since what cancels to a small value has the error of what it was made of.
	floor float64
	each  bool // errors are relative to each value itself, or to floor if that is larger
	exact bool // bits equal to ref's: the operation rounds once, or not at all
	rows  bool // the row law: the same bits however rows are split into calls and however strided
	grown bool // the same for parameter gradients only
}

// scene makes inputs, calls operations and reports results.
type scene func(l *Lab)

// play runs a scene from a seed and returns what it reported.
func play(t tester, b kernels.Backend, seed uint64, wide bool, cuts []int, s scene) []report {
	t.Helper()
	l := NewLab(t, b, seed)
	l.wide, l.cuts = wide, cuts
	s(l)
	l.Check()
	return l.reports
}

// uneven are the sizes of calls when rows are split: all remainders of the usual register blocks.
var uneven = []int{1, 2, 5, 3, 7, 4, 13, 6, 8}

// compare runs a scene on ref and on the backend, and holds the results against the check.
func compare(t tester, b kernels.Backend, seed uint64, c check, s scene) {
	t.Helper()
	want := play(t, ref.New(), seed, false, nil, s)
	got := play(t, b, seed, false, nil, s)
	near(t, "ref", want, got, c)
	same(t, "a second run", got, play(t, b, seed, false, nil, s), false)
	strided := play(t, b, seed, true, nil, s)
	near(t, "ref, strided", want, strided, c)
	if c.rows || c.grown {
		same(t, "other strides", got, strided, !c.rows)
		same(t, "rows one by one", got, play(t, b, seed, true, []int{1}, s), !c.rows)
		same(t, "rows in pieces", got, play(t, b, seed, false, uneven, s), !c.rows)
	}
}

// bound is the largest error a check allows for a result.
func (c check) bound(want []float32) float64 {
	size := c.floor
	for _, v := range want {
		size = math.Max(size, math.Abs(float64(v)))
	}
	return epsilon * (16*math.Sqrt(float64(c.terms)) + c.slack) * size
}

// near fails unless all values are within the check's bound of those wanted.
func near(t tester, what string, want, got []report, c check) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%d results, %s has %d", len(got), what, len(want))
		t.FailNow()
	}
	for i, w := range want {
		if c.exact {
			sameValues(t, what, w, got[i])
			continue
		}
		bound := c.bound(w.values)
		for j, v := range w.values {
			if c.each {
				bound = c.bound(w.values[j : j+1])
			}
			if d := math.Abs(float64(got[i].values[j]) - float64(v)); !(d <= bound) {
				t.Errorf("%s[%d] is %v, %s has %v: off by %.3g, bound %.3g", w.name, j, got[i].values[j], what, v, d, bound)
				t.FailNow()
			}
		}
	}
}

// same fails unless all bits are equal; of parameter gradients only, if grownOnly.
func same(t tester, what string, want, got []report, grownOnly bool) {
	t.Helper()
	for i, w := range want {
		if w.grown || !grownOnly {
			sameValues(t, what, w, got[i])
		}
	}
}

func sameValues(t tester, what string, want, got report) {
	t.Helper()
	for j, v := range want.values {
		if math.Float32bits(v) != math.Float32bits(got.values[j]) {
			t.Errorf("%s[%d] is %v, but %v (bits differ) with %s", want.name, j, v, got.values[j], what)
			t.FailNow()
		}
	}
}
