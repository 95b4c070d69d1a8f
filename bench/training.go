package main

import (
	"time"

	"graft/infer/paged"
	"graft/model"
	"graft/rl"
	"graft/weights"
)

// loraConfig is the adapter of every training row: rank 16 on all linears, as PEFT's all-linear.
func loraConfig() weights.AdapterConfig {
	return weights.AdapterConfig{R: 16, Alpha: 32, TargetModules: []string{"all-linear"}}
}

// microBatch is how many sequences one forward and backward takes: activations of all layers are
// kept for so many, and gradients add up over the batch, as a trainer within a memory budget does.
// Siblings stay together, so that they share their prompt.
const microBatch = 8

// trainAdapter times one step: log-probs, their gradient, the backward, AdamW. The loss is the mean
// negative log-likelihood of the completions.
func (j *job) trainAdapter(m *model.Model) (*timing, error) {
	ad, err := m.NewAdapter(1, loraConfig(), 1, true)
	if err != nil {
		return nil, err
	}
	batch := j.Row.rollouts(m.Config.Vocab)
	policy, optimizer, err := newPolicy(m, ad, batch, j.Threads)
	if err != nil {
		return nil, err
	}
	scale := -1 / float32(rl.Tokens(batch))
	step := func(batch []rl.Rollout) error {
		policy.ZeroGrads()
		for from := 0; from < len(batch); from += microBatch {
			part := batch[from:min(from+microBatch, len(batch))]
			logp, _, err := policy.Score(part)
			if err != nil {
				return err
			}
			grad := rl.TokenGrad{DLogP: make([]float32, len(logp))}
			for i := range grad.DLogP {
				grad.DLogP[i] = scale
			}
			if err := policy.Accumulate(grad); err != nil {
				return err
			}
		}
		if _, err := optimizer.Step(1e-4); err != nil {
			return err
		}
		policy.Updated()
		return nil
	}
	if err := step(batch[:min(microBatch, len(batch))]); err != nil { // warm: B leaves zero, scratch has grown
		return nil, err
	}
	t := &timing{Tokens: j.Row.tokens()}
	err = j.profiled(func() error {
		begin := time.Now()
		err := step(batch)
		t.Seconds = time.Since(begin).Seconds()
		return err
	})
	return t, err
}

// rollouts are the row's sequences, random tokens in groups that share their prompt.
func (r *row) rollouts(vocab int) []rl.Rollout {
	var out []rl.Rollout
	for i := range r.Rows {
		group := i * r.Groups / r.Rows
		prompt := randomTokens(uint64(1000+group), r.Prompt, vocab)
		out = append(out, rl.Rollout{
			Tokens: append(prompt, randomTokens(uint64(2000+i), r.New, vocab)...), PromptLen: r.Prompt, Group: group, Sample: i,
		})
	}
	return out
}

// newPolicy makes a policy with pages of its own for micro-batches of the batch, and its optimizer.
func newPolicy(m *model.Model, ad *weights.Adapter, batch []rl.Rollout, threads int) (*rl.Policy, *rl.AdamW, error) {
	var size rl.PolicySize
	for from := 0; from < len(batch); from += microBatch {
		size = size.Max(rl.SizeOf(batch[from:min(from+microBatch, len(batch))]))
	}
	size.Keep, size.Threads = model.KeepAll, threads
	pages, err := model.NewPages(m.Arena, &m.Config, size.Pages)
	if err != nil {
		return nil, nil, err
	}
	policy := &rl.Policy{Model: m, Adapter: ad, Pages: pages, Pool: paged.NewPool(size.Pages), InvT: 1}
	if err := policy.Allocate(size); err != nil {
		return nil, nil, err
	}
	optimizer, err := rl.NewAdamW(m.Arena, policy.Trained(), rl.DefaultAdamW())
	return policy, optimizer, err
}
