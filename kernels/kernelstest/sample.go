package kernelstest

import (
	"cmp"
	"math"
	"slices"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/kernels/ref"
)

// sampler draws from one head.
type sampler struct {
	*scored
	logits kernels.Tensor
}

// sampler makes a head with exact ties: the weight rows of ids 3, 5 and V−1 are equal.
func (l *Lab) sampler(c headCase) *sampler {
	row := c.format.Bytes(c.c)
	raw := RandomRaw(l.R, c.format, c.vocab*c.c, 2*weightStd(c.c))
	for _, id := range []int{5, c.vocab - 1} {
		copy(raw[id*row:(id+1)*row], raw[3*row:4*row])
	}
	s := l.scored(c)
	s.w = l.Packed(c.format, c.vocab, c.c, raw)
	s.w.Precision = c.precision
	return &sampler{scored: s, logits: l.Writable(l.tensor(kernels.F32, c.rows, padded(c.vocab), false))}
}

// draw samples each row as told, part by part.
func (s *sampler) draw(l *Lab, rows []kernels.SampleRow) []kernels.Sampled {
	out := make([]kernels.Sampled, len(rows))
	for _, p := range l.parts(len(rows)) {
		l.B.Sample(&kernels.SampleArgs{Hidden: s.hidden.Slice(p.from, p.to), W: s.w, Softcap: s.softcap,
			Logits: s.logits.Slice(p.from, p.to), Rows: rows[p.from:p.to], Out: out[p.from:p.to]})
	}
	return out
}

// exactLogits are the logits of one row in float64.
func (s *sampler) exactLogits(l *Lab, m int) []float64 {
	x, w := l.Read(s.hidden)[m*s.c:(m+1)*s.c], l.ReadWeight(s.w)
	if s.w.Rounds() {
		blocks := make([]quant.ActivationBlock, len(x)/quant.ActivationLen)
		quant.QuantizeActivations(blocks, x)
		for i, b := range blocks {
			for j, code := range b.Codes {
				x[i*quant.ActivationLen+j] = b.Scale * float32(code)
			}
		}
	}
	z := make([]float64, s.vocab)
	for v := range z {
		for i, h := range x {
			z[v] += float64(h) * float64(w[v*s.c+i])
		}
		if s.softcap > 0 {
			z[v] = float64(s.softcap) * math.Tanh(z[v]/float64(s.softcap))
		}
	}
	return z
}

var sampleCases = []headCase{
	{quant.F32, 5, 40, 16, 0, kernels.PrecisionF32}, {quant.Q8_0, 9, 300, 64, 5, kernels.PrecisionF32}, {quant.F32, 3, kernels.VocabChunk + 37, 16, 0, kernels.PrecisionF32},
	{quant.Q5_0, 9, 300, 64, 0, kernels.PrecisionInt8},
}

func testSample(t tester, b kernels.Backend) {
	for i, c := range sampleCases {
		t.Run(c.String(), func(t tester) {
			t.Run("results", func(t tester) {
				k := c.check()
				k.rows = true
				compare(t, b, uint64(i), k, func(l *Lab) { reportSamples(l, c) })
			})
			t.Run("logp", func(t tester) { sampleLogP(t, NewLab(t, b, uint64(i)), c) })
			t.Run("distribution", func(t tester) { sampleDistribution(NewLab(t, b, uint64(i)), c) })
		})
	}
	t.Run("ties", func(t tester) { sampleTies(NewLab(t, b, 1)) })
	t.Run("failures", func(t tester) { sampleFailures(NewLab(t, b, 1)) })
}

// reportSamples draws greedily, so that ids cannot differ by rounding, and reports all results.
func reportSamples(l *Lab, c headCase) {
	s := l.sampler(c)
	rows := make([]kernels.SampleRow, c.rows)
	for m := range rows {
		rows[m] = kernels.SampleRow{InvT: s.invT[m], Greedy: true, TopP: 1, NumTop: []int{0, 1, 7, c.vocab + 3}[m%4]}
	}
	var values []float32
	for _, o := range s.draw(l, rows) {
		values = append(values, float32(o.ID), o.LogP, o.Entropy, float32(len(o.Top)))
		for _, top := range o.Top {
			values = append(values, top.LogP)
		}
	}
	l.Report("logits", s.logits.Columns(0, c.vocab))
	l.reports = append(l.reports, report{name: "id, logp, entropy, top", values: values})
}

