package main

import (
	"context"
	"fmt"
	"path/filepath"

	"graft/infer"
	"graft/model"
)

// lengthTimes is a child's answer to kindContext: seconds of a token, by length, then round.
type lengthTimes struct {
	Seconds [][]float64 `json:"seconds"`
}

// lengths decodes at each of the row's lengths in turns, in one process: pages of the longest prompt
// serve the shorter ones, so the prompt is computed once.
func (c *comparison) lengths(ctx context.Context, r *row) ([]result, error) {
	path := filepath.Join(c.opt.models, r.Model)
	e, err := extentOf(path)
	if err != nil {
		return nil, err
	}
	w := startWatch()
	var got lengthTimes
	state, err := job{Row: *r, Path: path, Threads: c.opt.threads, Rounds: c.opt.rounds}.do(ctx, &got)
	if err != nil {
		return nil, err
	}
	if len(got.Seconds) != len(r.Lengths) {
		return nil, fmt.Errorf("%d answers for %d lengths", len(got.Seconds), len(r.Lengths))
	}
	others := w.others(cpuTime(state))
	out := make([]result, len(r.Lengths))
	for i, length := range r.Lengths {
		res := &out[i]
		*res = result{row: *r, Unit: tokensPerSecond, Ours: side{Who: "graft", Peak: peakBytes(state)}, Others: others}
		res.Name = lengthName(r, length)
		if res.Lengths = []int{length}; i == 0 {
			res.goals = nil
		} else {
			res.base = lengthName(r, r.Lengths[0])
		}
		for _, s := range got.Seconds[i] {
			res.Ours.Values = append(res.Ours.Values, 1/s)
		}
		res.finish(1 / lengthBound(e, c.roof, length-r.New/2))
		fmt.Fprintf(c.talk, "  %d tokens: %.4g tok/s\n", length, res.Ours.Median)
	}
	return out, nil
}

func lengthName(r *row, length int) string { return fmt.Sprintf("%s: %d", r.Name, length) }

// decodeAtLengths times the last New tokens of sequences of the row's lengths.
func (j *job) decodeAtLengths(m *model.Model) (*lengthTimes, error) {
	r := &j.Row
	longest := r.Lengths[len(r.Lengths)-1]
	e, err := newEngine(m, 1, longest-r.New, r.New, j.Threads, 0, keepPrompts)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	prompt := randomTokens(1, longest-r.New, m.Config.Vocab)
	req := infer.Request{Prompt: prompt, Params: params(1, 1)}
	if _, err := e.Generate(context.Background(), []infer.Request{req}); err != nil { // warm, and all pages cached
		return nil, err
	}
	out := &lengthTimes{Seconds: make([][]float64, len(r.Lengths))}
	err = j.profiled(func() error {
		for range j.Rounds {
			for i, length := range r.Lengths {
				req := infer.Request{Prompt: prompt[:length-r.New], Params: params(1, r.New)}
				seconds, tokens, err := decodeTime(e, req)
				if err != nil {
					return err
				}
				out.Seconds[i] = append(out.Seconds[i], seconds/float64(tokens))
			}
		}
		return nil
	})
	return out, err
}
