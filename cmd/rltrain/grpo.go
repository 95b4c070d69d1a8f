package main

import (
	"slices"
	"strings"

	"graft/cmd/internal/loop"
	"graft/infer"
	"graft/rewards"
	"graft/rl"
	"graft/rl/grpo"
)

// grpoOptions are the flags of the objective. Names and defaults are TRL's.
type grpoOptions struct {
	NumGenerations            int      `help:"Completions of each prompt: the group that rewards are compared in." default:"8" placeholder:"G" group:"grpo"`
	MaxCompletionLength       int      `help:"Most tokens of a completion." default:"256" placeholder:"N" group:"grpo"`
	Temperature               float64  `help:"Of sampling, and of every log-prob." default:"1" placeholder:"T" group:"grpo"`
	TopP                      float64  `help:"Draw from the most probable tokens with this much probability; 1: all. Log-probs stay those of the whole vocabulary." default:"1" placeholder:"P" group:"grpo"`
	TopK                      int      `help:"Draw from the K most probable tokens; 0: all." placeholder:"K" group:"grpo"`
	MinP                      float64  `help:"Draw from tokens at least this probable, relative to the best; 0: all." placeholder:"P" group:"grpo"`
	Beta                      float64  `help:"Weight of the KL divergence from the model without adapter; 0: no reference is computed." default:"0" placeholder:"BETA" group:"grpo"`
	LossType                  string   `help:"${enum}." default:"dapo" enum:"dapo,grpo,dr_grpo,bnpo,cispo,sapo,luspo,vespo" placeholder:"NAME" group:"grpo"`
	ImportanceSamplingLevel   string   `help:"Ratios by token, or by sequence (GSPO)." default:"token" enum:"token,sequence" placeholder:"LEVEL" group:"grpo"`
	Epsilon                   float64  `help:"Ratios are clipped below 1-epsilon." default:"0.2" placeholder:"EPS" group:"grpo"`
	EpsilonHigh               float64  `help:"Ratios are clipped above 1+epsilon_high; 0: epsilon. For cispo the cap of the ratio itself, and needed: 5 in ScaleRL." placeholder:"EPS" group:"grpo"`
	Delta                     float64  `help:"Upper bound of the unclipped ratio (two-sided clipping); 0: none." placeholder:"DELTA" group:"grpo"`
	ScaleRewards              string   `help:"Divide advantages by the standard deviation of the group, of the batch, or not at all." default:"group" enum:"group,batch,none" placeholder:"HOW" group:"grpo"`
	MultiObjectiveAggregation string   `help:"With several rewards: add up, then normalise; or normalise each first (GDPO)." default:"sum_then_normalize" enum:"sum_then_normalize,normalize_then_sum" placeholder:"HOW" group:"grpo"`
	MaskTruncatedCompletions  bool     `help:"Completions that the length cut off do not learn." group:"grpo"`
	NumIterations             int      `help:"Passes over each batch of completions." default:"1" placeholder:"N" group:"grpo"`
	StepsPerGeneration        int      `help:"Micro-batches of each batch of completions; 0: gradient_accumulation_steps." placeholder:"N" group:"grpo"`
	TopEntropyQuantile        float64  `help:"Only this share of tokens, those of highest entropy, learns." default:"1" placeholder:"SHARE" group:"grpo"`
	EntropyCoef               float64  `help:"Bonus on the mean entropy." placeholder:"COEF" group:"grpo"`
	OffPolicyMaskThreshold    *float64 `help:"Completions with a negative advantage that drifted further do not learn." placeholder:"KL" group:"grpo"`
	UseBiasCorrectionKL       bool     `help:"KL estimate times the ratio, whose gradient has no bias." name:"use-bias-correction-kl" default:"true" negatable:"" group:"grpo"`
	SAPOTemperaturePos        float64  `help:"Of the gate of positive advantages, for sapo." name:"sapo-temperature-pos" default:"1" placeholder:"T" group:"grpo"`
	SAPOTemperatureNeg        float64  `help:"Of the gate of negative advantages, for sapo." name:"sapo-temperature-neg" default:"1.05" placeholder:"T" group:"grpo"`
	VESPOKPos                 float64  `help:"Shape for positive advantages, for vespo." name:"vespo-k-pos" default:"2" placeholder:"K" group:"grpo"`
	VESPOLambdaPos            float64  `help:"Rate for positive advantages, for vespo." name:"vespo-lambda-pos" default:"3" placeholder:"L" group:"grpo"`
	VESPOKNeg                 float64  `help:"Shape for negative advantages, for vespo." name:"vespo-k-neg" default:"3" placeholder:"K" group:"grpo"`
	VESPOLambdaNeg            float64  `help:"Rate for negative advantages, for vespo." name:"vespo-lambda-neg" default:"2" placeholder:"L" group:"grpo"`
	ShuffleDataset            bool     `help:"Take prompts in an order that seed and epoch decide." default:"true" negatable:"" group:"grpo"`
	MaxNumSeqs                int      `help:"Completions computed at once. Results do not depend on it." default:"64" placeholder:"N" group:"grpo"`
}

