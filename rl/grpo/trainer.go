package grpo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"graft/rl"
)

// Prompts hands out prompts in the run's order: an rl.Feed does.
type Prompts interface {
	Next(n int) ([]rl.Prompt, error)
}

// Sampler draws n completions of each prompt from the policy as it is now. Siblings are adjacent
// and share Group; LogP holds the log-probs of the drawn tokens at the policy's temperature and
// Version the policy's, or LogP is nil for completions that were not sampled here. step makes the
// draw reproducible.
type Sampler interface {
	Generate(ctx context.Context, prompts []rl.Prompt, n int, step int) ([]rl.Rollout, error)
}

// Rewarder fills in Rewards (NaN where a function did not apply), their weighted sum Reward, and
// Scored.
type Rewarder interface {
	Score(ctx context.Context, rollouts []rl.Rollout) error
}

// Trainer moves the policy by GRPO. It is used from one goroutine.
type Trainer struct {
	*rl.Learner
	Prompts Prompts
	Sampler Sampler
	Rewards Rewarder

	options Options
	batch   []rl.Rollout // the generation batch in use, or used up
	items   float64      // its loss tokens
	used    int          // optimizer steps it has fed
}

// New checks the options and allocates the optimizer's moments. The policy must have been allocated
// for micro-batches of Options.PolicySize.
func New(o Options, p *rl.Policy, prompts Prompts, sampler Sampler, rewards Rewarder) (*Trainer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	switch {
	case p.InvT != float32(1/o.Temperature):
		return nil, fmt.Errorf("grpo: the policy scores at 1/temperature %g, the options say temperature %g", p.InvT, o.Temperature)
	case o.Beta != 0 && p.Adapter == nil && p.Reference == nil:
		return nil, fmt.Errorf("grpo: beta %g needs a reference policy: train an adapter, or load a second copy of the model", o.Beta)
	}
	learner, err := rl.NewLearner(p, o.Optimizer, o.Schedule)
	if err != nil {
		return nil, err
	}
	return &Trainer{Learner: learner, Prompts: prompts, Sampler: sampler, Rewards: rewards, options: o}, nil
}

// Step moves the policy once. It samples and rewards groups whenever the last batch is used up, so
// one batch feeds Options.StepsPerBatch steps. On an error the parameters are as they were.
func (t *Trainer) Step(ctx context.Context) (rl.Stats, error) {
	var stats rl.Stats
	fresh := t.Idle()
	if fresh {
		if err := t.sample(ctx, &stats); err != nil {
			return stats, err
		}
	}
	begin := time.Now()
	err := t.Alone(ctx, func() error {
		t.expect(fresh)
		if fresh {
			if err := t.freeze(ctx); err != nil {
				return err
			}
		}
		return t.improve(ctx, &stats)
	})
	if err != nil {
		if fresh { // its frozen log-probs may be missing
			t.batch = nil
		}
		return stats, err
	}
	stats.Set("train_seconds", time.Since(begin).Seconds())
	t.used++
	return stats, nil
}

// expect tells how many completions the step will score and train on: rows without a loss token
// count too, though they take no time.
func (t *Trainer) expect(fresh bool) {
	o := &t.options
	n := o.PerDeviceTrainBatchSize * o.GradientAccumulationSteps
	score := n
	for m := 0; fresh && m < o.StepsPerGeneration; m++ {
		if batch := t.rows(m); t.rescored(batch) {
			score += len(batch)
		}
		if o.Beta != 0 {
			score += o.PerDeviceTrainBatchSize
		}
	}
	if !fresh {
		t.Sampled(0) // by an earlier step
	}
	t.Expect(score, n)
}

// sample draws groups, has them rewarded and turns rewards into advantages.
func (t *Trainer) sample(ctx context.Context, stats *rl.Stats) error {
	begin := time.Now()
	prompts, err := t.Prompts.Next(t.options.PromptsPerBatch())
	if err != nil {
		return err
	}
	rollouts, err := t.Sampler.Generate(ctx, prompts, t.options.NumGenerations, t.Steps())
	if err != nil {
		return err
	}
	if err := checkSampled(rollouts, prompts, &t.options, t.Policy.Version()); err != nil {
		return err
	}
	t.Sampled(len(rollouts))
	stats.Set("sample_seconds", time.Since(begin).Seconds())
	stats.Set("tokens_sampled", float64(rl.Tokens(rollouts)))
	lengthStats(rollouts, stats)

	begin = time.Now()
	if err := t.Rewards.Score(ctx, rollouts); err != nil {
		return err
	}
	stats.Set("reward_seconds", time.Since(begin).Seconds())
	figures, err := Advantages(rollouts, &t.options)
	if err != nil {
		return err
	}
	stats.Merge(figures)
	maskTruncated(rollouts, &t.options)
	t.batch, t.items, t.used = rollouts, lossTokens(rollouts), 0
	return nil
}