// sampleLogP: the log-probs of the draw and of the most probable tokens are those of LogProbs, bit
// for bit, whatever truncation, bias and bans did to the draw.
func sampleLogP(t tester, l *Lab, c headCase) {
	s := l.sampler(c)
	rows := make([]kernels.SampleRow, c.rows)
	for m := range rows {
		rows[m] = kernels.SampleRow{InvT: s.invT[m], Greedy: m%4 == 3, TopK: []int{0, 3, 0}[m%3], TopP: []float32{1, 0.9}[m%2],
			MinP: 0.01, U: l.R.Float64(), NumTop: 5, Bias: []kernels.TokenBias{{ID: int32(m), Value: 2}}, Banned: []int32{7, 3}}
	}
	out := s.draw(l, rows)
	s.pairRows, s.targets = nil, nil
	var got []float32
	for m, o := range out {
		l.require(len(o.Top) == 5, "row %d: %d most probable tokens, want 5", m, len(o.Top))
		for i, top := range append([]kernels.TokenLogP{{ID: o.ID, LogP: o.LogP}}, o.Top...) {
			s.pairRows, s.targets, got = append(s.pairRows, int32(m)), append(s.targets, top.ID), append(got, top.LogP)
			l.require(i < 2 || o.Top[i-2].LogP > top.LogP || o.Top[i-2].LogP == top.LogP && o.Top[i-2].ID < top.ID,
				"row %d: most probable tokens %v are not in order", m, o.Top)
		}
	}
	logp, entropy, lse := l.Output(1, len(got)), l.Output(1, c.rows), l.Output(1, c.rows)
	l.B.LogProbs(s.args(l, part{0, c.rows}, logp, entropy, lse))
	sameValues(t, "LogProbs", report{name: "log-prob of Sample", values: got}, report{values: l.Read(logp)})
	l.Check()
}

// policy is a truncation that sampleDistribution tries.
type policy struct {
	name string
	row  kernels.SampleRow
}

// policies cut half-way between two tokens, so that rounding cannot move the cut.
func policies(z []float64, invT float32) []policy {
	_, p := ref.Distribution(z, kernels.SampleRow{InvT: invT, TopP: 1, TopK: 12})
	slices.SortFunc(p, func(a, b float64) int { return cmp.Compare(b, a) })
	sum := slices.Clone(p)
	for i := 1; i < len(sum); i++ {
		sum[i] += sum[i-1]
	}
	var tail []int32
	for id := 5; id < len(z); id++ {
		tail = append(tail, int32(id))
	}
	return []policy{
		{"whole", kernels.SampleRow{InvT: invT, TopP: 1}},
		{"top-k", kernels.SampleRow{InvT: invT, TopP: 1, TopK: 4}},
		{"top-k of all", kernels.SampleRow{InvT: invT, TopP: 1, TopK: len(z) + 9}},
		{"min-p", kernels.SampleRow{InvT: invT, TopP: 1,
			MinP: cutBetween(len(p), func(i int) float64 { return p[i] / p[0] })}},
		{"top-k, top-p", kernels.SampleRow{InvT: invT, TopK: 12,
			TopP: cutBetween(len(p)-1, func(i int) float64 { return sum[i] })}},
		{"bias, bans", kernels.SampleRow{InvT: invT, TopP: 1, Banned: []int32{0, 9},
			Bias: []kernels.TokenBias{{ID: 1, Value: 3}, {ID: 2, Value: -4}, {ID: 1, Value: 0.5}}}},
		{"all banned but five", kernels.SampleRow{InvT: invT, TopP: 1, Banned: tail}},
	}
}

// cutBetween returns the middle of the widest gap between neighbours of n monotone values.
func cutBetween(n int, at func(i int) float64) float32 {
	best, cut := 0.0, 0.0
	for i := 1; i < n; i++ {
		if gap := math.Abs(at(i) - at(i-1)); gap > best {
			best, cut = gap, (at(i)+at(i-1))/2
		}
	}
	return float32(cut)
}

