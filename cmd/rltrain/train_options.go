package main

import (
	"fmt"
	"math"
	"strings"

	"graft/infer/paged"
	"graft/model"
	"graft/rl"
	"graft/weights"
)

// loraOptions say what is trained.
type loraOptions struct {
	LoraR         int      `help:"Rank of the adapter." default:"16" placeholder:"R" group:"adapter"`
	LoraAlpha     float64  `help:"The adapter's product is scaled by alpha/r." default:"32" placeholder:"ALPHA" group:"adapter"`
	TargetModules []string `help:"Linears that get a pair, by the end of their names, as q_proj,v_proj; all-linear: every one but the head." default:"all-linear" placeholder:"NAME,…" group:"adapter"`
	UseRslora     bool     `help:"Scale by alpha/√r." group:"adapter"`
	Full          bool     `help:"Train the whole model instead of an adapter: float32 weights, gradients and moments. GGUF models." group:"adapter"`
}

func (o loraOptions) check(c *console) error {
	if o.Full {
		for _, name := range []string{"lora-r", "lora-alpha", "target-modules", "use-rslora", "adapter"} {
			if c.flags[name] {
				return usage("--%s has no effect with --full, which trains no adapter", name)
			}
		}
	}
	if c.flags["adapter"] {
		for _, name := range []string{"lora-r", "lora-alpha", "target-modules", "use-rslora"} {
			if c.flags[name] {
				return usage("--%s has no effect with --adapter: training goes on with that adapter's own shape", name)
			}
		}
	}
	return checks(
		between("lora-r", o.LoraR, 1, weights.MaxRank, "8 to 64 suit most tasks"),
		positive("lora-alpha", o.LoraAlpha, "twice the rank is usual"),
	)
}

func (o loraOptions) config(base string) weights.AdapterConfig {
	return weights.AdapterConfig{R: o.LoraR, Alpha: o.LoraAlpha, TargetModules: o.TargetModules, RSLoRA: o.UseRslora, BaseModel: base}
}

// optimizerOptions say how parameters move. Names and defaults are TRL's, but for the learning rate.
type optimizerOptions struct {
	LearningRate              float64 `help:"Peak of the schedule. Default with an adapter: grpo 1e-4, dpo 5e-5, sft 2e-4; with --full: 1e-6, 5e-7, 2e-5." placeholder:"RATE" group:"optimizer"`
	LrSchedulerType           string  `help:"linear, cosine, cosine_with_restarts, cosine_with_min_lr, polynomial, inverse_sqrt, constant, constant_with_warmup, …" default:"linear" placeholder:"NAME" group:"optimizer"`
	MinLrRate                 float64 `help:"Lowest rate as a share of the peak, for schedules with a minimum." placeholder:"SHARE" group:"optimizer"`
	LrSchedulerKwargs         string  `help:"Further arguments of the schedule by transformers' names, as JSON: {\"num_decay_steps\": 20}." placeholder:"JSON" group:"optimizer"`
	WarmupSteps               int     `help:"Steps over which the rate grows from 0." placeholder:"N" group:"optimizer"`
	WarmupRatio               float64 `help:"The same as a share of all steps." placeholder:"SHARE" group:"optimizer"`
	WeightDecay               float64 `help:"Decay of matrices, decoupled." placeholder:"RATE" group:"optimizer"`
	AdamBeta1                 float64 `help:"Decay of the mean of gradients." default:"0.9" name:"adam-beta1" placeholder:"BETA" group:"optimizer"`
	AdamBeta2                 float64 `help:"Decay of the mean of squares." default:"0.999" name:"adam-beta2" placeholder:"BETA" group:"optimizer"`
	AdamEpsilon               float64 `help:"Added to the root of the mean of squares." default:"1e-8" placeholder:"EPS" group:"optimizer"`
	MaxGradNorm               float64 `help:"Longer gradients are shortened to this norm; 0: never." default:"1" placeholder:"NORM" group:"optimizer"`
	MaxSteps                  int     `help:"Optimizer steps; 0: as many as --num-train-epochs take." placeholder:"N" group:"optimizer"`
	NumTrainEpochs            float64 `help:"Passes over the rows, unless --max-steps is given." default:"1" placeholder:"N" group:"optimizer"`
	PerDeviceTrainBatchSize   int     `help:"Completions (rows, pairs) of one forward and backward." default:"8" placeholder:"N" group:"optimizer"`
	GradientAccumulationSteps int     `help:"Forwards and backwards of one optimizer step." default:"1" placeholder:"N" group:"optimizer"`
	GradientCheckpointing     *bool   `help:"Keep only the input of each layer for the backward and compute the rest again: less memory, about a third slower, the same bits. Default: only if the memory asks for it." negatable:"" group:"optimizer"`
}

const maxCount = 1 << 30

