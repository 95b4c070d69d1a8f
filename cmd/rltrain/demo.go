package main

import (
	"fmt"
	"time"

	"graft/cmd/internal/launch"
	"graft/cmd/internal/loop"
	"graft/rewards"
	"graft/rl"
	"graft/rl/grpo"
	"graft/tiny"
)

// demoSettings are how the embedded model is tuned when nobody says otherwise: to the point within
// about a minute on two cores.
type demoSettings struct {
	steps       int
	batch       int // completions of a step
	group       int // of them for each prompt
	maxTokens   int // of a completion; answers have up to three digits and a stop token
	rank        int
	alpha       float64
	rate        float64
	warmup      int
	evalSize    int // held-out problems
	evalTemp    float64
	saveSteps   int
	logging     int
	rewardLimit time.Duration
}

func demo() demoSettings {
	return demoSettings{steps: 200,
		batch: 256, group: 8, maxTokens: 6, rank: 16, alpha: 32, rate: 2e-3, warmup: 5, evalSize: 500, evalTemp: 1, saveSteps: 40, logging: 5, rewardLimit: 10 * time.Second}
}

// demoCmd is what happens without a command.
type demoCmd struct {
	Runs        string       `help:"Folder of runs." default:"runs" placeholder:"DIR"`
	Threads     int          `help:"Threads that compute; 0: all. Results do not depend on it." placeholder:"N"`
	MemoryLimit launch.Bytes `help:"Most memory the plan may take, as 4GiB." placeholder:"SIZE"`
	Precision   string       `help:"f32, int8 or auto; see grpo -h." default:"auto" enum:"auto,f32,int8" placeholder:"NAME"`
	MaxSteps    int          `help:"Optimizer steps; 0: as many as the demo takes." placeholder:"N"`
	OutputDir   string       `help:"The run's folder; default: a new one in --runs." placeholder:"DIR"`
	Resume      string       `help:"Go on with a demo that was stopped." placeholder:"[DIR]"`
	Seed        uint64       `help:"Decides data order, initial adapter and every draw." default:"42" placeholder:"N"`
	JSON        bool         `help:"End standard output with the run's summary as one line of JSON." name:"json"`
}

// settings are the demo as a GRPO command.
func (d *demoCmd) settings() *grpoCmd {
	g := &grpoCmd{}
	g.Model, g.Runs, g.Threads, g.MemoryLimit, g.Precision = launch.Tiny, d.Runs, d.Threads, d.MemoryLimit, d.Precision
	g.grpoOptions = grpoOptions{NumGenerations: demo().group, MaxCompletionLength: demo().maxTokens, Temperature: 1, TopP: 1, LossType: grpo.DAPO,
		ImportanceSamplingLevel: grpo.Token, UseBiasCorrectionKL: true, Epsilon: 0.2, ScaleRewards: grpo.ScaleGroup,
		MultiObjectiveAggregation: grpo.SumThenNormalize, NumIterations: 1, TopEntropyQuantile: 1, ShuffleDataset: true, MaxNumSeqs: demo().batch,
		SAPOTemperaturePos: 1, SAPOTemperatureNeg: 1.05, VESPOKPos: 2, VESPOLambdaPos: 3, VESPOKNeg: 3, VESPOLambdaNeg: 2}
	g.loraOptions = loraOptions{LoraR: demo().rank, LoraAlpha: demo().alpha, TargetModules: []string{"all-linear"}}
	g.optimizerOptions = optimizerOptions{LearningRate: demo().rate, LrSchedulerType: "linear", WarmupSteps: demo().warmup, AdamBeta1: 0.9, AdamBeta2: 0.999,
		AdamEpsilon: 1e-8, MaxGradNorm: 1, MaxSteps: d.MaxSteps, PerDeviceTrainBatchSize: demo().batch, GradientAccumulationSteps: 1}
	if d.MaxSteps == 0 {
		g.MaxSteps = demo().steps
	}
	g.EvalTemperature = demo().evalTemp
	g.runOptions = runOptions{OutputDir: d.OutputDir, Resume: d.Resume, Seed: d.Seed, SaveSteps: demo().saveSteps, SaveTotalLimit: 2, LoggingSteps: demo().logging, JSON: d.JSON}
	return g
}

// Run tunes the embedded model on its task.
func (d *demoCmd) Run(c *console) (err error) {
	g := d.settings()
	if err := checks(between("max-steps", d.MaxSteps, 0, maxCount, "0 takes the demo's own"), g.modelOptions.check()); err != nil {
		return err
	}
	options := g.trainerOptions()
	options.Schedule = g.schedule()
	if err := options.Validate(); err != nil {
		return errUsage{err}
	}
	exact, err := rewards.ParseAll([]string{"exact"})
	if err != nil {
		return err
	}
	defer rewards.Close(exact)
	early, begun := c.stop.immediate()
	defer begun()
	t := &training{c: c, early: early, begun: begun, command: "demo", model: g.modelOptions, lora: g.loraOptions, optim: g.optimizerOptions, run: g.runOptions, figure: "reward", sampled: true}
	defer func() {
		if closing := t.close(); err == nil {
			err = closing
		}
	}()
	if err := t.begin(); err != nil {
		return err
	}
	render, err := rl.NewRenderer(t.session.source.Files.Tokenizer, rl.RenderOptions{})
	if err != nil {
		return err
	}
	train, err := problems(render, "train", 0, 1<<20)
	if err != nil {
		return err
	}
	held, err := problems(render, "test", 0, demo().evalSize)
	if err != nil {
		return err
	}
	c.talk.prose("No command, so here is the whole loop on the embedded model, which is right about half of the time at sums like %q.\n"+
		"GRPO samples %d answers to each of %d problems a step, rewards the right ones, and moves a LoRA adapter; %d problems are held out. See -h for your own model.",
		held[0].Columns["question"], demo().group, demo().batch/demo().group, len(held))
	judge := &loop.Judge{Tokenizer: t.session.source.Files.Tokenizer, Rewards: exact, Deadline: demo().rewardLimit}
	r := &reinforcement{training: t, judge: judge, options: options, train: train, eval: held, o: g}
	return r.run(c.stop.ctx)
}

// problems renders problems of a split.
func problems(render *rl.Renderer, split string, seed uint64, n int) ([]rl.Prompt, error) {
	var rows []map[string]any
	for _, p := range tiny.Problems(split, seed, n) {
		rows = append(rows, map[string]any{"question": p.Prompt, "answer": p.Answer})
	}
	out, err := render.Prompts(rl.NewDataset(fmt.Sprintf("tiny %s problems", split), rows))
	return out.Items, err
}
