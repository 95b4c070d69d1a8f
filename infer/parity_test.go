package infer

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/weights"
)

var families = []string{"llama-tied", "gemma3", "qwen3"}

// TestGreedyMatchesNaive recomputes the whole sequence for every token.
func TestGreedyMatchesNaive(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, name, 2)
			e := l.engine(t, nil, Options{MaxSeqs: 4, MaxBatchedTokens: 7})
			for i, ad := range []*weights.Adapter{nil, l.a, l.b} {
				ids := prompt(uint64(i), 11+10*i)
				got, err := e.Generate(context.Background(), []Request{{Prompt: ids, Params: Params{MaxTokens: 12, Adapter: ad}}})
				require.NoError(t, err)
				var want []int32
				for range 12 {
					_, _, top := l.naive(t, ad, append(append([]int32{}, ids...), want...), 1)
					want = append(want, top[0].ID)
				}
				assert.Equal(t, want, got[0].Tokens)
				assert.Equal(t, FinishLength, got[0].Finish)
				assert.True(t, got[0].Truncated)
			}
		})
	}
}

// mixed is a batch with everything in it: prompts of all lengths around a page, shared beginnings,
// siblings, three adapters, every way to draw.
func mixed(l *lab) []Request {
	var out []Request
	for i, n := range []int{1, 2, 15, 16, 17, 31, 32, 33, 40, 50} {
		p := Params{MaxTokens: 5 + 3*i, N: 1 + i%4, Temperature: []float64{1, 0.7, 0, 1.3}[i%4], Seed: uint64(i / 2), Draw: [3]uint32{uint32(i), 7, 3}}
		p.Adapter = []*weights.Adapter{nil, l.a, l.b}[i%3]
		switch i % 5 {
		case 1:
			p.TopP = 0.8
		case 2:
			p.TopK, p.MinP = 40, 0.01
		case 3:
			p.PresencePenalty, p.FrequencyPenalty, p.RepetitionPenalty = 0.5, 0.3, 1.2
			p.LogitBias = map[int32]float32{5: 3, 9: -100}
		}
		if i == 4 || i == 7 {
			p.PromptLogProbs, p.TopLogProbs = true, 3
		}
		out = append(out, Request{Prompt: prompt(uint64(i%2), n), Params: p})
	}
	return out
}

// same compares two runs bit for bit.
func same(t *testing.T, want, got []Completion) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for i := range want {
		w, g := &want[i], &got[i]
		require.Equal(t, w.Tokens, g.Tokens, "completion %d", i)
		require.Equal(t, bits(w.LogP), bits(g.LogP), "completion %d", i)
		require.Equal(t, bits(w.Entropy), bits(g.Entropy), "completion %d", i)
		require.Equal(t, w.Finish, g.Finish)
		require.Equal(t, w.Top, g.Top)
		require.Equal(t, w.Prompt, g.Prompt)
	}
}

// TestLogProbsAreTheTrainers: what the sampler reports equals a training forward over the finished
// sequence, bit for bit.
func TestLogProbsAreTheTrainers(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, name, 2)
			e := l.engine(t, nil, Options{MaxSeqs: 5, MaxBatchedTokens: 24, Pages: 7})
			reqs := mixed(l)
			got, err := e.Generate(context.Background(), reqs)
			require.NoError(t, err)
			tokens := 0
			for i := range got {
				c := &got[i]
				r := &reqs[c.Request]
				p := r.Params
				next, entropy, _ := l.naive(t, p.Adapter, append(append([]int32{}, r.Prompt...), c.Tokens...), p.invT())
				first := len(r.Prompt) - 1
				require.Equal(t, bits(next[first:]), bits(c.LogP), "completion %d", i)
				require.Equal(t, bits(entropy[first:len(entropy)-1]), bits(c.Entropy), "completion %d", i)
				if p.PromptLogProbs {
					require.Equal(t, bits(next[:first]), bits(c.Prompt.LogP[1:]))
					require.Equal(t, bits(entropy[:first]), bits(c.Prompt.Entropy[:first]))
					require.Len(t, c.Prompt.Top[1], 3)
				}
				tokens += len(c.Tokens)
			}
			assert.Positive(t, e.Stats().Preemptions, "the pool is meant to be too small")
			t.Log(tokens, "tokens, 0 mismatches;", e.Stats().Preemptions, "preemptions")
		})
	}
}

