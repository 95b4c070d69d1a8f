package loop

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/cmd/internal/launch"
	"graft/infer"
	"graft/model/tokenizer"
	"graft/rewards"
	"graft/rl"
)

func TestCompareByHand(t *testing.T) {
	same := Result{Each: []float64{0, 1, 0, 1}}
	d := Compare(same, same)
	assert.Equal(t, Difference{Prompts: 4}, d)
	d = Compare(Result{Each: []float64{0, 0, math.NaN(), 0}}, Result{Each: []float64{1, 1, 1, 1}})
	assert.Equal(t, Difference{Mean: 1, Low: 1, High: 1, Prompts: 3}, d, "a prompt that one side was not scored on does not count")

	// 100 prompts, 30 get better and 10 worse: the mean is 0.2, the normal interval ±1.96·√(0.36/100).
	before, after := Result{Each: make([]float64, 100)}, Result{Each: make([]float64, 100)}
	for i := range 100 {
		switch {
		case i < 30:
			after.Each[i] = 1
		case i < 40:
			before.Each[i] = 1
		}
	}
	d = Compare(before, after)
	assert.InDelta(t, 0.2, d.Mean, 1e-12)
	assert.InDelta(t, 0.2-0.1176, d.Low, 0.02)
	assert.InDelta(t, 0.2+0.1176, d.High, 0.02)
	assert.Equal(t, d, Compare(before, after), "the draws are always the same")
}

func TestVerdictsAndIntervals(t *testing.T) {
	for want, d := range map[string]Difference{
		"better":         {Mean: 0.2, Low: 0.1, High: 0.3, Prompts: 6},
		"worse":          {Mean: -0.2, Low: -0.3, High: -0.1, Prompts: 6},
		"not told apart": {Mean: 0.2, Low: 0, High: 0.3, Prompts: 600},
	} {
		assert.Equal(t, want, d.Verdict())
	}
	assert.Equal(t, "not told apart", Difference{Mean: 1, Low: 1, High: 1, Prompts: 5}.Verdict(), "five coins fall alike once in sixteen times")

	// 400 prompts, a quarter right: ±1.96·√(0.25·0.75/400).
	r := Result{Each: make([]float64, 400)}
	for i := range 100 {
		r.Each[i] = 1
	}
	r.Each = append(r.Each, math.NaN())
	low, high := r.Interval()
	assert.InDelta(t, 0.25-0.0424, low, 0.006)
	assert.InDelta(t, 0.25+0.0424, high, 0.006)
	low, high = (&Result{Each: []float64{math.NaN()}}).Interval()
	assert.Zero(t, low+high)
}

func TestPassAtByHand(t *testing.T) {
	r := Result{Each: make([]float64, 2)}
	for i := range 4 { // prompt 0: 1 of 4 right; prompt 1: none
		r.Answers = append(r.Answers, Answer{Prompt: 0, Scored: true, Reward: map[bool]float64{true: 1, false: 0}[i == 2]}, Answer{Prompt: 1, Scored: true})
	}
	for k, want := range map[int]float64{1: 0.25 / 2, 2: 0.5 / 2, 4: 1.0 / 2} { // 1 − C(3,k)/C(4,k)
		got, err := r.PassAt(k)
		require.NoError(t, err)
		assert.InDelta(t, want, got, 1e-12, "k %d", k)
	}
	_, err := r.PassAt(5)
	assert.ErrorContains(t, err, "at least 5 answers")
}

func TestAverages(t *testing.T) {
	skip := rewards.Score{Skip: true}
	r := Result{Answers: []Answer{
		{Prompt: 0, Reward: 1, Scored: true, Scores: []rewards.Score{{Value: 1}, skip}},
		{Prompt: 0, Reward: 0, Scored: true, Scores: []rewards.Score{{Value: 0}, skip}},
		{Prompt: 1, Reward: 2, Scored: true, Scores: []rewards.Score{{Value: 0}, {Value: 2}}},
		{Prompt: 2, Scores: []rewards.Score{skip, skip}},
	}}
	r.average(3, 2)
	assert.Equal(t, 2, r.Scored)
	assert.Equal(t, []float64{0.5, 2}, r.Each[:2])
	assert.True(t, math.IsNaN(r.Each[2]))
	assert.InDelta(t, 1.25, r.Mean, 1e-12)
	assert.InDelta(t, 2.0/3, r.Share, 1e-12)
	assert.Equal(t, []float64{1.0 / 3, 2}, r.By)
}

// bench is the embedded model on an engine.
func bench(t *testing.T) (*infer.Engine, *Judge, []rl.Prompt) {
	t.Helper()
	be := launch.NewBackend(1)
	source, err := launch.Open(launch.Request{Model: launch.Tiny})
	require.NoError(t, err)
	loaded, err := source.Load(be, 0, false)
	require.NoError(t, err)
	e, err := infer.New(loaded.Model, source.Files.Tokenizer, infer.Options{MaxModelLen: 64, Pages: 64, Threads: 1})
	require.NoError(t, err)
	exact, err := rewards.ParseAll([]string{"exact", "0.5*length:at_most=2"})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, rewards.Close(exact))
		require.NoError(t, e.Close())
		loaded.Close()
		require.NoError(t, be.Close())
		require.NoError(t, source.Files.Close())
	})
	render, err := rl.NewRenderer(source.Files.Tokenizer, rl.RenderOptions{})
	require.NoError(t, err)
	var rows []map[string]any
	for _, p := range [][2]string{{"11+12=", "23"}, {"20+30=", "50"}, {"15-5=", "10"}, {"90+9=", "99"}} {
		rows = append(rows, map[string]any{"question": p[0], "answer": p[1]})
	}
	prompts, err := render.Prompts(rl.NewDataset("rows", rows))
	require.NoError(t, err)
	return e, &Judge{Tokenizer: source.Files.Tokenizer, Rewards: exact}, prompts.Items
}

