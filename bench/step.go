package main

import (
	"context"
	"fmt"
	"time"

	"graft/infer"
	"graft/model"
	"graft/rl"
	"graft/rl/grpo"
)

// grpoStep times Trainer.Step with an engine whose pages the policy trains in: groups are sampled,
// rewarded by a number that depends on their tokens, and the adapter moves once. TRL's defaults.
func (j *job) grpoStep(m *model.Model) (*timing, error) {
	r := &j.Row
	ad, err := m.NewAdapter(1, loraConfig(), 1, true)
	if err != nil {
		return nil, err
	}
	opt := grpo.DefaultOptions()
	batch := min(microBatch, r.Rows)
	opt.NumGenerations, opt.PerDeviceTrainBatchSize = r.Rows/r.Groups, batch
	opt.GradientAccumulationSteps, opt.MaxCompletionLength = r.Rows/batch, r.New
	opt.Schedule.LearningRate, opt.Schedule.TotalSteps = 1e-5, 4
	if err := opt.Validate(); err != nil { // which fills in what PolicySize reads
		return nil, err
	}
	size := opt.PolicySize(r.Prompt)
	size.Keep, size.Threads = model.KeepAll, j.Threads
	e, err := newEngine(m, r.Rows, r.Prompt, r.New, j.Threads, ad.MaxCols(), 0)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	policy := &rl.Policy{Model: m, Adapter: ad, Pages: e.Pages(), Pool: e.Pool(), InvT: 1}
	if err := policy.Allocate(size); err != nil {
		return nil, err
	}
	game := &game{engine: e, policy: policy, row: r, batch: batch}
	trainer, err := grpo.New(opt, policy, game, game, game)
	if err != nil {
		return nil, err
	}
	trainer.Exclusive = e.Exclusive
	if _, err := trainer.Step(context.Background()); err != nil { // warm
		return nil, err
	}
	t := &timing{Tokens: r.tokens()}
	err = j.profiled(func() error {
		begin := time.Now()
		stats, err := trainer.Step(context.Background())
		t.Seconds, t.Sampling = time.Since(begin).Seconds(), game.sampling.Seconds()
		if err == nil && stats.Get("mismatch_tokens") != 0 {
			err = fmt.Errorf("%g of %g log-probs of the sampler differ from the trainer's", stats.Get("mismatch_tokens"), stats.Get("mismatch_compared"))
		}
		return err
	})
	return t, err
}

// game is what the trainer asks for: prompts, a sampler, a reward.
type game struct {
	engine *infer.Engine
	policy *rl.Policy
	row    *row
	batch  int
	asked  int

	sampling time.Duration // that the last Generate took
}

// Next hands out random prompts.
func (g *game) Next(n int) ([]rl.Prompt, error) {
	out := make([]rl.Prompt, n)
	for i := range out {
		g.asked++
		out[i] = rl.Prompt{IDs: randomTokens(uint64(g.asked), g.row.Prompt, g.policy.Model.Config.Vocab), Row: g.asked}
	}
	return out, nil
}

// Generate samples n completions of each prompt under the adapter, all of full length.
func (g *game) Generate(ctx context.Context, prompts []rl.Prompt, n, step int) ([]rl.Rollout, error) {
	reqs := make([]infer.Request, len(prompts))
	for i, p := range prompts {
		q := params(n, g.row.New)
		q.Adapter, q.Draw = g.policy.Adapter, [3]uint32{uint32(step), uint32(p.Row), 0}
		reqs[i] = infer.Request{Prompt: p.IDs, Params: q}
	}
	begin := time.Now()
	done, err := g.engine.Generate(ctx, reqs)
	g.sampling = time.Since(begin)
	if err != nil {
		return nil, err
	}
	out := make([]rl.Rollout, len(done))
	for i, c := range done {
		p := prompts[c.Request]
		out[i] = rl.Rollout{
			Tokens: append(append([]int32{}, p.IDs...), c.Tokens...), PromptLen: len(p.IDs), Group: c.Request, Sample: c.Index,
			Version: c.Version, LogP: c.LogP, Truncated: c.Truncated, Row: p.Row,
		}
	}
	if g.row.Second {
		err = g.second(ctx, out)
	}
	return out, err
}

// second is the forward by which stacks whose sampler and trainer differ get their "old" log-probs.
// Here it gives what the sampler gave; its time is what such a stack pays.
func (g *game) second(ctx context.Context, rollouts []rl.Rollout) error {
	return g.engine.Exclusive(ctx, func() error {
		for from := 0; from < len(rollouts); from += g.batch {
			if _, _, err := g.policy.Score(rollouts[from : from+g.batch]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Score rewards small first tokens.
func (g *game) Score(_ context.Context, rollouts []rl.Rollout) error {
	for i := range rollouts {
		r := &rollouts[i]
		r.Reward = -float64(r.Completion()[0]) / float64(g.policy.Model.Config.Vocab)
		r.Rewards, r.Scored = []float64{r.Reward}, true
	}
	return nil
}
