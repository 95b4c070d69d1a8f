package main

import (
	"errors"
	"fmt"
	"runtime"

	"graft/cmd/internal/launch"
	"graft/infer"
	"graft/infer/paged"
	"graft/kernels"
	"graft/kernels/cpu"
	"graft/model"
	"graft/rl"
	"graft/weights"
)

// modelOptions are the flags of every command that loads a model.
type modelOptions struct {
	Model       string       `help:"GGUF file, folder with safetensors, or tiny (embedded). ${model_default}" placeholder:"MODEL" group:"model"`
	Adapter     string       `help:"PEFT folder, adapter GGUF or run folder; none for the base model alone." placeholder:"PATH" group:"model"`
	Runs        string       `help:"Folder of runs." default:"runs" placeholder:"DIR" group:"model"`
	Precision   string       `help:"Arithmetic of products with quantized matrices. f32: activations as they are. int8: activations rounded to 8 bits in runs of 32, sums of whole numbers: faster where the processor has instructions for it, and results differ from f32's as with another quantization; gradients are rounded to 7 bits on their way back through those matrices. auto: what the adapter or checkpoint was trained under, else ${auto_precision}." default:"auto" enum:"auto,f32,int8" placeholder:"NAME" group:"model"`
	MaxModelLen int          `help:"Positions of prompt and completion together; 0: what the model was made for, at most 8192." placeholder:"N" group:"model"`
	Threads     int          `help:"Threads that compute; 0: all. Results do not depend on it." placeholder:"N" group:"model"`
	MemoryLimit launch.Bytes `help:"Most memory the plan may take, as 4GiB; default: what is available now." placeholder:"SIZE" group:"model"`
}

const maxThreads = 1024

func (o modelOptions) check() error {
	return checks(
		between("threads", o.Threads, 0, maxThreads, "0 takes all cores"),
		between("max-model-len", o.MaxModelLen, 0, 1<<26, "0 takes what the model was made for"),
	)
}

// request is what launch opens.
func (o modelOptions) request() launch.Request {
	return launch.Request{Model: o.Model, Adapter: o.Adapter, Runs: o.Runs, Precision: o.Precision, Options: model.Options{Context: o.context()}}
}

// context is how many positions the model is loaded for; some rotary encodings (longrope, dynamic)
// are chosen by it.
func (o modelOptions) context() int { return o.MaxModelLen }

// session is an opened model on its way to an engine.
type session struct {
	source  *launch.Source
	backend *cpu.Backend
	plan    launch.Plan
	budget  launch.Budget
	rank    int // columns of the widest adapter
	options model.Options

	loaded *launch.Loaded
	engine *infer.Engine
}

