package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"graft/cmd/internal/loop"
	"graft/infer"
	"graft/infer/paged"
	"graft/kernels"
	"graft/rl"
	"graft/rl/grpo"
)

// reinforcement is a GRPO run: also the demo's.
type reinforcement struct {
	*training
	judge   *loop.Judge
	options grpo.Options
	train   []rl.Prompt
	eval    []rl.Prompt
	o       *grpoCmd
	rollout *loop.Rollouts
}

// run is the whole run, from plan to summary.
func (r *reinforcement) run(ctx context.Context) error {
	if err := r.prepare(); err != nil {
		return err
	}
	if err := r.connect(); err != nil {
		return err
	}
	before, err := r.start(r.early)
	if err != nil {
		return r.stoppedEarly(err)
	}
	if err := r.loopSteps(ctx); err != nil {
		return err
	}
	r.graph()
	after, err := r.measure(ctx)
	if err != nil {
		return err
	}
	return r.report(before, after)
}

// prepare plans, opens the run's folder and loads: in this order, so that what cannot work fails
// before it costs anything.
func (r *reinforcement) prepare() error {
	if err := r.trained(); err != nil {
		return err
	}
	g, prompt := r.o, max(longest(r.train), longest(r.eval))
	length := prompt + g.MaxCompletionLength
	batch := g.PerDeviceTrainBatchSize * r.options.StepsPerGeneration
	seqs := min(g.MaxNumSeqs, batch)
	r.sizes.policy = r.options.PolicySize(longest(r.train))
	r.sizes.rows = fmt.Sprintf("%d×(%d+%d) tokens", g.PerDeviceTrainBatchSize, longest(r.train), g.MaxCompletionLength)
	r.sizes.least = max(r.sizes.policy.Pages, paged.PagesFor(length))
	r.sizes.pages = pagesOf(seqs, g.NumGenerations, prompt, g.MaxCompletionLength)
	r.sizes.sequences, r.sizes.length = batch, length
	r.sizes.logged = batch * r.optim.MaxSteps * g.GradientAccumulationSteps / (r.options.NumIterations * r.options.StepsPerGeneration)
	for _, w := range r.judge.Rewards {
		r.rewards = append(r.rewards, w.Func.Name())
		r.options.RewardWeights = append(r.options.RewardWeights, w.Weight)
	}
	engine, err := r.fit(&infer.Options{MaxModelLen: length, MaxSeqs: seqs, MaxBatchedTokens: max(256, seqs)})
	if err != nil {
		return err
	}
	if err := r.rehearse(fmt.Sprintf("%d prompts", len(r.train))); err != nil {
		return err
	}
	if err := r.openLog(func(ids []int32) string { return r.judge.Tokenizer.Decode(ids, false) }); err != nil {
		return err
	}
	r.c.talk.prose("grpo: %s, %s, %d prompts, %d steps, on %s, precision %s\nrun: %s", r.session.source.Model, r.lora.describe(r.c), len(r.train), r.optim.MaxSteps, r.session.backend.Name(), r.session.source.Files.Precision(), r.log.Dir())
	if g.TopP < 1 || g.TopK > 0 || g.MinP > 0 {
		r.c.talk.prose("sampling is truncated (top-p %g, top-k %d, min-p %g): tokens are drawn from a changed distribution, while log-probs and ratios stay those of the whole vocabulary", g.TopP, g.TopK, g.MinP)
	}
	return r.load(engine)
}

// connect makes the trainer with its sampler and rewards.
func (r *reinforcement) connect() error {
	g, e := r.o, r.session.engine
	feed, err := rl.NewFeed(r.train, g.Seed, g.ShuffleDataset)
	if err != nil {
		return err
	}
	r.policy.InvT = float32(1 / g.Temperature)
	r.rollout = &loop.Rollouts{Feed: feed, Judge: r.judge, Policy: loop.Policy{Engine: e, Adapter: r.adapter, MaxTokens: g.MaxCompletionLength,
		Temperature: g.Temperature, TopP: g.TopP, TopK: g.TopK, MinP: g.MinP, Seed: g.Seed}}
	r.options.RewardNames = r.rewards
	trainer, err := grpo.New(r.options, r.policy, r.rollout, r.rollout, r.rollout)
	if err != nil {
		return err
	}
	trainer.Watch = r.learn.tell
	trainer.Exclusive = func(ctx context.Context, f func() error) error {
		return e.Exclusive(ctx, func() error {
			if err := e.PrepareUpdate(r.adapter); err != nil {
				return err
			}
			r.learn.begin()
			return f()
		})
	}
	r.trainer, r.batch, r.idle, r.cursor, r.seek = trainer, trainer.Batch, trainer.Idle, feed.Cursor, feed.Seek
	return nil
}

// start restores a resumed run, or probes and measures a fresh one; it returns the first evaluation.
func (r *reinforcement) start(ctx context.Context) (loop.Result, error) {
	if r.resume != nil {
		if err := r.restore(); err != nil {
			return loop.Result{}, err
		}
		r.c.talk.say("resumed at step %d of %d", r.trainer.Steps(), r.optim.MaxSteps)
		return r.remembered()
	}
	if err := r.probe(ctx); err != nil {
		return loop.Result{}, err
	}
	before, err := r.measure(ctx)
	if err != nil {
		return before, err
	}
	r.total.evalBefore, r.total.evaluated = before.Mean, len(r.eval) > 0
	r.extra = map[string]string{}
	if r.extra[firstEval], err = encodeEach(before.Each); err != nil {
		return before, err
	}
	return before, r.save(ctx)
}