// TestSampleIgnoresBatchMates: pages, chunks, threads, cache, order and company change nothing.
func TestSampleIgnoresBatchMates(t *testing.T) {
	base := newLab(t, "qwen3", 1)
	run := func(t *testing.T, l *lab, o Options, warm bool) ([]Completion, Stats) {
		e := l.engine(t, nil, o)
		if warm {
			_, err := e.Generate(context.Background(), mixed(l))
			require.NoError(t, err)
		}
		got, err := e.Generate(context.Background(), mixed(l))
		require.NoError(t, err)
		return got, e.Stats()
	}
	want, _ := run(t, base, Options{}, false)
	for i, c := range []struct {
		threads int
		opt     Options
		warm    bool
	}{
		{1, Options{NoPrefixCache: true}, false},
		{2, Options{}, true},
		{3, Options{Pages: 6, MaxSeqs: 3, MaxBatchedTokens: 3}, false},
		{2, Options{Pages: 8, MaxSeqs: 16, MaxBatchedTokens: 17, NoPrefixCache: true}, false},
		{1, Options{Pages: 30, MaxSeqs: 1, MaxBatchedTokens: 1}, true},
		{2, Options{Pages: 20, MaxSeqs: 20, MaxBatchedTokens: 20}, true},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			got, stats := run(t, newLab(t, "qwen3", c.threads), c.opt, c.warm)
			same(t, want, got)
			if c.warm {
				assert.Positive(t, stats.CacheHits)
			}
			if c.opt.NoPrefixCache {
				assert.Zero(t, stats.CacheHits)
			}
		})
	}
	t.Run("alone and backwards", func(t *testing.T) {
		e := base.engine(t, nil, Options{MaxBatchedTokens: 40})
		reqs := mixed(base)
		got := make([][]Completion, len(reqs))
		for i := len(reqs) - 1; i >= 0; i-- {
			var err error
			got[i], err = e.Generate(context.Background(), reqs[i:i+1])
			require.NoError(t, err)
		}
		var flat []Completion
		for _, g := range got {
			flat = append(flat, g...)
		}
		same(t, want, flat)
	})
}

// TestMismatchIsSeen: the comparison above can fail.
func TestMismatchIsSeen(t *testing.T) {
	l := newLab(t, "llama-tied", 2)
	e := l.engine(t, nil, Options{})
	ids := prompt(1, 20)
	got, err := e.Generate(context.Background(), []Request{{Prompt: ids, Params: Params{MaxTokens: 20, Temperature: 1, Adapter: l.a}}})
	require.NoError(t, err)
	whole := append(append([]int32{}, ids...), got[0].Tokens...)
	score := func() []float32 {
		logp, _, err := e.Score(context.Background(), whole, l.a, 1)
		require.NoError(t, err)
		return logp[len(ids):]
	}
	require.Equal(t, bits(got[0].LogP), bits(score()))
	require.NoError(t, e.Exclusive(context.Background(), func() error {
		require.NoError(t, e.PrepareUpdate(l.a))
		l.shake(l.a, 99)
		l.a.Version++
		return nil
	}))
	require.NotEqual(t, bits(got[0].LogP), bits(score()))
}

// TestSiblingsShareThePrompt: the prompt's rows are computed once and its full pages held once.
func TestSiblingsShareThePrompt(t *testing.T) {
	l := newLab(t, "llama-tied", 2)
	for _, n := range []int{5, 16, 40} {
		e := l.engine(t, nil, Options{NoPrefixCache: true})
		got, err := e.Generate(context.Background(), []Request{{Prompt: prompt(1, n), Params: Params{N: 8, MaxTokens: 6, Temperature: 1}}})
		require.NoError(t, err)
		s := e.Stats()
		assert.EqualValues(t, n, s.PromptTokens)
		assert.EqualValues(t, 7, s.Forked)
		differ := false
		for i := range got {
			assert.Equal(t, i, got[i].Index)
			differ = differ || fmt.Sprint(got[i].Tokens) != fmt.Sprint(got[0].Tokens)
		}
		assert.True(t, differ, "siblings draw on their own")
	}
}

// TestOneSequencePool: a pool that fits one sequence only still serves everyone.
func TestOneSequencePool(t *testing.T) {
	l := newLab(t, "llama-tied", 2)
	e := l.engine(t, nil, Options{Pages: 4, MaxSeqs: 8, MaxBatchedTokens: 16})
	req := Request{Prompt: prompt(3, 33), Params: Params{N: 3, MaxTokens: 32, Temperature: 1}}
	got, err := e.Generate(context.Background(), []Request{req, req, req})
	require.NoError(t, err)
	for i := range got {
		require.Len(t, got[i].Tokens, 32)
		require.Equal(t, got[i%3].Tokens, got[i].Tokens)
	}
	req.Params.MaxTokens = 33
	_, err = e.Submit(context.Background(), req)
	var refused *RequestError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "max_tokens", refused.Param)
}