func (o optimizerOptions) check(c *console) error {
	if c.flags["max-steps"] && o.MaxSteps > 0 && c.flags["num-train-epochs"] {
		return usage("--num-train-epochs has no effect with --max-steps; give one of them")
	}
	args, err := rl.ParseScheduleArgs(o.LrSchedulerKwargs)
	if err != nil {
		return errUsage{err}
	}
	if args.MinLRRate != 0 && o.MinLrRate != 0 {
		return usage("--min-lr-rate has no effect with min_lr_rate in --lr-scheduler-kwargs; give one of them")
	}
	if o.WarmupSteps > 0 && o.WarmupRatio > 0 {
		return usage("--warmup-ratio has no effect with --warmup-steps; give one of them")
	}
	return checks(
		finite("learning-rate", o.LearningRate, "0 takes the default"),
		finite("min-lr-rate", o.MinLrRate, "0 turns it off"),
		between("warmup-steps", o.WarmupSteps, 0, maxCount, "0 begins at the peak"),
		between("warmup-ratio", o.WarmupRatio, 0, 1, "it is a share of all steps"),
		finite("weight-decay", o.WeightDecay, "0 turns it off"),
		between("adam-beta1", o.AdamBeta1, 0, 1-1e-9, "0.9 is usual"),
		between("adam-beta2", o.AdamBeta2, 0, 1-1e-9, "0.999 is usual"),
		positive("adam-epsilon", o.AdamEpsilon, "1e-8 is usual"),
		finite("max-grad-norm", o.MaxGradNorm, "0 turns clipping off"),
		between("max-steps", o.MaxSteps, 0, maxCount, "0 counts epochs instead"),
		positive("num-train-epochs", o.NumTrainEpochs, "1 sees every row once"),
		between("per-device-train-batch-size", o.PerDeviceTrainBatchSize, 1, maxCount, "more than the memory holds is refused by the plan"),
		between("gradient-accumulation-steps", o.GradientAccumulationSteps, 1, maxCount, "1 does not accumulate"),
	)
}

func (o optimizerOptions) adamW() rl.AdamWOptions {
	return rl.AdamWOptions{Beta1: o.AdamBeta1, Beta2: o.AdamBeta2, Eps: o.AdamEpsilon, WeightDecay: o.WeightDecay, MaxGradNorm: o.MaxGradNorm}
}

// schedule is for options that check has passed.
func (o optimizerOptions) schedule() rl.ScheduleOptions {
	args, err := rl.ParseScheduleArgs(o.LrSchedulerKwargs)
	if err != nil {
		panic(err)
	}
	if o.MinLrRate != 0 {
		args.MinLRRate = o.MinLrRate
	}
	return rl.ScheduleOptions{Type: o.LrSchedulerType, LearningRate: o.LearningRate, WarmupSteps: o.WarmupSteps, WarmupRatio: o.WarmupRatio,
		TotalSteps: o.MaxSteps, Args: args}
}

// resolve fills in what depends on other options: the rate, and the steps of the epochs when a step
// takes perStep rows of rows.
func (o *optimizerOptions) resolve(rate float64, rows int, perStep float64) error {
	if o.LearningRate == 0 {
		o.LearningRate = rate
	}
	if o.MaxSteps == 0 {
		steps := math.Ceil(o.NumTrainEpochs * float64(rows) / perStep)
		if steps > maxCount {
			return usage("--num-train-epochs %g makes %g steps; give --max-steps", o.NumTrainEpochs, steps)
		}
		o.MaxSteps = max(1, int(steps))
	}
	_, err := rl.NewSchedule(o.schedule())
	if err != nil {
		return errUsage{err}
	}
	return nil
}

// runOptions say where a run is kept and how it is shown.
type runOptions struct {
	OutputDir      string `help:"The run's folder; default: a new one in --runs." placeholder:"DIR" group:"run"`
	Resume         string `help:"Go on with a run from its last checkpoint: its folder, or no value for --output-dir or the last unfinished run." placeholder:"[DIR]" group:"run"`
	Seed           uint64 `help:"Decides data order, initial adapter and every draw." default:"42" placeholder:"N" group:"run"`
	SaveSteps      int    `help:"Write a checkpoint every N steps; 0: only at the end or when stopped." default:"20" placeholder:"N" group:"run"`
	SaveTotalLimit int    `help:"Checkpoints to keep; 0: all." default:"2" placeholder:"N" group:"run"`
	LoggingSteps   int    `help:"Print a line every N steps." default:"1" placeholder:"N" group:"run"`
	DryRun         bool   `help:"Check options, rewards and every row, print the memory that the run would take, and stop: nothing is loaded or written." group:"run"`
	JSON           bool   `help:"End standard output with the run's summary as one line of JSON; with --dry-run, with the plan." name:"json" group:"run"`
}