// firstEval is where a checkpoint keeps the first evaluation, prompt by prompt.
const firstEval = "eval_before"

func encodeEach(each []float64) (string, error) {
	numbers := make([]rl.Number, len(each))
	for i, v := range each {
		numbers[i] = rl.Number(v)
	}
	raw, err := json.Marshal(numbers)
	return string(raw), err
}

// remembered is the first evaluation of the run that is resumed.
func (r *reinforcement) remembered() (loop.Result, error) {
	r.extra = r.resume.State.Extra
	var numbers []rl.Number
	if err := json.Unmarshal([]byte(r.extra[firstEval]), &numbers); err != nil {
		return loop.Result{}, fmt.Errorf("%s: %s: %w", r.resume.Path, firstEval, err)
	}
	out := loop.Result{Mean: r.total.evalBefore, Each: make([]float64, len(numbers))}
	for i, n := range numbers {
		out.Each[i] = float64(n)
	}
	return out, nil
}

// probeBytes is how many bytes of parameters the probe moves at a time.
const probeBytes = 1 << 20

// probe proves that the sampler reads the adapter that will be trained: with every parameter moved,
// the log-probs of a prompt must move too; afterwards all is as it was.
func (r *reinforcement) probe(ctx context.Context) error {
	if r.adapter == nil {
		return nil
	}
	ids := r.train[0].IDs
	if len(ids) < 2 {
		ids = append([]int32{ids[0]}, ids[0])
	}
	score := func() ([]float32, error) {
		logp, _, err := r.session.engine.Score(ctx, ids, r.adapter, 1)
		return logp, err
	}
	quiet, err := score()
	if err != nil {
		return err
	}
	saved := r.adapter.Grads() // as large as the parameters, and not needed before the first step
	if err := r.change(ctx, func(be kernels.Backend, params kernels.Tensor) {
		be.Copy(saved, params)
		moved := make([]byte, min(probeBytes, 4*params.Cols))
		for i := 0; i < len(moved); i += 4 {
			copy(moved[i:], []byte{0x0a, 0xd7, 0x23, 0x3c}) // 0.01
		}
		for from := 0; from < params.Cols; from += probeBytes / 4 {
			to := min(from+probeBytes/4, params.Cols)
			be.Upload(params.Columns(from, to), moved[:4*(to-from)])
		}
	}); err != nil {
		return err
	}
	loud, err := score()
	if err != nil {
		return err
	}
	if err := r.change(ctx, func(be kernels.Backend, params kernels.Tensor) {
		be.Copy(params, saved)
		be.Zero(saved)
	}); err != nil {
		return err
	}
	again, err := score()
	if err != nil {
		return err
	}
	moved, back := false, true
	for i := range quiet {
		moved = moved || quiet[i] != loud[i]
		back = back && math.Float32bits(quiet[i]) == math.Float32bits(again[i])
	}
	if !moved || !back {
		return errors.New("the start-up probe failed: the sampler does not follow the adapter; nothing was trained")
	}
	return nil
}

// change moves the adapter's parameters between two steps of the engine.
func (r *reinforcement) change(ctx context.Context, f func(be kernels.Backend, params kernels.Tensor)) error {
	e := r.session.engine
	return e.Exclusive(ctx, func() error {
		if err := e.PrepareUpdate(r.adapter); err != nil {
			return err
		}
		be := r.session.backend
		f(be, r.adapter.Params())
		r.adapter.Version++
		return be.Sync()
	})
}

// measure answers the held-out prompts under the policy as it is now.
func (r *reinforcement) measure(ctx context.Context) (loop.Result, error) {
	if len(r.eval) == 0 {
		return loop.Result{}, nil
	}
	s := loop.Sampling{N: 1, MaxTokens: r.o.MaxCompletionLength, Temperature: r.o.EvalTemperature, Seed: r.o.Seed}
	result, err := measured(ctx, r.c, r.session.engine, r.judge, r.eval, s, r.adapter, "measuring")
	if err != nil {
		return result, err
	}
	r.total.seconds += result.Seconds
	when := "before"
	if r.trainer.Steps() > 0 {
		when = "after"
	}
	r.c.talk.say("%s: reward %.4f on %d held-out prompts (%.1f s)", when, result.Mean, result.Scored, result.Seconds)
	return result, nil
}

// report writes the result and says what came of it.
func (r *reinforcement) report(before, after loop.Result) error {
	var mean *float64
	if len(r.eval) > 0 {
		d := loop.Compare(before, after)
		mean = &after.Mean
		r.c.talk.prose("reward on held-out prompts: %.4f → %.4f, change %+.4f, 95 %% interval %+.4f to %+.4f: %s", before.Mean, after.Mean, d.Mean, d.Low, d.High, d.Verdict())
	}
	if err := r.finish(mean); err != nil {
		return err
	}
	t := &r.total
	r.c.talk.prose("%d steps in %.0f s (sampling %.0f, training %.0f, rewards %.0f), mismatch %.0f of %.0f tokens, memory %s planned, %s resident at most",
		r.trainer.Steps(), t.seconds, t.sampling, t.learning, t.judging, t.mismatch, t.compared, sized(r.session.plan.Total()), sized(r.session.resident()))
	r.next()
	return nil
}