// open finds the model and begins the plan: nothing large is allocated yet. The contract that
// --precision came to is then among the console's settings.
func (o modelOptions) open(c *console, use launch.Use, opt model.Options) (*session, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if opt.Trained && o.Precision == kernels.PrecisionInt8.String() {
		return nil, usage("--precision int8 has no effect with --full, which trains float32 weights")
	}
	r := o.request()
	r.Use, r.Options.Trained, r.Options.Format = use, opt.Trained, opt.Format
	source, err := launch.Open(r)
	if refused := (*launch.PrecisionError)(nil); errors.As(err, &refused) {
		return nil, errUsage{err}
	}
	if err != nil {
		return nil, err
	}
	for _, w := range source.Warnings {
		c.talk.say("warning: %s", w)
	}
	c.settle("precision", source.Files.Precision().String())
	s := &session{source: source, budget: launch.BudgetOf(o.MemoryLimit), options: r.Options}
	if limit := source.Files.Config.Context; o.MaxModelLen > limit {
		s.close()
		return nil, usage("--max-model-len %d: %s was made for %d positions", o.MaxModelLen, source.Model, limit)
	}
	s.backend = launch.NewBackend(o.threads())
	if err := s.plan.AddWeights(source, s.backend, r.Options); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (o modelOptions) threads() int {
	if o.Threads == 0 {
		return runtime.GOMAXPROCS(0)
	}
	return o.Threads
}

// planAdapter adds the adapter that the source names.
func (s *session) planAdapter(trained bool) (launch.Shape, error) {
	if s.source.Adapter == "" {
		return launch.Shape{}, nil
	}
	shape, err := launch.AdapterFileShape(s.source.Adapter, s.backend)
	if err != nil {
		return shape, err
	}
	s.plan.AddAdapter(shape, trained)
	s.rank = max(s.rank, shape.Cols)
	return shape, nil
}

// planEngine adds the engine, and returns its options with what the session knows.
func (s *session) planEngine(opt infer.Options) infer.Options {
	opt.Threads, opt.RankCols = s.backend.Threads(), s.rank
	config := &s.source.Files.Config
	pages := int64(opt.Pages) * model.PageBytes(config)
	rest := infer.PlanBytes(config, opt, s.rank) - pages
	s.plan.Add("pages", pages, fmt.Sprintf("keys and values of %d positions", opt.Pages*paged.PageSize), "lower --max-model-len, or the prompt and completion lengths")
	s.plan.Add("engine", rest, fmt.Sprintf("%d rows a step, logits", opt.MaxBatchedTokens), "")
	return opt
}

// planProgram adds what the process takes beside the arena.
func (s *session) planProgram(w launch.Working) {
	s.plan.AddProgram(s.source, s.backend.Threads(), launch.Held(), w)
}

// resident is the most memory that the process had so far.
func (s *session) resident() int64 { return launch.Resident(s.loaded.Arena.Peak()) }

// account fills in what was planned and what it came to.
func (s *session) account(sum *rl.Summary) {
	sum.PlannedBytes, sum.PeakBytes = s.plan.Total(), s.resident()
	sum.ArenaPlanned, sum.ArenaPeak = s.plan.Arena(), s.loaded.Arena.Peak()
}

// load completes the plan with what the command will keep in Go's heap, checks it against the
// machine, and loads the model.
func (s *session) load(c *console, w launch.Working) error {
	s.planProgram(w)
	if err := s.plan.Fit(s.budget); err != nil {
		s.plan.Write(c.talk, s.budget)
		return err
	}
	var err error
	s.loaded, err = s.source.Load(s.backend, s.plan.Arena(), false)
	return err
}

// start makes the engine.
func (s *session) start(opt infer.Options) error {
	var err error
	s.engine, err = infer.New(s.loaded.Model, s.source.Files.Tokenizer, opt)
	return err
}

// adapter is what was loaded, nil for the base.
func (s *session) adapter() *weights.Adapter { return s.loaded.Adapter }

// unload returns the engine and the model; the source stays open.
func (s *session) unload() {
	if s.engine != nil {
		s.engine.Close()
	}
	if s.loaded != nil {
		s.loaded.Close()
	}
	s.engine, s.loaded = nil, nil
}

// close returns everything in the opposite order.
func (s *session) close() {
	s.unload()
	if s.backend != nil {
		s.backend.Close()
	}
	s.source.Files.Close()
}

// maxLen is the length that a sequence may have.
func (o modelOptions) maxLen(s *session) int {
	if o.MaxModelLen > 0 {
		return o.MaxModelLen
	}
	return min(s.source.Files.Config.Context, 8192)
}

// sampling makes a session that is ready to sample or score seqs sequences at a time.
func (o modelOptions) sampling(c *console, use launch.Use, seqs int) (*session, error) {
	s, err := o.open(c, use, model.Options{})
	if err != nil {
		return nil, err
	}
	if err := o.prepare(c, s, seqs, o.maxLen(s)); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (o modelOptions) prepare(c *console, s *session, seqs, length int) error {
	if _, err := s.planAdapter(false); err != nil {
		return err
	}
	opt := s.planEngine(infer.Options{MaxModelLen: length, MaxSeqs: seqs, MaxBatchedTokens: max(256, seqs),
		Pages: paged.PagesFor(length) * seqs})
	if err := s.load(c, launch.Working{}); err != nil {
		return err
	}
	return s.start(opt)
}