type grpoCmd struct {
	modelOptions
	datasetOptions
	rewardOptions
	grpoOptions
	loraOptions
	optimizerOptions
	evalOptions
	EvalTemperature float64 `help:"Of the answers that are measured before and after; 0: the most probable token." placeholder:"T" group:"evaluation"`
	runOptions
}

// Help is the manual's long text.
func (grpoCmd) Help() string {
	return `For each step: sample a group of completions for every prompt, score them with the rewards, and move the adapter towards what scored above its group's mean. Sampler and trainer compute the same log-probs bit for bit; "mismatch" counts the tokens where they do not and is 0.

Example:
  rltrain grpo --model SmolLM2-135M-Instruct.Q4_1.gguf --dataset prompts.jsonl --reward length:at_most=40 --max-steps 50

Rows of the dataset have a column prompt (text or messages), or question; other columns go to the rewards. Names of options are TRL's.`
}

func (g *grpoCmd) check(c *console) error {
	return checks(
		needed("model", g.Model, "a GGUF file, a folder with safetensors, or tiny"),
		g.modelOptions.check(), g.datasetOptions.check(), g.loraOptions.check(c), g.optimizerOptions.check(c), g.evalOptions.check(), g.runOptions.check(),
		between("num-generations", g.NumGenerations, 2, infer.MaxN, "a group needs two to compare"),
		between("max-completion-length", g.MaxCompletionLength, 1, 1<<24, "a completion has at least one token"),
		checkTemperature("temperature", g.Temperature, false), checkTemperature("eval-temperature", g.EvalTemperature, true),
		between("top-p", g.TopP, 1e-9, 1, "1 turns it off"),
		between("top-k", g.TopK, 0, maxCount, "0 turns it off"),
		between("min-p", g.MinP, 0, 1, "0 turns it off"),
		g.checkEpsilon(), g.checkCap(),
		between("max-num-seqs", g.MaxNumSeqs, 1, 4096, "64 suits most machines"),
		g.checkUnused(c),
	)
}

