package infer

import (
	"context"
	"fmt"

	"graft/kernels"
)

// Completion is one finished sibling.
type Completion struct {
	Request      int // which of Generate's requests
	Index        int // which sibling
	Tokens       []int32
	LogP         []float32
	Entropy      []float32
	Top          [][]kernels.TokenLogP // with TopLogProbs
	Text         string
	Finish       FinishReason
	Stopped      string // the stop string that ended it, if one did
	Truncated    bool   // ended by length, not by a stop
	Version      uint64 // of the adapter (or the base) that sampled it
	PromptTokens int
	CachedTokens int
	Prompt       *PromptScores // with PromptLogProbs
	Err          error
}

// Generate samples every request to its end and returns the completions in order of requests, then
// siblings. On an error, or when ctx ends, what is still under way is cancelled: its pages are free
// for whoever is next to have the device.
func (e *Engine) Generate(ctx context.Context, reqs []Request) (out []Completion, err error) {
	streams := make([]*Stream, 0, len(reqs))
	defer func() {
		if err != nil {
			for _, s := range streams {
				s.Close()
			}
		}
	}()
	for i, r := range reqs {
		s, err := e.submit(ctx, r, false)
		if err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
		streams = append(streams, s)
	}
	for i, s := range streams {
		got, err := s.Collect(ctx)
		if err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
		for j := range got {
			got[j].Request = i
		}
		out = append(out, got...)
	}
	return out, nil
}

// Collect reads a stream to its end. The error is the context's, or that of the first sibling that
// failed.
func (s *Stream) Collect(ctx context.Context) ([]Completion, error) {
	q := s.req
	out := make([]Completion, len(q.seqs))
	var prompt *PromptScores
	for {
		ev, ok := s.Next(ctx)
		if !ok {
			break
		}
		if ev.Prompt != nil {
			prompt = ev.Prompt
		}
		out[ev.Index].add(&ev)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i := range out {
		c := &out[i]
		c.Index, c.Prompt = i, prompt
		if c.Err != nil {
			return out, c.Err
		}
	}
	return out, nil
}

func (c *Completion) add(ev *Event) {
	if ev.HasToken {
		c.Tokens = append(c.Tokens, ev.Token)
		c.LogP, c.Entropy = append(c.LogP, ev.LogP), append(c.Entropy, ev.Entropy)
		if ev.Top != nil {
			c.Top = append(c.Top, ev.Top)
		}
	}
	c.Text += ev.Text
	c.Version = ev.Version
	if ev.Finish != "" {
		c.Finish, c.Stopped, c.Err = ev.Finish, ev.Stopped, ev.Err
		c.Truncated = ev.Finish == FinishLength
		c.PromptTokens, c.CachedTokens = ev.Usage.PromptTokens, ev.Usage.CachedTokens
	}
}
