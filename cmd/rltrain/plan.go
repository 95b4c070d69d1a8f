package main

import (
	"encoding/json"
	"fmt"

	"graft/cmd/internal/launch"
	"graft/infer"
	"graft/infer/paged"
	"graft/model"
	"graft/rl/dpo"
	"graft/rl/grpo"
	"graft/rl/sft"
)

type planCmd struct {
	Command string `arg:"" optional:"" help:"What for: grpo, dpo, sft, or use (eval, chat, score, serve)." default:"grpo" enum:"grpo,dpo,sft,use"`
	modelOptions
	loraOptions
	MaxPromptLength           int   `help:"Tokens of the longest prompt." default:"256" placeholder:"N" group:"lengths"`
	MaxCompletionLength       int   `help:"Tokens of the longest completion." default:"256" placeholder:"N" group:"lengths"`
	NumGenerations            int   `help:"Completions of each prompt, for grpo." default:"8" placeholder:"G" group:"lengths"`
	PerDeviceTrainBatchSize   int   `help:"Completions (rows, pairs) of one forward and backward." default:"8" placeholder:"N" group:"lengths"`
	GradientAccumulationSteps int   `help:"Micro-batches of one step." default:"1" placeholder:"N" group:"lengths"`
	GradientCheckpointing     *bool `help:"Keep only the input of each layer. Default: only if the memory asks for it." negatable:"" group:"lengths"`
	MaxNumSeqs                int   `help:"Completions computed at once." default:"64" placeholder:"N" group:"lengths"`
	JSON                      bool  `help:"JSON on standard output." name:"json"`
}

// Help is the manual's long text.
func (planCmd) Help() string {
	return "Reads the model's description, not its weights, and prints the bytes that a run will take, line by line: the arena, which a run takes exactly, and the program with its heap, as a bound for the resident memory of the process. The dataset is not known here, and a run adds what its rows take: with --dry-run a command that trains prints the plan of just that run. A run refuses to begin if its plan does not fit. Exit code 1 if it does not fit here."
}

func (p *planCmd) check(c *console) error {
	return checks(
		needed("model", p.Model, "a GGUF file, a folder with safetensors, or tiny"),
		p.modelOptions.check(), p.loraOptions.check(c),
		between("max-prompt-length", p.MaxPromptLength, 1, 1<<26, "a prompt has at least one token"),
		between("max-completion-length", p.MaxCompletionLength, 1, 1<<26, "a completion has at least one token"),
		between("num-generations", p.NumGenerations, 2, infer.MaxN, "a group needs two"),
		between("per-device-train-batch-size", p.PerDeviceTrainBatchSize, 1, 1<<16, "8 is usual"),
		between("gradient-accumulation-steps", p.GradientAccumulationSteps, 1, maxCount, "1 does not accumulate"),
		between("max-num-seqs", p.MaxNumSeqs, 1, 4096, "64 suits most machines"),
	)
}

// Run prints the plan.
func (p *planCmd) Run(c *console) error {
	if err := p.check(c); err != nil {
		return err
	}
	use := launch.Training
	if p.Command == "use" {
		use = launch.Answering
	}
	s, err := p.modelOptions.open(c, use, model.Options{Trained: p.Full && p.Command != "use"})
	if err != nil {
		return err
	}
	defer s.close()
	length := p.MaxPromptLength + p.MaxCompletionLength
	if limit := p.maxLen(s); length > limit {
		return usage("--max-prompt-length %d and --max-completion-length %d are %d together, more than the %d positions that the model is loaded for", p.MaxPromptLength, p.MaxCompletionLength, length, limit)
	}
	if p.Command == "use" {
		if _, err := s.planAdapter(false); err != nil {
			return err
		}
		seqs := min(p.MaxNumSeqs, 8)
		s.planEngine(infer.Options{MaxModelLen: length, MaxSeqs: seqs, MaxBatchedTokens: max(256, seqs), Pages: paged.PagesFor(length) * seqs})
		s.planProgram(launch.Working{})
		return printPlan(c, s, p.JSON)
	}
	t := &training{c: c, command: p.Command, model: p.modelOptions, lora: p.loraOptions, session: s}
	t.run.DryRun, t.run.JSON = true, p.JSON
	t.optim.GradientCheckpointing, t.needsReference = p.GradientCheckpointing, p.Command == "dpo"
	if err := t.trained(); err != nil {
		return err
	}
	engine, err := p.size(t)
	if err != nil {
		return err
	}
	if _, err := t.fit(engine); err != nil {
		return err
	}
	return printPlan(c, s, p.JSON)
}

// size fills in what the command's micro-batch needs.
func (p *planCmd) size(t *training) (*infer.Options, error) {
	length := p.MaxPromptLength + p.MaxCompletionLength
	t.sizes.length = length
	t.sizes.rows = fmt.Sprintf("%d×(%d+%d) tokens", p.PerDeviceTrainBatchSize, p.MaxPromptLength, p.MaxCompletionLength)
	switch p.Command {
	case "sft":
		o := sft.DefaultOptions()
		o.PerDeviceTrainBatchSize = p.PerDeviceTrainBatchSize
		t.sizes.policy = o.PolicySize(length)
	case "dpo":
		o := dpo.DefaultOptions()
		o.PerDeviceTrainBatchSize = p.PerDeviceTrainBatchSize
		t.sizes.policy = o.PolicySize(p.MaxPromptLength, p.MaxCompletionLength)
	default:
		o := grpo.DefaultOptions()
		o.NumGenerations, o.PerDeviceTrainBatchSize, o.GradientAccumulationSteps = p.NumGenerations, p.PerDeviceTrainBatchSize, p.GradientAccumulationSteps
		o.MaxCompletionLength = p.MaxCompletionLength
		if err := o.Validate(); err != nil {
			return nil, errUsage{err}
		}
		seqs := min(p.MaxNumSeqs, o.PerDeviceTrainBatchSize*o.StepsPerGeneration)
		t.sizes.sequences, t.sizes.logged = o.PerDeviceTrainBatchSize*o.StepsPerGeneration, exportRows
		t.sizes.policy = o.PolicySize(p.MaxPromptLength)
		t.sizes.pages = pagesOf(seqs, o.NumGenerations, p.MaxPromptLength, p.MaxCompletionLength)
		t.sizes.least = max(t.sizes.policy.Pages, paged.PagesFor(length))
		return &infer.Options{MaxModelLen: length, MaxSeqs: seqs, MaxBatchedTokens: max(256, seqs)}, nil
	}
	t.sizes.least = t.sizes.policy.Pages
	return nil, nil
}

// printPlan writes the plan on standard output, and fails where it does not fit.
func printPlan(c *console, s *session, asJSON bool) error {
	if asJSON {
		err := json.NewEncoder(c.out).Encode(struct {
			Precision string        `json:"precision"`
			Items     []launch.Item `json:"items"`
			Planned   int64         `json:"planned_bytes"`
			Arena     int64         `json:"arena_planned_bytes"`
			Before    int64         `json:"before_bytes"` // planned_bytes is this, where the sum of the items is less
			Available int64         `json:"available_bytes"`
			Fits      bool          `json:"fits"`
		}{s.source.Files.Precision().String(), s.plan.Items, s.plan.Total(), s.plan.Arena(), s.plan.Before, s.budget.Bytes, s.plan.Fit(s.budget) == nil})
		if err != nil {
			return err
		}
		return s.plan.Fit(s.budget)
	}
	if err := s.plan.Write(c.out, s.budget); err != nil {
		return err
	}
	return s.plan.Fit(s.budget)
}