// checkUnused refuses options that the others leave without effect.
func (g *grpoCmd) checkUnused(c *console) error {
	clips := g.LossType != grpo.CISPO && g.LossType != grpo.SAPO && g.LossType != grpo.VESPO
	return checks(
		c.unused("use-bias-correction-kl", g.Beta == 0, "with --beta 0, which has no KL term"),
		c.unused("epsilon", !clips, "with --loss-type "+g.LossType),
		c.unused("epsilon-high", !clips && g.LossType != grpo.CISPO, "with --loss-type "+g.LossType),
		c.unused("sapo-temperature-pos", g.LossType != grpo.SAPO, "but with --loss-type sapo"),
		c.unused("sapo-temperature-neg", g.LossType != grpo.SAPO, "but with --loss-type sapo"),
		c.unused("vespo-k-pos", g.LossType != grpo.VESPO, "but with --loss-type vespo"),
		c.unused("vespo-lambda-pos", g.LossType != grpo.VESPO, "but with --loss-type vespo"),
		c.unused("vespo-k-neg", g.LossType != grpo.VESPO, "but with --loss-type vespo"),
		c.unused("vespo-lambda-neg", g.LossType != grpo.VESPO, "but with --loss-type vespo"),
		c.unused("multi-objective-aggregation", len(g.Reward) < 2, "with one reward"),
		c.unused("long-rows", g.LongRows == "truncate", "as truncate: a prompt is never cut; take skip"),
		c.unused("eval-temperature", g.EvalSize == 0, "with --eval-size 0"),
	)
}

// checkEpsilon refuses a band that reaches down to ratios of 0, which never clips.
func (g *grpoCmd) checkEpsilon() error {
	if g.Epsilon > 0 && g.Epsilon < 1 {
		return nil
	}
	return usage("--epsilon is %v, want more than 0 and less than 1; 0.2 is usual", g.Epsilon)
}

// checkCap refuses cispo with the cap that TRL falls back to: epsilon, below the ratio 1 of an
// unchanged policy, which scales every gradient down and corrects nothing.
func (g *grpoCmd) checkCap() error {
	if g.LossType != grpo.CISPO || g.EpsilonHigh != 0 {
		return nil
	}
	return usage("--loss-type cispo needs --epsilon-high, the cap of the ratio itself: 5 in ScaleRL. Without it TRL caps every ratio at --epsilon, %v, below the 1 of an unchanged policy", g.Epsilon)
}

// sayIdle warns of options that compare with an older policy when there is none. They are not
// refused: recipes name them whether or not a batch feeds several steps.
func (g *grpoCmd) sayIdle(c *console, o *grpo.Options) {
	if o.StepsPerBatch() != 1 {
		return
	}
	plain := slices.Contains([]string{grpo.DAPO, grpo.GRPO, grpo.BNPO, grpo.DrGRPO}, g.LossType)
	var idle []string
	for _, x := range []struct {
		name   string
		always bool // without effect at a ratio of 1
	}{
		{"epsilon", true},
		{"epsilon-high", g.LossType != grpo.CISPO}, // which needs one
		{"delta", true},
		{"off-policy-mask-threshold", true},
		{"importance-sampling-level", plain && g.TopEntropyQuantile == 1 && g.Beta == 0},
	} {
		if c.flags[x.name] && x.always {
			idle = append(idle, "--"+x.name)
		}
	}
	if idle != nil {
		c.talk.say("warning: no effect of %s: each batch feeds one step, so every ratio is 1; --num-iterations or --steps-per-generation makes more of a batch", strings.Join(idle, ", "))
	}
}

// trainerOptions are the flags as the trainer takes them, without the schedule.
func (g *grpoCmd) trainerOptions() grpo.Options {
	o := grpo.DefaultOptions()
	o.LossType, o.ImportanceSamplingLevel, o.Beta, o.UseBiasCorrectionKL = g.LossType, g.ImportanceSamplingLevel, g.Beta, g.UseBiasCorrectionKL
	o.Epsilon, o.EpsilonHigh, o.Delta, o.MaxCompletionLength = g.Epsilon, g.EpsilonHigh, g.Delta, g.MaxCompletionLength
	o.TopEntropyQuantile, o.EntropyCoef, o.OffPolicyMaskThreshold = g.TopEntropyQuantile, g.EntropyCoef, g.OffPolicyMaskThreshold
	o.SAPOTemperaturePos, o.SAPOTemperatureNeg = g.SAPOTemperaturePos, g.SAPOTemperatureNeg
	o.VESPOKPos, o.VESPOLambdaPos, o.VESPOKNeg, o.VESPOLambdaNeg = g.VESPOKPos, g.VESPOLambdaPos, g.VESPOKNeg, g.VESPOLambdaNeg
	o.NumGenerations, o.PerDeviceTrainBatchSize, o.GradientAccumulationSteps = g.NumGenerations, g.PerDeviceTrainBatchSize, g.GradientAccumulationSteps
	o.StepsPerGeneration, o.NumIterations, o.Temperature = g.StepsPerGeneration, g.NumIterations, g.Temperature
	o.MaskTruncatedCompletions, o.ScaleRewards, o.MultiObjectiveAggregation = g.MaskTruncatedCompletions, g.ScaleRewards, g.MultiObjectiveAggregation
	o.Optimizer = g.adamW()
	return o
}