func (o runOptions) check() error {
	if o.DryRun && o.Resume != "" {
		return usage("--dry-run has no effect with --resume: a run that goes on takes what it took before")
	}
	return checks(
		between("save-steps", o.SaveSteps, 0, maxCount, "0 saves at the end only"),
		between("save-total-limit", o.SaveTotalLimit, 0, maxCount, "0 keeps all"),
		between("logging-steps", o.LoggingSteps, 1, maxCount, "1 prints every step"),
	)
}

// evalOptions say on what a run is measured before and after.
type evalOptions struct {
	EvalDataset string `help:"Rows to measure on before and after; default: some held out of --dataset, which the run's folder keeps as eval.jsonl, with their places in eval_rows.json." placeholder:"PATH" group:"evaluation"`
	EvalSize    int    `help:"Rows to measure on; 0: do not measure. Default: a tenth of the dataset, at most 64; all of --eval-dataset." default:"-1" placeholder:"N" group:"evaluation"`
}

func (o evalOptions) check() error {
	return between("eval-size", o.EvalSize, -1, maxCount, "0 does not measure, -1 takes the default")
}

// split opens the rows to train on and those to measure on (nil: none).
func (o evalOptions) split(d datasetOptions, seed uint64) (train, eval *rl.Dataset, err error) {
	if train, err = d.open(d.Dataset); err != nil {
		return nil, nil, err
	}
	if o.EvalSize == 0 {
		if o.EvalDataset != "" {
			return nil, nil, usage("--eval-dataset has no effect with --eval-size 0, which does not measure")
		}
		return train, nil, nil
	}
	if o.EvalDataset != "" {
		limit := max(0, o.EvalSize)
		split := ""
		if d.DatasetSplit != "" {
			split = "test"
		}
		eval, err = rl.OpenDataset(o.EvalDataset, rl.DatasetOptions{Limit: limit, Split: split})
		return train, eval, err
	}
	n := o.EvalSize
	if n < 0 {
		n = min(64, train.Len()/10)
	}
	if n == 0 {
		return train, nil, nil
	}
	if train, eval, err = train.Split(n, seed); err != nil {
		return nil, nil, usage("--eval-size %d: %v", n, err)
	}
	return train, eval, nil
}

// heldOut are rows to measure on that are in no file of their own; nil: none.
func (o evalOptions) heldOut(eval *rl.Dataset) *rl.Dataset {
	if o.EvalDataset != "" {
		return nil
	}
	return eval
}

// sizes is what a training run needs memory for, before it is known how much there is.
type sizes struct {
	policy    rl.PolicySize // of one micro-batch; Keep is decided by the plan
	rows      string        // what makes the micro-batch this large, for the table
	pages     int           // that let the sampler work at full width; 0: as the policy needs
	least     int           // pages it cannot do without
	adapter   int64         // bytes of trained pairs
	lengths   []int         // floats of each trained parameter
	reference int64         // bytes of a second, frozen copy of the model; 0: none
	rank      int           // columns of the widest pair
	sequences int           // sampled in one step
	logged    int           // completions that the run's log will hold
	length    int           // tokens of the longest prompt with its completion
}

// What a run that samples keeps in Go's heap, as measured (docs/memory.md).
const (
	// batchBytes is a token of the batch under way: id, log-probs, text, and its record in the log.
	batchBytes = 40
	// exportBytes is the writer of completions.parquet: compression and a page of each column.
	exportBytes = 44 << 20
	// exportRows is the completions that it holds before it writes, exportToken what a token of them takes.
	exportRows, exportToken = 4096, 8
)

// logBytes is what writing n completions of up to so many tokens to the run's log takes.
func logBytes(n, tokens int) int64 {
	if n == 0 {
		return 0
	}
	return exportBytes + exportToken*int64(min(n, exportRows))*int64(tokens)
}

// pagesOf is the pages of n sequences of prompt+completion positions in groups that share prompts.
func pagesOf(n, group, prompt, completion int) int {
	groups := (n + group - 1) / group
	own := paged.PagesFor(prompt+completion) - prompt/paged.PageSize
	return groups*(prompt/paged.PageSize) + n*own
}

// keeps lists the ways to hold activations that the options allow, fastest first.
func (o optimizerOptions) keeps() []model.Keep {
	switch {
	case o.GradientCheckpointing == nil:
		return []model.Keep{model.KeepAll, model.KeepInputs}
	case *o.GradientCheckpointing:
		return []model.Keep{model.KeepInputs}
	}
	return []model.Keep{model.KeepAll}
}

// describe names the trained thing for the first line of a run.
func (o loraOptions) describe(c *console) string {
	switch {
	case o.Full:
		return "all weights"
	case c.flags["adapter"]:
		return "the given adapter"
	}
	return fmt.Sprintf("LoRA r=%d alpha=%g on %s", o.LoraR, o.LoraAlpha, strings.Join(o.TargetModules, ","))
}
