package main

import (
	"context"

	"graft/cmd/internal/loop"
	"graft/rl"
	"graft/rl/dpo"
)

type dpoCmd struct {
	modelOptions
	datasetOptions
	MaxLength            int       `help:"Most tokens of a prompt with a completion; 0: what fits, at most 1024." placeholder:"N" group:"data"`
	Beta                 float64   `help:"How strongly the policy is held to the reference." default:"0.1" placeholder:"BETA" group:"dpo"`
	LossType             []string  `help:"sigmoid, hinge, ipo, exo_pair, nca_pair, robust, bco_pair, sppo_hard, aot, aot_unpaired, apo_zero, apo_down, discopop, sft, sigmoid_norm; several are added up." default:"sigmoid" placeholder:"NAME,…" group:"dpo"`
	LossWeights          []float64 `help:"Factors of several losses." placeholder:"W,…" group:"dpo"`
	LabelSmoothing       float64   `help:"Share of labels taken to be wrong, for robust, exo_pair, aot and aot_unpaired." placeholder:"SHARE" group:"dpo"`
	FDivergenceType      string    `help:"Divergence from the reference: ${enum}." default:"reverse_kl" enum:"reverse_kl,forward_kl,js_divergence,alpha_divergence" placeholder:"NAME" group:"dpo"`
	FAlphaDivergenceCoef float64   `help:"Of alpha_divergence." default:"0.5" placeholder:"COEF" group:"dpo"`
	LdAlpha              *float64  `help:"Weight of the tokens beyond the shorter completion (LD-DPO)." placeholder:"ALPHA" group:"dpo"`
	DiscopopTau          float64   `help:"Temperature of discopop." default:"0.05" placeholder:"TAU" group:"dpo"`
	ShuffleDataset       bool      `help:"Take rows in an order that seed and epoch decide." default:"true" negatable:"" group:"dpo"`
	loraOptions
	optimizerOptions
	evalOptions
	runOptions
}

// Help is the manual's long text.
func (dpoCmd) Help() string {
	return `Learns from rows with chosen and rejected (and a prompt, or a beginning that both share), as text or messages. The reference is the model without its adapter, so it costs no memory; with --adapter, which training goes on from, it is a frozen copy of that adapter, which the run's folder keeps as reference. eval_before and eval_after are the share of held-out pairs whose chosen completion is the more probable one.`
}

func (d *dpoCmd) check(c *console) error {
	discopop := false
	for _, kind := range d.LossType {
		discopop = discopop || kind == "discopop"
	}
	return checks(
		needed("model", d.Model, "a GGUF file, a folder with safetensors, or tiny"),
		d.modelOptions.check(), d.datasetOptions.check(), d.loraOptions.check(c), d.optimizerOptions.check(c), d.evalOptions.check(), d.runOptions.check(),
		between("max-length", d.MaxLength, 0, 1<<26, "0 takes what fits"),
		c.unused("f-alpha-divergence-coef", d.FDivergenceType != "alpha_divergence", "but with --f-divergence-type alpha_divergence"),
		c.unused("discopop-tau", !discopop, "but with --loss-type discopop"),
		c.unused("loss-weights", len(d.LossType) < 2, "with one loss"),
	)
}

// options are the flags as the trainer takes them.
func (d *dpoCmd) options() dpo.Options {
	return dpo.Options{
		LossOptions: dpo.LossOptions{LossType: d.LossType, LossWeights: d.LossWeights, Beta: d.Beta, LabelSmoothing: d.LabelSmoothing,
			FDivergenceType: d.FDivergenceType, FAlphaDivergenceCoef: d.FAlphaDivergenceCoef, LDAlpha: d.LdAlpha, DiscopopTau: d.DiscopopTau},
		PerDeviceTrainBatchSize: d.PerDeviceTrainBatchSize, GradientAccumulationSteps: d.GradientAccumulationSteps,
		Optimizer: d.adamW(), Schedule: d.schedule(),
	}
}

// Run trains.
func (d *dpoCmd) Run(c *console) (err error) {
	if err := d.check(c); err != nil {
		return err
	}
	o := d.options()
	if err := o.Validate(); err != nil {
		return errUsage{err}
	}
	early, begun := c.stop.immediate()
	defer begun()
	t := &training{c: c, early: early, begun: begun, command: "dpo", model: d.modelOptions, lora: d.loraOptions, run: d.runOptions, figure: "rewards/accuracies"}
	defer func() {
		if closing := t.close(); err == nil {
			err = closing
		}
	}()
	if err := t.begin(); err != nil {
		return err
	}
	limit, err := t.maxLength(d.MaxLength)
	if err != nil {
		return err
	}
	train, held, err := d.pairs(t, limit)
	if err != nil {
		return err
	}
	rate := 5e-5
	if d.Full {
		rate = 5e-7
	}
	n := d.PerDeviceTrainBatchSize
	if err := d.resolve(rate, len(train), float64(n*d.GradientAccumulationSteps)); err != nil {
		return err
	}
	t.optim, o = d.optimizerOptions, d.options()
	t.sizes.policy, t.needsReference = d.size(n, train, held), true
	t.sizes.rows = rowsText(n, "pairs", longestOf(append(append([]rl.Preference(nil), train...), held...), func(p rl.Preference) int { return max(len(p.Chosen.Tokens), len(p.Rejected.Tokens)) }))
	u := &tuning{training: t, rows: len(train), held: len(held), what: "chosen more probable",
		measure: func(ctx context.Context) (float64, error) { return loop.Preferred(ctx, t.policy, held, n) },
		connect: func() (trainer, error) {
			f, err := feed(t, train, d.ShuffleDataset)
			if err != nil {
				return nil, err
			}
			made, err := dpo.New(o, t.policy, f)
			if err == nil {
				made.Watch = t.learn.tell
			}
			return made, err
		}}
	return u.run(c.stop.ctx)
}

// size bounds a micro-batch: as many pairs, each as large as the largest there is in each respect.
func (d *dpoCmd) size(n int, lists ...[]rl.Preference) rl.PolicySize {
	var one rl.PolicySize
	for _, list := range lists {
		for _, p := range list {
			one = one.Max(rl.SizeOf([]rl.Rollout{p.Chosen.Rollout(0, 0), p.Rejected.Rollout(0, 1)}))
		}
	}
	return rl.PolicySize{Rows: one.Rows * n, Scored: one.Scored * n, Pairs: one.Pairs * n, Pages: one.Pages * n}
}

func (d *dpoCmd) pairs(t *training, limit int) (train, held []rl.Preference, err error) {
	rows, eval, err := d.split(d.datasetOptions, d.Seed)
	if err != nil {
		return nil, nil, err
	}
	t.held = d.heldOut(eval)
	render, err := d.renderer(t.session.source.Files.Tokenizer, limit, func(r *rl.RenderOptions) { r.MaxLength = limit })
	if err != nil {
		return nil, nil, err
	}
	out, err := render.Preferences(rows)
	if err != nil {
		return nil, nil, err
	}
	t.skipped(out.Skipped, rows.Len())
	if eval == nil {
		return out.Items, nil, nil
	}
	measured, err := render.Preferences(eval)
	return out.Items, measured.Items, err
}