// ask is a draw whose token is known.
type ask struct {
	policy
	want int32
}

// asks are draws in the middle of the intervals that tokens have in the cumulative distribution, at
// most 20 a policy, and at its beginning.
func asks(z []float64, invT float32) []ask {
	var list []ask
	for _, p := range policies(z, invT) {
		ids, probs := ref.Distribution(z, p.row)
		list = append(list, ask{p, ids[0]}) // U = 0
		sum, count := 0.0, 0
		for i, v := range probs {
			if v > 1e-4 && count < 20 { // wide enough for float32
				p.row.U = sum + v/2
				list = append(list, ask{p, ids[i]})
				count++
			}
			sum += v
		}
	}
	return list
}

// sampleDistribution: draws return the tokens that ref's distribution has at U.
func sampleDistribution(l *Lab, c headCase) {
	s := l.sampler(c)
	list, most := make([][]ask, c.rows), 0
	for m := range list {
		list[m] = asks(s.exactLogits(l, m), s.invT[m])
		most = max(most, len(list[m]))
	}
	for k := range most {
		rows := make([]kernels.SampleRow, c.rows)
		for m := range rows {
			rows[m] = list[m][k%len(list[m])].row
		}
		for m, o := range s.draw(l, rows) {
			a := list[m][k%len(list[m])]
			l.require(o.ID == a.want, "row %d, %s, U %v: drew token %d, want %d", m, a.name, a.row.U, o.ID, a.want)
		}
	}
	l.Check()
}

// sampleTies: of equal logits the lowest id comes first, in greedy draws, in top-k and in the list
// of most probable tokens.
func sampleTies(l *Lab) {
	s := l.sampler(headCase{quant.F32, 2, 40, 16, 0, kernels.PrecisionF32})
	up := []kernels.TokenBias{{ID: 3, Value: 50}, {ID: 5, Value: 50}, {ID: 39, Value: 50}}
	greedy := kernels.SampleRow{InvT: 1, Greedy: true, TopP: 1, Bias: up, NumTop: 40}
	two := kernels.SampleRow{InvT: 1, TopK: 2, TopP: 1, Bias: up, U: 0.999}
	for i, rows := range [][]kernels.SampleRow{{greedy, two}, {greedy, greedy}} {
		if i == 1 {
			rows[1].Banned = []int32{3}
		}
		out := s.draw(l, rows)
		l.require(out[0].ID == 3, "greedy drew %d of equal tokens 3, 5, 39", out[0].ID)
		l.require(out[1].ID == 5, "case %d drew %d, want 5: of tokens 3, 5, 39 top-k 2 keeps 3 and 5, and 3 may be banned", i, out[1].ID)
		at := map[int32]int{}
		for j, top := range out[0].Top {
			at[top.ID] = j
		}
		l.require(at[5] == at[3]+1 && at[39] == at[3]+2, "equal tokens 3, 5, 39 are at %d, %d, %d of the most probable", at[3], at[5], at[39])
	}
	l.Check()
}

// sampleFailures: a row that can draw nothing is an error of Sync, told once.
func sampleFailures(l *Lab) {
	s := l.sampler(headCase{quant.F32, 2, 8, 16, 0, kernels.PrecisionF32})
	all := make([]int32, 8)
	for i := range all {
		all[i] = int32(i)
	}
	ok := kernels.SampleRow{InvT: 1, TopP: 1, U: 0.5}
	banned := ok
	banned.Banned = all
	s.draw(l, []kernels.SampleRow{ok, banned})
	err := l.B.Sync()
	l.require(err != nil, "every token banned: Sync says nothing")
	l.require(l.B.Sync() == nil, "Sync tells the same failure twice")
	x := make([]float32, 2*16)
	x[20] = float32(math.NaN())
	s.hidden = l.Floats(2, 16, x)
	for _, greedy := range []bool{false, true} {
		ok.Greedy = greedy
		s.draw(l, []kernels.SampleRow{ok, ok})
		l.require(l.B.Sync() != nil, "hidden states are not numbers, greedy %t: Sync says nothing", greedy)
	}
	l.Check()
}
