package infer

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/kernels/cpu"
	"graft/weights"
)

// TestRefusedRequests: each is refused before anything is allocated, and names its field.
func TestRefusedRequests(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	e := l.engine(t, nil, Options{Pages: 6, MaxModelLen: 120})
	ok := Params{MaxTokens: 4, Temperature: 1}
	many := map[int32]float32{}
	for i := range int32(MaxLogitBias + 1) {
		many[i] = 1
	}
	wide := l.adapter(t, 7, 64)
	for _, c := range []struct {
		param  string
		prompt []int32
		change func(p *Params)
	}{
		{"prompt", nil, func(*Params) {}},
		{"prompt", []int32{1, 300}, func(*Params) {}},
		{"prompt", []int32{-1}, func(*Params) {}},
		{"n", []int32{1}, func(p *Params) { p.N = -1 }},
		{"n", []int32{1}, func(p *Params) { p.N = math.MaxInt }},
		{"max_tokens", []int32{1}, func(p *Params) { p.MaxTokens = 0 }},
		{"max_tokens", []int32{1}, func(p *Params) { p.MaxTokens = -1 }},
		{"max_tokens", []int32{1}, func(p *Params) { p.MaxTokens = 120 }},
		{"max_tokens", []int32{1}, func(p *Params) { p.MaxTokens = math.MaxInt }},
		{"max_tokens", []int32{1}, func(p *Params) { p.MaxTokens = 97 }}, // 97 positions need 7 pages
		{"max_tokens", prompt(1, 97), func(p *Params) { p.MaxTokens = 1 }},
		{"min_tokens", []int32{1}, func(p *Params) { p.MinTokens = 5 }},
		{"temperature", []int32{1}, func(p *Params) { p.Temperature = math.NaN() }},
		{"temperature", []int32{1}, func(p *Params) { p.Temperature = -1 }},
		{"temperature", []int32{1}, func(p *Params) { p.Temperature = 1e-9 }},
		{"temperature", []int32{1}, func(p *Params) { p.Temperature = math.Inf(1) }},
		{"top_p", []int32{1}, func(p *Params) { p.TopP = math.NaN() }},
		{"top_p", []int32{1}, func(p *Params) { p.TopP = 1.1 }},
		{"top_p", []int32{1}, func(p *Params) { p.TopP = 1e-300 }},
		{"top_k", []int32{1}, func(p *Params) { p.TopK = -1 }},
		{"min_p", []int32{1}, func(p *Params) { p.MinP = math.NaN() }},
		{"presence_penalty", []int32{1}, func(p *Params) { p.PresencePenalty = 3 }},
		{"frequency_penalty", []int32{1}, func(p *Params) { p.FrequencyPenalty = math.NaN() }},
		{"repetition_penalty", []int32{1}, func(p *Params) { p.RepetitionPenalty = -1 }},
		{"repetition_penalty", []int32{1}, func(p *Params) { p.RepetitionPenalty = math.NaN() }},
		{"top_logprobs", []int32{1}, func(p *Params) { p.TopLogProbs = MaxTopLogProbs + 1 }},
		{"logit_bias", []int32{1}, func(p *Params) { p.LogitBias = map[int32]float32{300: 1} }},
		{"logit_bias", []int32{1}, func(p *Params) { p.LogitBias = map[int32]float32{3: float32(math.NaN())} }},
		{"logit_bias", []int32{1}, func(p *Params) { p.LogitBias = many }},
		{"stop", []int32{1}, func(p *Params) { p.Stop = []string{"x"} }}, // no tokenizer
		{"stop", []int32{1}, func(p *Params) { p.Stop = []string{""} }},
		{"stop", []int32{1}, func(p *Params) { p.Stop = make([]string, MaxStops+1) }},
		{"stop_token_ids", []int32{1}, func(p *Params) { p.StopIDs = []int32{300} }},
		{"model", []int32{1}, func(p *Params) { p.Adapter = wide }},
	} {
		p := ok
		c.change(&p)
		_, err := e.Submit(context.Background(), Request{Prompt: c.prompt, Params: p})
		var refused *RequestError
		require.ErrorAs(t, err, &refused, "%s %v %+v", c.param, c.prompt, p)
		assert.Equal(t, c.param, refused.Param, err.Error())
	}
	p := ok
	p.MaxTokens = 96 // 96 positions: the last token needs none
	got, err := e.Generate(context.Background(), []Request{{Prompt: []int32{1}, Params: p}})
	require.NoError(t, err)
	require.Len(t, got[0].Tokens, 96)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = e.Submit(ctx, Request{Prompt: []int32{1}, Params: ok})
	require.ErrorIs(t, err, context.Canceled)
	_, err = e.Generate(context.Background(), []Request{{Prompt: []int32{1}, Params: ok}, {}})
	require.ErrorContains(t, err, "request 1")
}

