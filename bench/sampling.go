package main

import (
	"context"
	"fmt"
	"time"

	"graft/infer"
	"graft/kernels/rng"
	"graft/model"
)

// sample times the engine as a trainer uses it: temperature 1, log-prob and entropy of every token
// (the peer's tools compute logits and draw nothing). Prefill is the whole prompt and one token;
// decode is timed from each sibling's first token to its last.
func (j *job) sample(m *model.Model) (*timing, error) {
	r := &j.Row
	e, err := newEngine(m, r.Rows, r.Prompt, r.New+1, j.Threads, 0, 0)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if r.Kind == kindPrefill {
		return j.prefill(e)
	}
	req := infer.Request{Prompt: randomTokens(1, r.Prompt, m.Config.Vocab), Params: params(r.Rows, 4)}
	if _, err := e.Generate(context.Background(), []infer.Request{req}); err != nil { // warm
		return nil, err
	}
	req.Params = params(r.Rows, r.New+1)
	t := &timing{}
	err = j.profiled(func() (err error) {
		t.Seconds, t.Tokens, err = decodeTime(e, req)
		return err
	})
	return t, err
}

func (j *job) prefill(e *infer.Engine) (*timing, error) {
	vocab := e.Model().Config.Vocab
	generate := func(seed uint64) error {
		req := infer.Request{Prompt: randomTokens(seed, j.Row.Prompt, vocab), Params: params(1, 1)}
		_, err := e.Generate(context.Background(), []infer.Request{req})
		return err
	}
	if err := generate(1); err != nil { // warm
		return nil, err
	}
	t := &timing{Tokens: j.Row.Prompt}
	err := j.profiled(func() error {
		begin := time.Now()
		err := generate(2)
		t.Seconds = time.Since(begin).Seconds()
		return err
	})
	return t, err
}

// decodeTime runs a request and measures from the step that gave every sibling its first token to
// the last token of all.
func decodeTime(e *infer.Engine, req infer.Request) (seconds float64, tokens int, err error) {
	stream, err := e.Submit(context.Background(), req)
	if err != nil {
		return 0, 0, err
	}
	var begin, end time.Time
	started, got := map[int]bool{}, 0
	for {
		ev, ok := stream.Next(context.Background())
		if !ok {
			break
		}
		if ev.Err != nil {
			return 0, 0, ev.Err
		}
		if !ev.HasToken {
			continue
		}
		end = time.Now()
		if len(started) < req.Params.N {
			if started[ev.Index] = true; len(started) == req.Params.N {
				begin = end
			}
			continue
		}
		got++
	}
	if want := req.Params.N * (req.Params.MaxTokens - 1); got != want {
		return 0, 0, fmt.Errorf("%d tokens after the first of each sequence, want %d: the siblings did not start together", got, want)
	}
	return end.Sub(begin).Seconds(), got, nil
}

// keepPrompts is how many spare pages let an engine keep the pages of finished prompts.
const keepPrompts = 64

// newEngine makes an engine that holds the given sequences and computes a prompt of up to 512 tokens
// in one step. Without spare pages it keeps nothing of a prompt when its sequences end.
func newEngine(m *model.Model, seqs, prompt, completion, threads, rankCols, spare int) (*infer.Engine, error) {
	return infer.New(m, nil, infer.Options{
		Pages: seqs*((prompt+completion)/16+2) + spare, MaxBatchedTokens: max(seqs, 512), MaxSeqs: seqs,
		MaxModelLen: prompt + completion, NoPrefixCache: spare == 0, Threads: threads, RankCols: rankCols,
	})
}

// params sample whole completions: nothing stops them.
func params(n, tokens int) infer.Params {
	return infer.Params{N: n, MaxTokens: tokens, Temperature: 1, IgnoreEOS: true, Seed: 1}
}

// randomTokens is a prompt without meaning.
func randomTokens(seed uint64, n, vocab int) []int32 {
	source := rng.New(seed, "bench")
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(source.Below(uint32(vocab), uint32(i), 0, 0))
	}
	return out
}