// freeze records the log-probs that stay fixed while the batch is in use. The sampler's own are the
// old ones: they have the same bits.
func (t *Trainer) freeze(ctx context.Context) error {
	for m := range t.options.StepsPerGeneration {
		batch := t.rows(m)
		if err := t.oldLogP(ctx, batch); err != nil {
			return err
		}
		if t.options.Beta == 0 {
			continue
		}
		if err := fixed(ctx, batch, t.Policy.ScoreReference, func(r *rl.Rollout, logp []float32) { r.RefLogP = logp }); err != nil {
			return err
		}
		t.Scored(len(batch))
	}
	return nil
}

// sampled tells whether the sampler's log-probs are the old ones of a micro-batch.
func (t *Trainer) sampled(batch []rl.Rollout) bool {
	if t.options.ISCorrection { // which compares the sampler's with the policy's own
		return false
	}
	return !slices.ContainsFunc(batch, func(r rl.Rollout) bool { return r.LogP == nil })
}

// rescored tells whether old log-probs need a forward of their own: not where the sampler's are at
// hand, nor where the loss takes the current ones.
func (t *Trainer) rescored(batch []rl.Rollout) bool {
	return !t.sampled(batch) && (t.options.StepsPerBatch() != 1 || t.options.ISCorrection)
}

func (t *Trainer) oldLogP(ctx context.Context, batch []rl.Rollout) error {
	if t.sampled(batch) {
		for i := range batch {
			batch[i].OldLogP = batch[i].LogP
		}
		return nil
	}
	if !t.rescored(batch) {
		return nil
	}
	score := func(rollouts []rl.Rollout) ([]float32, error) {
		logp, _, err := t.Policy.Score(rollouts)
		return logp, err
	}
	err := fixed(ctx, batch, score, func(r *rl.Rollout, logp []float32) { r.OldLogP = logp })
	if err == nil {
		t.Scored(len(batch))
	}
	return err
}

// fixed scores the live rows of a micro-batch and stores each row's log-probs; rows without a loss
// token get zeros.
func fixed(ctx context.Context, batch []rl.Rollout, score func([]rl.Rollout) ([]float32, error), set func(*rl.Rollout, []float32)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var logp []float32
	if rows := live(batch); len(rows) > 0 {
		var err error
		if logp, err = score(rows); err != nil {
			return err
		}
	}
	for i := range batch {
		r := &batch[i]
		if lossTokens(batch[i:i+1]) == 0 {
			set(r, make([]float32, r.Len()))
			continue
		}
		set(r, logp[:r.Len()])
		logp = logp[r.Len():]
	}
	return nil
}

// improve accumulates the gradient over the step's micro-batches and moves the parameters.
func (t *Trainer) improve(ctx context.Context, stats *rl.Stats) error {
	o := &t.options
	first := t.used * o.GradientAccumulationSteps % o.StepsPerGeneration
	window := Window{Rows: o.PerDeviceTrainBatchSize, MicroBatches: o.GradientAccumulationSteps,
		Items: t.items * float64(o.GradientAccumulationSteps) / float64(o.StepsPerGeneration)}
	var differ mismatch
	var terms rl.Stats
	trained, counted := 0.0, 0.0

	t.Policy.ZeroGrads()
	for m := first; m < first+o.GradientAccumulationSteps; m++ {
		batch := live(t.rows(m))
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(batch) == 0 {
			t.Scored(o.PerDeviceTrainBatchSize)
			t.Trained(o.PerDeviceTrainBatchSize)
			continue
		}
		logp, entropy, err := t.Policy.Score(batch) // the forward the sampler ran
		if err != nil {
			return err
		}
		t.Scored(o.PerDeviceTrainBatchSize)
		differ.count(batch, logp, t.Policy.Version()) // 0 of N, or something is broken
		grad, figures, err := o.Loss(batch, logp, entropy, window)
		if err != nil {
			return err
		}
		if err := t.Policy.Accumulate(grad); err != nil { // backward into the gradients
			return err
		}
		t.Trained(o.PerDeviceTrainBatchSize)
		terms.Merge(figures)
		trained, counted = trained+lossTokens(batch), counted+1
	}
	if err := t.Move(stats); err != nil { // in place; Version++
		return err
	}
	stats.Set("loss", 0) // even when every token was masked
	for _, name := range terms.Names {
		if name == "loss" { // the micro-batches' shares add up; their figures are averaged
			stats.Set(name, terms.Get(name))
		} else {
			stats.Set(name, terms.Get(name)/counted)
		}
	}
	stats.Set("tokens_trained", trained)
	stats.Set("mismatch_compared", float64(differ.compared))
	stats.Set("mismatch_tokens", float64(differ.tokens))
	stats.Set("mismatch_max", differ.max)
	return nil
}

// rows are those of micro-batch m of the generation batch. Groups stay together wherever
// num_generations divides per_device_train_batch_size.
func (t *Trainer) rows(m int) []rl.Rollout {
	n := t.options.PerDeviceTrainBatchSize
	return t.batch[m*n : (m+1)*n]
}

// Batch is the generation batch that fed the last Step, nil before the first.
func (t *Trainer) Batch() []rl.Rollout { return t.batch }

// Idle tells whether no batch is in use: only then does a checkpoint (parameters, moments, step,
// data cursor) hold all of the run's state.
func (t *Trainer) Idle() bool { return t.batch == nil || t.used == t.options.StepsPerBatch() }