func TestMeasureIsReproducibleAndPaired(t *testing.T) {
	e, judge, prompts := bench(t)
	s := Sampling{N: 3, MaxTokens: 6, Temperature: 1, Seed: 5}
	a, err := Measure(context.Background(), e, judge, prompts, s, nil)
	require.NoError(t, err)
	require.Len(t, a.Answers, 12)
	b, err := Measure(context.Background(), e, judge, prompts, s, nil)
	require.NoError(t, err)
	assert.Equal(t, a.Each, b.Each)
	part, err := Measure(context.Background(), e, judge, prompts[:2], s, nil)
	require.NoError(t, err)
	assert.Equal(t, a.Each[:2], part.Each, "a prompt's answers do not depend on the others")
	s.Seed = 6
	c, err := Measure(context.Background(), e, judge, prompts, s, nil)
	require.NoError(t, err)
	differs := false
	for i := range c.Answers {
		differs = differs || c.Answers[i].Completion.Text != a.Answers[i].Completion.Text
	}
	assert.True(t, differs, "another seed draws other answers")
}

func TestRolloutsAreWhatWasSampled(t *testing.T) {
	e, judge, prompts := bench(t)
	feed, err := rl.NewFeed(prompts, 1, true)
	require.NoError(t, err)
	r := &Rollouts{Feed: feed, Judge: judge, Policy: Policy{Engine: e, MaxTokens: 6, Temperature: 1, TopP: 1, Seed: 3}}
	batch, err := r.Next(2)
	require.NoError(t, err)
	out, err := r.Generate(context.Background(), batch, 4, 9)
	require.NoError(t, err)
	require.Len(t, out, 8)
	require.NoError(t, r.Score(context.Background(), out))
	for i, o := range out {
		p := batch[i/4]
		assert.Equal(t, p.IDs, o.Tokens[:o.PromptLen])
		assert.Equal(t, p.Row, o.Row)
		assert.Len(t, o.LogP, o.Len())
		assert.Equal(t, i/4, o.Group)
		assert.Equal(t, i%4, o.Sample)
		text := judge.Tokenizer.Decode(o.Completion(), true)
		right := 0.0
		if text == p.Columns["answer"] {
			right = 1
		}
		assert.Equal(t, right, o.Rewards[0], "%q for %v", text, p.Columns)
		assert.InDelta(t, o.Rewards[0]+0.5*o.Rewards[1], o.Reward, 1e-12)
	}
	again, err := r.Generate(context.Background(), batch, 4, 9)
	require.NoError(t, err)
	assert.Equal(t, out[3].Tokens, again[3].Tokens)
	twins, err := r.Generate(context.Background(), []rl.Prompt{batch[0], batch[0]}, 8, 9)
	require.NoError(t, err)
	assert.NotEqual(t, texts(judge, twins[:8]), texts(judge, twins[8:]), "a prompt's place decides its draws")
	r.Policy.Seed = 4
	other, err := r.Generate(context.Background(), batch, 4, 9)
	require.NoError(t, err)
	assert.NotEqual(t, texts(judge, out), texts(judge, other), "so does the seed")
	r.Policy.Seed = 3
	later, err := r.Generate(context.Background(), batch, 4, 10)
	require.NoError(t, err)
	assert.NotEqual(t, texts(judge, out), texts(judge, later), "and the step")
	out[0].Group = 77
	assert.Error(t, r.Score(context.Background(), out), "a rollout of another batch")
}

func texts(j *Judge, rollouts []rl.Rollout) (out []string) {
	for i := range rollouts {
		out = append(out, j.Tokenizer.Decode(rollouts[i].Completion(), true))
	}
	return out
}

func TestNLLAndPreferredByTheEnginesLogProbs(t *testing.T) {
	e, judge, prompts := bench(t)
	m := e.Model()
	var examples []rl.Example
	var pairs []rl.Preference
	var sum, count float64
	want := 0
	for _, p := range prompts {
		score := func(answer string) (rl.Example, float64) {
			ids, err := judge.Tokenizer.Encode(answer+"<|end|>", tokenizer.EncodeOptions{})
			require.NoError(t, err)
			x := rl.Example{Tokens: append(slices.Clone(p.IDs), ids...), PromptLen: len(p.IDs), Row: p.Row}
			logp, _, err := e.Score(context.Background(), x.Tokens, nil, 1)
			require.NoError(t, err)
			total := 0.0
			for _, v := range logp[x.PromptLen:] {
				total += float64(v)
			}
			return x, total
		}
		chosen, a := score(p.Columns["answer"].(string))
		rejected, b := score("7")
		examples, pairs = append(examples, chosen), append(pairs, rl.Preference{Chosen: chosen, Rejected: rejected})
		sum, count = sum-a, count+float64(len(chosen.Tokens)-chosen.PromptLen)
		if a > b {
			want++
		}
	}
	require.NoError(t, e.Exclusive(context.Background(), func() error {
		p := &rl.Policy{Model: m, Pages: e.Pages(), Pool: e.Pool(), InvT: 1}
		if err := p.Allocate(rl.PolicySize{Rows: 200, Scored: 200, Pairs: 200, Pages: 40, Threads: 1}); err != nil {
			return err
		}
		for _, n := range []int{1, 3, 4} {
			nll, err := NLL(context.Background(), p, examples, n)
			require.NoError(t, err)
			assert.InDelta(t, sum/count, nll, 1e-9, "batches of %d", n)
			share, err := Preferred(context.Background(), p, pairs, n)
			require.NoError(t, err)
			assert.InDelta(t, float64(want)/float64(len(pairs)), share, 1e-12)
		}
		return nil
	}))
}
