// Package sft fine-tunes on given completions: the token mean of the negative log-likelihood over
// the whole accumulation window, or dynamic fine-tuning's (Wu et al. 2025, arXiv 2508.05629).
//
// Which tokens count is the rollouts' mask: completion only, or all but the first. The package may
// not know where examples come from or where a model lies. State: the optimizer's moments and step,
// through rl.Learner.
package sft

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"graft/kernels/libm"
	"graft/rl"
)

// LossTypes lists loss_type: nll is −log p of a token, dft that times p without gradient.
func LossTypes() []string { return []string{"nll", "dft"} }

// Options are the trainer's. Names and defaults are TRL's.
type Options struct {
	LossType                  string // loss_type
	PerDeviceTrainBatchSize   int    // per_device_train_batch_size: examples of a micro-batch
	GradientAccumulationSteps int    // gradient_accumulation_steps: micro-batches of an optimizer step
	Optimizer                 rl.AdamWOptions
	Schedule                  rl.ScheduleOptions
}

// DefaultOptions are TRL's.
func DefaultOptions() Options {
	return Options{LossType: "nll", PerDeviceTrainBatchSize: 8, GradientAccumulationSteps: 1,
		Optimizer: rl.DefaultAdamW(), Schedule: rl.ScheduleOptions{Type: "linear", LearningRate: 2e-5}}
}

// Validate names the option that is wrong.
func (o *Options) Validate() error {
	switch {
	case !slices.Contains(LossTypes(), o.LossType):
		return fmt.Errorf("sft: loss_type %q is not known; there are %s", o.LossType, strings.Join(LossTypes(), ", "))
	case o.PerDeviceTrainBatchSize < 1:
		return fmt.Errorf("sft: per_device_train_batch_size is %d", o.PerDeviceTrainBatchSize)
	case o.GradientAccumulationSteps < 1:
		return fmt.Errorf("sft: gradient_accumulation_steps is %d", o.GradientAccumulationSteps)
	}
	return o.Optimizer.Validate()
}

// PolicySize bounds a micro-batch of examples of at most maxLength tokens.
func (o *Options) PolicySize(maxLength int) rl.PolicySize {
	example := rl.GroupBound(1, 1, maxLength-1) // the shortest prompt has the most pairs
	var size rl.PolicySize
	for range o.PerDeviceTrainBatchSize {
		size = size.Plus(example)
	}
	return size
}

// Loss is one micro-batch's share of the token mean over a window of `items` loss tokens, and its
// gradient by each token's log-prob. Stats hold loss and the mean entropy.
func (o *Options) Loss(batch []rl.Rollout, logp, entropy []float32, items float64) (rl.TokenGrad, rl.Stats, error) {
	var stats rl.Stats
	n := rl.Tokens(batch)
	if len(logp) != n || len(entropy) != n || !(items > 0) {
		return rl.TokenGrad{}, stats, fmt.Errorf("sft: %d log-probs and %d entropies for %d tokens, a window of %g", len(logp), len(entropy), n, items)
	}
	grad := rl.TokenGrad{DLogP: make([]float32, n)}
	var loss, spread, own float64
	at := 0
	for i := range batch {
		for t := range batch[i].Len() {
			w := float64(batch[i].Weight(t))
			lp := float64(logp[at])
			scale := w / items
			if o.LossType == "dft" {
				scale *= libm.Exp(lp)
			}
			loss -= float64(scale * lp)
			grad.DLogP[at] = float32(-scale)
			spread += float64(w * float64(entropy[at]))
			own += w
			at++
		}
	}
	stats.Set("loss", loss)
	stats.Set("entropy", spread/max(1, own))
	return grad, stats, nil
}

// Examples hands out examples in the run's order: an rl.Feed does.
type Examples interface {
	Next(n int) ([]rl.Example, error)
}

// Trainer moves the policy by supervised fine-tuning. It is used from one goroutine.
type Trainer struct {
	*rl.Learner
	Examples Examples

	options Options
}

// New checks the options and allocates the optimizer's moments. The policy must have been allocated
// for micro-batches of Options.PolicySize.
func New(o Options, p *rl.Policy, examples Examples) (*Trainer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if p.InvT != 1 {
		return nil, fmt.Errorf("sft: the policy scores at 1/temperature %g instead of 1", p.InvT)
	}
	learner, err := rl.NewLearner(p, o.Optimizer, o.Schedule)
	if err != nil {
		return nil, err
	}
	return &Trainer{Learner: learner, Examples: examples, options: o}, nil
}

// Step moves the policy once. On an error the parameters are as they were.
func (t *Trainer) Step(ctx context.Context) (rl.Stats, error) {
	var stats rl.Stats
	begin := time.Now()
	n := t.options.PerDeviceTrainBatchSize
	examples, err := t.Examples.Next(n * t.options.GradientAccumulationSteps)
	if err != nil {
		return stats, err
	}
	var window []rl.Rollout
	items := 0.0
	for i, e := range examples {
		r := e.Rollout(i, 0)
		for j := range r.Len() {
			items += float64(r.Weight(j))
		}
		window = append(window, r)
	}
	if items == 0 {
		return stats, fmt.Errorf("sft: the %d examples of step %d have no token to learn from", len(examples), t.Steps()+1)
	}
	err = t.Alone(ctx, func() error {
		t.Expect(len(window), len(window))
		t.Policy.ZeroGrads()
		for m := range t.options.GradientAccumulationSteps {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := t.learn(window[m*n:(m+1)*n], items, &stats); err != nil {
				return err
			}
		}
		return t.Move(&stats) // in place; Version++
	})
	if err != nil {
		return stats, err
	}
	stats.Set("tokens_trained", items)
	stats.Set("train_seconds", time.Since(begin).Seconds())
	return stats, nil
}

// learn adds a micro-batch's gradient and figures.
func (t *Trainer) learn(batch []rl.Rollout, items float64, stats *rl.Stats) error {
	rows := len(batch)
	batch = slices.DeleteFunc(slices.Clone(batch), func(r rl.Rollout) bool { // nothing to learn: no forward
		return r.Len() == 0 || r.Mask != nil && !slices.ContainsFunc(r.Mask, func(w float32) bool { return w != 0 })
	})
	if len(batch) == 0 {
		t.Scored(rows)
		t.Trained(rows)
		return nil
	}
	logp, entropy, err := t.Policy.Score(batch)
	if err != nil {
		return err
	}
	t.Scored(rows)
	grad, terms, err := t.options.Loss(batch, logp, entropy, items)
	if err != nil {
		return err
	}
	if err := t.Policy.Accumulate(grad); err != nil {
		return err
	}
	t.Trained(rows)
	stats.Add("loss", terms.Get("loss"))
	stats.Add("entropy", terms.Get("entropy")/float64(t.options.GradientAccumulationSteps))
	for i := range batch {
		stats.Add("num_tokens", float64(len(batch[i].Tokens)))
	}
	return nil
}