func TestRefusedOptions(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	be := cpu.New(cpu.Options{Threads: 2})
	t.Cleanup(func() { be.Close() })
	l.m.Arena = weights.NewArena(be, 0)
	for _, o := range []Options{
		{MaxBatchedTokens: -1}, {MaxSeqs: -1}, {MaxSeqs: 9, MaxBatchedTokens: 8}, {MaxModelLen: 1}, {MaxModelLen: 129},
		{Pages: -1}, {MemoryBytes: 10}, {MaxWaiting: -1}, {RankCols: -1}, {Threads: -1}, {Threads: 7},
	} {
		_, err := New(l.m, nil, l.options(o))
		require.Error(t, err, "%+v", o)
	}
	require.Zero(t, l.m.Arena.Used())
	need := PlanBytes(&l.m.Config, l.options(Options{Threads: 2}), 0)
	for _, limit := range []int64{need - 1, need / 2, 1} {
		l.m.Arena = weights.NewArena(l.m.Backend(), limit)
		_, err := New(l.m, nil, l.options(Options{}))
		require.ErrorContains(t, err, "planned")
		require.Zero(t, l.m.Arena.Used(), "what was taken is given back")
	}
	l.m.Arena = weights.NewArena(l.m.Backend(), need)
	e, err := New(l.m, nil, l.options(Options{}))
	require.NoError(t, err)
	require.NoError(t, e.Close())
}

// TestPenaltiesByHand: bias first, then repetition on the biased logit, then frequency and presence.
func TestPenaltiesByHand(t *testing.T) {
	q := &sequence{req: &request{params: Params{
		LogitBias: map[int32]float32{1: 2, 9: -1}, RepetitionPenalty: 2, PresencePenalty: 0.5, FrequencyPenalty: 0.25}}}
	q.Tokens, q.PromptLen = []int32{1, 2, 3, 3, 4}, 2 // generated: 3 3 4
	logits := map[int32]float32{1: 3, 2: -1, 3: 4, 4: -2, 9: 7}
	got := map[int32]float32{}
	for _, b := range q.penalties(func(ids []int32) []float32 {
		var out []float32
		for _, id := range ids {
			out = append(out, logits[id])
		}
		return out
	}) {
		got[b.ID] = logits[b.ID] + b.Value
	}
	assert.Equal(t, map[int32]float32{
		1: (3 + 2) / 2.0,
		2: -1 * 2,
		3: 4/2.0 - 2*0.25 - 0.5,
		4: -2*2 - 0.25 - 0.5,
		9: 7 - 1,
	}, got)
}

// TestRepetitionPenaltyIsDrawn: with a strong one, greedy says nothing twice; log-probs stay the
// model's.
func TestRepetitionPenaltyIsDrawn(t *testing.T) {
	l := newLab(t, "llama-tied", 2)
	e := l.engine(t, nil, Options{})
	ids := prompt(1, 10)
	got, err := e.Generate(context.Background(), []Request{
		{Prompt: ids, Params: Params{MaxTokens: 60, RepetitionPenalty: 1000}},
		{Prompt: ids, Params: Params{MaxTokens: 60}},
	})
	require.NoError(t, err)
	distinct := func(tokens []int32) int {
		seen := map[int32]bool{}
		for _, id := range tokens {
			seen[id] = true
		}
		return len(seen)
	}
	// A penalty this strong leaves what was said near 0, below what was not said as long as that
	// has a positive logit.
	assert.Greater(t, distinct(got[0].Tokens), distinct(got[1].Tokens))
	assert.Equal(t, 60, distinct(got[0].Tokens))
	next, _, _ := l.naive(t, nil, append(append([]int32{}, ids...), got[0].Tokens...), 1)
	assert.Equal(t, bits(next[len(ids)-1:]), bits(got[0].LogP))
}

// TestScoreOfManyChunks equals one forward, and the top lists hold the most probable tokens.
func TestScoreOfManyChunks(t *testing.T) {
	l := newLab(t, "gemma3", 2)
	e := l.engine(t, nil, Options{MaxBatchedTokens: 13, MaxSeqs: 2})
	ids := prompt(4, 100)
	next, entropy, _ := l.naive(t, l.b, ids, float32(1/0.7))
	logp, ent, err := e.Score(context.Background(), ids, l.b, 0.7)
	require.NoError(t, err)
	require.Equal(t, bits(next), bits(logp[1:]))
	require.Equal(t, bits(entropy), bits(ent), "the last one follows the last token")
	got, err := e.Generate(context.Background(), []Request{{Prompt: ids, Params: Params{N: 2, PromptLogProbs: true, TopLogProbs: 2, Adapter: l.b}}})
	require.NoError(t, err)
	require.Len(t, got, 2)
	assert.Equal(t, FinishLength, got[1].Finish)
	_, _, top := l.naive(t, l.b, ids[:60], 1)
	assert.Equal(t, top[:2], got[0].Prompt.Top[60])
	_, _, err = e.Score(context.Background(), nil, nil, 1)
	require.Error(t, err)
	one, after, err := e.Score(context.Background(), ids[:1], nil, 1)
	require.NoError(t, err)
	require.Equal(t, []float32{0}, one)
	_, entropy, _ = l.naive(t, nil, ids[:1], 1)
	require.Equal(t, bits(entropy), bits(after))
}
