package dpo

import (
	"context"
	"fmt"
	"time"

	"graft/rl"
)

// Pairs hands out preferences in the run's order: an rl.Feed does.
type Pairs interface {
	Next(n int) ([]rl.Preference, error)
}

// Trainer moves the policy by DPO. It is used from one goroutine.
type Trainer struct {
	*rl.Learner
	Pairs Pairs

	options Options
}

// New checks the options and allocates the optimizer's moments. The policy must have been allocated
// for micro-batches of Options.PolicySize, and needs a reference: no adapter, or a second model.
func New(o Options, p *rl.Policy, pairs Pairs) (*Trainer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	switch {
	case p.InvT != 1:
		return nil, fmt.Errorf("dpo: the policy scores at 1/temperature %g instead of 1", p.InvT)
	case p.Adapter == nil && p.Reference == nil:
		return nil, fmt.Errorf("dpo: no reference policy: train an adapter, or load a second copy of the model")
	}
	learner, err := rl.NewLearner(p, o.Optimizer, o.Schedule)
	if err != nil {
		return nil, err
	}
	return &Trainer{Learner: learner, Pairs: pairs, options: o}, nil
}

// Step moves the policy once. On an error the parameters are as they were.
func (t *Trainer) Step(ctx context.Context) (rl.Stats, error) {
	var stats rl.Stats
	begin := time.Now()
	n := t.options.PerDeviceTrainBatchSize
	pairs, err := t.Pairs.Next(n * t.options.GradientAccumulationSteps)
	if err != nil {
		return stats, err
	}
	err = t.Alone(ctx, func() error {
		t.Expect(4*len(pairs), 2*len(pairs)) // both of a pair, under the reference and the policy
		t.Policy.ZeroGrads()
		for m := range t.options.GradientAccumulationSteps {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := t.learn(siblings(pairs[m*n:(m+1)*n]), &stats); err != nil {
				return err
			}
		}
		return t.Move(&stats) // in place; Version++
	})
	if err != nil {
		return stats, err
	}
	stats.Set("train_seconds", time.Since(begin).Seconds())
	return stats, nil
}

// learn adds a micro-batch's gradient and figures.
func (t *Trainer) learn(batch []rl.Rollout, stats *rl.Stats) error {
	reference, err := t.Policy.ScoreReference(batch)
	if err != nil {
		return err
	}
	t.Scored(len(batch))
	for i, rest := 0, reference; i < len(batch); i++ {
		batch[i].RefLogP, rest = rest[:batch[i].Len()], rest[batch[i].Len():]
	}
	logp, entropy, err := t.Policy.Score(batch)
	if err != nil {
		return err
	}
	t.Scored(len(batch))
	grad, terms, err := t.options.Loss(batch, logp, entropy, t.options.GradientAccumulationSteps)
	if err != nil {
		return err
	}
	if err := t.Policy.Accumulate(grad); err != nil {
		return err
	}
	t.Trained(len(batch))
	for _, name := range terms.Names {
		v := terms.Get(name)
		if name != "loss" { // the micro-batches' shares add up; their figures are averaged
			v /= float64(t.options.GradientAccumulationSteps)
		}
		stats.Add(name, v)
	}
	for i := range batch {
		stats.Add("tokens_trained", float64(batch[i].Len()))
		stats.Add("num_tokens", float64(len(batch[i].Tokens)))
	}
	return nil
}

// siblings lays pairs out as rollouts: chosen, then rejected, sharing their prompt where its tokens
// are the same.
func siblings(pairs []rl.Preference) []rl.Rollout {
	out := make([]rl.Rollout, 0, 2*len(pairs))
	for i, p := range pairs {
		out = append(out, p.Chosen.Rollout(i, 0), p.Rejected.Rollout(i, 1))
	}
	return out
}
