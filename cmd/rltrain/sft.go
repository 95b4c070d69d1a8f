package main

import (
	"context"

	"graft/cmd/internal/loop"
	"graft/rl"
	"graft/rl/sft"
)

type sftCmd struct {
	modelOptions
	datasetOptions
	CompletionColumn   string `help:"Column of the completion; default: completion, else answer, else solution." placeholder:"NAME" group:"data"`
	MaxLength          int    `help:"Most tokens of a row; 0: what fits, at most 1024." placeholder:"N" group:"data"`
	CompletionOnlyLoss bool   `help:"Learn completions and assistant messages only; otherwise every token." default:"true" negatable:"" group:"sft"`
	LossType           string `help:"nll, or dft (dynamic fine-tuning)." default:"nll" enum:"nll,dft" placeholder:"NAME" group:"sft"`
	ShuffleDataset     bool   `help:"Take rows in an order that seed and epoch decide." default:"true" negatable:"" group:"sft"`
	loraOptions
	optimizerOptions
	evalOptions
	runOptions
}

// Help is the manual's long text.
func (sftCmd) Help() string {
	return `Learns to say what rows say: messages, prompt and completion, question and answer, or text. The loss is the token mean over the whole optimizer step. eval_before and eval_after are the negative log-likelihood of a token on held-out rows.`
}

func (s *sftCmd) check(c *console) error {
	return checks(
		needed("model", s.Model, "a GGUF file, a folder with safetensors, or tiny"),
		s.modelOptions.check(), s.datasetOptions.check(), s.loraOptions.check(c), s.optimizerOptions.check(c), s.evalOptions.check(), s.runOptions.check(),
		between("max-length", s.MaxLength, 0, 1<<26, "0 takes what fits"),
	)
}

// Run trains.
func (s *sftCmd) Run(c *console) (err error) {
	if err := s.check(c); err != nil {
		return err
	}
	early, begun := c.stop.immediate()
	defer begun()
	t := &training{c: c, early: early, begun: begun, command: "sft", model: s.modelOptions, lora: s.loraOptions, run: s.runOptions, figure: "loss"}
	defer func() {
		if closing := t.close(); err == nil {
			err = closing
		}
	}()
	if err := t.begin(); err != nil {
		return err
	}
	limit, err := t.maxLength(s.MaxLength)
	if err != nil {
		return err
	}
	train, held, err := s.examples(t, limit)
	if err != nil {
		return err
	}
	rate := 2e-4
	if s.Full {
		rate = 2e-5
	}
	n := s.PerDeviceTrainBatchSize
	if err := s.resolve(rate, len(train), float64(n*s.GradientAccumulationSteps)); err != nil {
		return err
	}
	t.optim = s.optimizerOptions
	o := sft.Options{LossType: s.LossType, PerDeviceTrainBatchSize: n, GradientAccumulationSteps: s.GradientAccumulationSteps,
		Optimizer: s.adamW(), Schedule: s.schedule()}
	if err := o.Validate(); err != nil {
		return errUsage{err}
	}
	size := func(e rl.Example) int { return len(e.Tokens) }
	longest := max(longestOf(train, size), longestOf(held, size))
	t.sizes.policy, t.sizes.rows = o.PolicySize(longest), rowsText(n, "rows", longest)
	u := &tuning{training: t, rows: len(train), held: len(held), what: "negative log-likelihood",
		measure: func(ctx context.Context) (float64, error) { return loop.NLL(ctx, t.policy, held, n) },
		connect: func() (trainer, error) {
			f, err := feed(t, train, s.ShuffleDataset)
			if err != nil {
				return nil, err
			}
			made, err := sft.New(o, t.policy, f)
			if err == nil {
				made.Watch = t.learn.tell
			}
			return made, err
		}}
	return u.run(c.stop.ctx)
}

func (s *sftCmd) examples(t *training, limit int) (train, held []rl.Example, err error) {
	rows, eval, err := s.split(s.datasetOptions, s.Seed)
	if err != nil {
		return nil, nil, err
	}
	t.held = s.heldOut(eval)
	render, err := s.renderer(t.session.source.Files.Tokenizer, limit, func(r *rl.RenderOptions) {
		r.CompletionColumn, r.MaxLength, r.AllTokens = s.CompletionColumn, limit, !s.CompletionOnlyLoss
	})
	if err != nil {
		return nil, nil, err
	}
	out, err := render.Examples(rows)
	if err != nil {
		return nil, nil, err
	}
	t.skipped(out.Skipped, rows.Len())
	if eval == nil {
		return out.Items, nil, nil
	}
	measured, err := render.Examples(eval)
	return out.Items, measured.Items, err
}
