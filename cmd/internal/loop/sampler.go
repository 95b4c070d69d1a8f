package loop

import (
	"context"
	"fmt"
	"math"

	"graft/infer"
	"graft/rewards"
	"graft/rl"
	"graft/weights"
)

// Policy is what a training run's prompts are answered by and how.
type Policy struct {
	Engine      *infer.Engine
	Adapter     *weights.Adapter // nil: the model itself is trained
	MaxTokens   int
	Temperature float64
	TopP        float64
	TopK        int
	MinP        float64
	Seed        uint64
}

// Rollouts joins the data feed, the engine and the rewards of a GRPO run: it is the trainer's
// Prompts, Sampler and Rewarder. It remembers prompts and texts of the batch under way.
type Rollouts struct {
	Feed   *rl.Feed[rl.Prompt]
	Policy Policy
	Judge  *Judge

	byRow map[int]*rl.Prompt
	texts []string // of the last Generate, in its order
	first map[[2]int]int
	step  int
}

// Next hands out prompts in the run's order.
func (r *Rollouts) Next(n int) ([]rl.Prompt, error) {
	list, err := r.Feed.Next(n)
	if err != nil {
		return nil, err
	}
	r.byRow = map[int]*rl.Prompt{}
	for i := range list {
		r.byRow[list[i].Row] = &list[i]
	}
	return list, nil
}

// Generate draws n completions of each prompt; a draw depends on seed, step, prompt, sample and
// position alone.
func (r *Rollouts) Generate(ctx context.Context, prompts []rl.Prompt, n, step int) ([]rl.Rollout, error) {
	p := r.Policy
	requests := make([]infer.Request, len(prompts))
	for i := range prompts {
		requests[i] = infer.Request{Prompt: prompts[i].IDs, Params: infer.Params{N: n, MaxTokens: p.MaxTokens, Temperature: p.Temperature,
			TopP: p.TopP, TopK: p.TopK, MinP: p.MinP, Seed: p.Seed, Draw: [3]uint32{uint32(step), uint32(i), 0}, Adapter: p.Adapter}}
	}
	done, err := p.Engine.Generate(ctx, requests)
	if err != nil {
		return nil, err
	}
	out := make([]rl.Rollout, len(done))
	r.texts, r.first, r.step = make([]string, len(done)), map[[2]int]int{}, step
	for i := range done {
		c, prompt := &done[i], prompts[done[i].Request]
		tokens := append(append(make([]int32, 0, len(prompt.IDs)+len(c.Tokens)), prompt.IDs...), c.Tokens...)
		out[i] = rl.Rollout{Tokens: tokens, PromptLen: len(prompt.IDs), Group: c.Request, Sample: c.Index, Version: c.Version,
			LogP: c.LogP, Truncated: c.Truncated, Row: prompt.Row}
		r.texts[i], r.first[[2]int{c.Request, c.Index}] = c.Text, i
	}
	return out, nil
}

// Score has the last Generate's rollouts judged.
func (r *Rollouts) Score(ctx context.Context, rollouts []rl.Rollout) error {
	samples := make([]rewards.Sample, len(rollouts))
	for i := range rollouts {
		o := &rollouts[i]
		at, ok := r.first[[2]int{o.Group, o.Sample}]
		prompt := r.byRow[o.Row]
		if !ok || prompt == nil {
			return fmt.Errorf("loop: rollout %d of group %d is not of the last batch", o.Sample, o.Group)
		}
		samples[i] = r.Judge.sample(prompt, o.Completion(), r.texts[at], o.Truncated, r.step, o.Group, o.Sample)
	}
	verdict, err := rewards.Run(ctx, r.Judge.Rewards, samples, r.Judge.Deadline)
	if err != nil {
		return err
	}
	for i := range rollouts {
		o := &rollouts[i]
		o.Reward, o.Scored = verdict.Total[i], verdict.Scored[i]
		o.Rewards = make([]float64, len(verdict.Scores))
		for k := range verdict.Scores {
			o.Rewards[k] = verdict.Scores[k][i].Value
			if verdict.Scores[k][i].Skip {
				o.Rewards[k] = math.NaN()
			}
		}
	}
	return nil
}