// Run trains.
func (g *grpoCmd) Run(c *console) (err error) {
	if err := g.check(c); err != nil {
		return err
	}
	options := g.trainerOptions()
	if err := options.Validate(); err != nil {
		return errUsage{err}
	}
	g.sayIdle(c, &options)
	judge := &loop.Judge{Deadline: g.RewardTimeout}
	if judge.Rewards, err = g.parse(); err != nil {
		return err
	}
	defer rewards.Close(judge.Rewards)
	early, begun := c.stop.immediate()
	defer begun()
	if err := rewards.Prepare(early, judge.Rewards); err != nil {
		return err
	}
	t := &training{c: c, early: early, begun: begun, command: "grpo", model: g.modelOptions, lora: g.loraOptions, run: g.runOptions, figure: "reward", sampled: true, needsReference: g.Beta != 0}
	defer func() {
		if closing := t.close(); err == nil {
			err = closing
		}
	}()
	if err := t.begin(); err != nil {
		return err
	}
	judge.Tokenizer = t.session.source.Files.Tokenizer
	train, eval, err := g.prompts(t, judge.Rewards)
	if err != nil {
		return err
	}
	rate := 1e-4
	if g.Full {
		rate = 1e-6
	}
	perStep := float64(options.PromptsPerBatch()) / float64(options.StepsPerBatch())
	if err := g.resolve(rate, len(train), perStep); err != nil {
		return err
	}
	t.optim, options.Schedule = g.optimizerOptions, g.schedule()
	r := &reinforcement{training: t, judge: judge, options: options, train: train, eval: eval, o: g}
	return r.run(c.stop.ctx)
}

// prompts renders the rows to train on and those to measure on, all of which the rewards can read.
func (g *grpoCmd) prompts(t *training, list []rewards.Weighted) (train, eval []rl.Prompt, err error) {
	limit := g.maxLen(t.session) - g.MaxCompletionLength
	if limit < 1 {
		return nil, nil, usage("--max-completion-length %d leaves no room for a prompt in the %d positions of %s", g.MaxCompletionLength, g.maxLen(t.session), g.Model)
	}
	rows, held, err := g.split(g.datasetOptions, g.Seed)
	if err != nil {
		return nil, nil, err
	}
	t.held = g.heldOut(held)
	render, err := g.renderer(t.session.source.Files.Tokenizer, limit, nil)
	if err != nil {
		return nil, nil, err
	}
	if _, err := render.Audit(); err != nil {
		t.c.talk.say("warning: %s", oneMessage(err))
	}
	out, err := render.Prompts(rows)
	if err != nil {
		return nil, nil, err
	}
	if out.Skipped > 0 {
		t.c.talk.say("%d of %d rows are skipped: longer than %d tokens", out.Skipped, rows.Len(), limit)
	}
	if err := readable(list, rows, out.Items); err != nil || held == nil {
		return out.Items, nil, err
	}
	measured, err := render.Prompts(held)
	if err != nil {
		return nil, nil, err
	}
	return out.Items, measured.Items, readable(list, held, measured.Items)
}
