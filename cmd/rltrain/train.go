package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"graft/cmd/internal/launch"
	"graft/infer"
	"graft/infer/paged"
	"graft/model"
	"graft/rl"
	"graft/weights"
)

// trainer is what grpo, dpo and sft have in common.
type trainer interface {
	Step(ctx context.Context) (rl.Stats, error)
	Steps() int
	Optimizer() *rl.AdamW
}

// training is a run from plan to summary; the commands fill in what differs.
type training struct {
	c       *console
	command string
	model   modelOptions
	lora    loraOptions
	optim   optimizerOptions
	run     runOptions
	figure  string // what the curve shows: "reward", "loss", "rewards/accuracies"
	// needsReference: full fine-tuning compares with the model as it was.
	needsReference bool
	// fromAdapter: the reference is the adapter that training goes on from, not the model without one.
	fromAdapter bool
	sampled     bool // the run samples: its summary has rewards, its lines the mismatch

	session *session
	sizes   sizes
	keep    model.Keep
	pages   int
	rewards []string    // names
	held    *rl.Dataset // rows that were held out of the dataset; nil: none

	resume  *rl.Checkpoint
	log     *rl.RunLog
	adapter *weights.Adapter
	policy  *rl.Policy
	kv      *model.Pages // without an engine
	trainer trainer
	batch   func() []rl.Rollout // that the last step sampled; nil: none to log
	idle    func() bool         // no batch is half used, so the run can be saved
	cursor  func() rl.Cursor
	seek    func(rl.Cursor) error

	// early ends with the first signal: it is for all that comes before the first step.
	early context.Context
	begun func() // ends that time

	learn   phase
	total   totals
	options map[string]string // that decide the result
	base    string            // fingerprint of the model
	extra   map[string]string // what else checkpoints keep
}

// fit decides how activations are kept and how many pages there are: the fastest that the memory
// holds. planned engine options are nil for runs that do not sample.
func (t *training) fit(engine *infer.Options) (*infer.Options, error) {
	t.session.planProgram(t.working())
	base := t.session.plan
	var last launch.Plan
	for _, keep := range t.optim.keeps() {
		for _, pages := range []int{max(t.sizes.pages, t.sizes.least), t.sizes.least} {
			t.session.plan = launch.Plan{Items: slices.Clone(base.Items), Before: base.Before}
			t.keep, t.pages = keep, pages
			opt := t.plan(engine)
			if t.session.plan.Fit(t.session.budget) == nil {
				return opt, nil
			}
			last = t.session.plan
		}
	}
	if t.run.DryRun && t.run.JSON {
		return nil, printPlan(t.c, t.session, true)
	}
	last.Write(t.c.talk, t.session.budget)
	return nil, last.Fit(t.session.budget)
}

// plan adds what training takes.
func (t *training) plan(engine *infer.Options) *infer.Options {
	p, s, c := &t.session.plan, &t.sizes, &t.session.source.Files.Config
	if s.adapter > 0 {
		p.Add("adapter", s.adapter, t.lora.describe(t.c), "lower --lora-r or name fewer --target-modules")
		p.Add("gradients", s.adapter, "of the adapter", "")
	}
	p.Add("moments", rl.AdamWBytes(s.lengths...), "two a parameter", "")
	reference := "the model as it was"
	if t.fromAdapter {
		reference = "the adapter as it was"
	}
	p.Add("reference", s.reference, reference, "set --beta 0 (grpo), or train a new adapter")
	size := s.policy
	size.Keep, size.Threads = t.keep, t.session.backend.Threads()
	what := fmt.Sprintf("%s: %d rows, keeping %s", s.rows, size.Rows, map[model.Keep]string{model.KeepAll: "all layers", model.KeepInputs: "each layer's input"}[t.keep])
	less := "lower --per-device-train-batch-size (and raise --gradient-accumulation-steps), or shorten prompts and completions"
	if t.keep == model.KeepAll {
		less = "set --gradient-checkpointing, or " + less
	}
	p.Add("activations", rl.PolicyBytes(c, size, s.rank), what, less)
	t.session.rank = max(t.session.rank, s.rank)
	if engine == nil {
		p.Add("pages", int64(t.pages)*model.PageBytes(c), fmt.Sprintf("keys and values of %d positions", t.pages*paged.PageSize), "")
		return nil
	}
	opt := *engine
	opt.Pages = t.pages
	opt = t.session.planEngine(opt)
	return &opt
}

// working is what training keeps in Go's heap.
func (t *training) working() launch.Working {
	w := launch.Working{What: "log, checkpoints"}
	// One after the other: the log is written, then the adapter, which is held as it will lie in its file.
	w.Bytes = max(logBytes(t.sizes.logged, t.sizes.length), t.sizes.adapter) + batchBytes*int64(t.sizes.sequences)*int64(t.sizes.length)
	if t.lora.Full {
		w.Bytes += launch.FullWorking(t.session.source.Files)
		w.What += ", the largest matrix on its way to the file"
		w.Less = "train an adapter instead of the whole model"
	}
	return w
}

// trained describes the parameters before they exist.
func (t *training) trained() error {
	files, be := t.session.source.Files, t.session.backend
	if t.lora.Full {
		var err error
		if t.sizes.lengths, err = launch.TrainedLengths(files, be); err == nil && t.needsReference {
			t.sizes.reference, err = launch.ReferenceBytes(t.session.source, be)
		}
		return err
	}
	var shape launch.Shape
	var err error
	switch {
	case t.resume != nil:
		shape, err = launch.AdapterFileShape(filepath.Join(t.resume.Path, "adapter"), be)
	case t.session.source.Adapter != "":
		shape, err = launch.AdapterFileShape(t.session.source.Adapter, be)
	default:
		if shape, err = launch.AdapterShape(&files.Config, be, t.lora.config("")); err != nil {
			err = errUsage{err}
		}
	}
	if err != nil {
		return err
	}
	if t.fromAdapter = t.beganWithAdapter(); t.fromAdapter {
		t.sizes.reference = shape.Params
	}
	t.sizes.adapter, t.sizes.rank, t.sizes.lengths = shape.Params, shape.Cols, []int{int(shape.Params / 4)}
	return nil
}

// load brings the model, the adapter and the policy into memory.
func (t *training) load(engine *infer.Options) error {
	s := t.session
	if err := s.plan.Write(t.c.talk, s.budget); err != nil {
		return err
	}
	source := *s.source
	source.Adapter = "" // loaded below, for training
	var err error
	if s.loaded, err = source.Load(s.backend, s.plan.Arena(), false); err != nil {
		return err
	}
	m := s.loaded.Model
	if err := t.makeAdapter(m); err != nil {
		return err
	}
	t.policy = &rl.Policy{Model: m, Adapter: t.adapter, InvT: 1}
	if t.lora.Full && t.resume != nil {
		if err := t.resume.LoadTrained(m); err != nil {
			return err
		}
	}
	if t.sizes.reference > 0 {
		if err := t.loadReference(); err != nil {
			return err
		}
	}
	if engine != nil {
		if err := s.start(*engine); err != nil {
			return err
		}
		t.policy.Pages, t.policy.Pool = s.engine.Pages(), s.engine.Pool()
	} else {
		if t.kv, err = model.NewPages(m.Arena, &m.Config, t.pages); err != nil {
			return err
		}
		t.policy.Pages, t.policy.Pool = t.kv, paged.NewPool(t.pages)
	}
	size := t.sizes.policy
	size.Keep, size.Threads = t.keep, s.backend.Threads()
	return t.policy.Allocate(size)
}

// referencePart is where a run's folder keeps the adapter that it went on from, if that is what it is
// held to: a resumed run needs it, wherever it came from.
const referencePart = "reference"

// beganWithAdapter tells whether the run is held to an adapter that it went on from.
func (t *training) beganWithAdapter() bool {
	if t.lora.Full || t.command != "dpo" {
		return false
	}
	if t.resume != nil {
		return exists(filepath.Join(filepath.Dir(t.resume.Path), referencePart))
	}
	return t.session.source.Adapter != ""
}

// loadReference brings what the policy is held to into memory.
func (t *training) loadReference() (err error) {
	s, p := t.session, t.policy
	if !t.fromAdapter {
		p.Reference, err = launch.Reference(s.source, s.loaded.Arena)
		return err
	}
	kept, from := filepath.Join(t.log.Dir(), referencePart), s.source.Adapter
	if t.resume != nil {
		from = kept
	}
	if p.ReferenceAdapter, err = p.Model.LoadAdapter(from, launch.AdapterID+1, false); err != nil || t.resume != nil {
		return err
	}
	return p.Model.SavePEFT(p.ReferenceAdapter, kept)
}

func (t *training) makeAdapter(m *model.Model) (err error) {
	switch {
	case t.lora.Full:
	case t.resume != nil:
		t.adapter, err = t.resume.LoadAdapter(m, launch.AdapterID)
	case t.session.source.Adapter != "":
		t.adapter, err = m.LoadAdapter(t.session.source.Adapter, launch.AdapterID, true)
	default:
		t.adapter, err = m.NewAdapter(launch.AdapterID, t.lora.config(t.session.source.Model), t.run.Seed, true)
	}
	return err
}

// loopSteps runs the steps that are left, with log, checkpoints and progress. It returns errStopped
// after a signal.
func (t *training) loopSteps(ctx context.Context) error {
	t.begun()
	t.c.room = t.room
	t.c.stop.promise("stops after this step and saves a checkpoint; the same again aborts")
	defer t.c.stop.promise("finishing; the same again aborts")
	for t.trainer.Steps() < t.optim.MaxSteps {
		if t.c.stop.wanted() && t.total.saved == t.trainer.Steps() { // before the first step
			return errStopped{t.log.Dir()}
		}
		begin := time.Now()
		stats, err := t.step(ctx)
		if err != nil {
			return t.explain(err)
		}
		stats.Set("seconds", time.Since(begin).Seconds())
		t.total.add(stats, t.figure, time.Since(begin))
		done := t.trainer.Steps()
		if err := t.record(done, stats); err != nil {
			return err
		}
		t.show(done, stats, time.Since(begin))
		if n := stats.Get("mismatch_tokens"); n > 0 {
			return fmt.Errorf("step %d: the trainer's log-probs differ from the sampler's at %.0f of %.0f tokens, by up to %g; they must be equal, or training learns from the wrong numbers. Run rltrain doctor, and report what it says",
				done, n, stats.Get("mismatch_compared"), stats.Get("mismatch_max"))
		}
		stop := t.c.stop.wanted()
		if stop && !t.idle() {
			t.c.talk.say("stopping: the batch under way is used up first")
			continue
		}
		if done < t.optim.MaxSteps && t.idle() && (stop || t.run.SaveSteps > 0 && t.due(done)) {
			if err := t.save(ctx); err != nil {
				return err
			}
		}
		if stop && done < t.optim.MaxSteps {
			return errStopped{t.log.Dir()}
		}
	}
	return t.save(ctx)
}

// due tells whether a checkpoint is wanted: at the first idle step at or behind each multiple.
func (t *training) due(done int) bool {
	return done/t.run.SaveSteps > t.total.saved/t.run.SaveSteps
}

// step is the trainer's, with a status line while it works.
func (t *training) step(ctx context.Context) (rl.Stats, error) {
	what := fmt.Sprintf("step %d/%d", t.trainer.Steps()+1, t.optim.MaxSteps)
	end := func() {}
	if t.session.engine == nil {
		t.learn.begin()
		end = t.c.talk.every(func() string { return t.learn.line(what) })
	} else if t.c.talk.screen {
		sampling := sampled(t.session.engine, what, t.sizes.sequences)
		end = t.c.talk.every(func() string {
			switch n := t.learn.reached().Sampled; {
			case t.learn.running():
				return t.learn.line(what)
			case n > 0:
				return fmt.Sprintf("%s sampled %d/%d, the rewards are at it", what, n, n)
			}
			return sampling()
		})
	}
	defer end()
	stats, err := t.trainer.Step(ctx)
	t.learn.end()
	return stats, err
}

// stoppedEarly tells how to go on with a run that a signal ended before its first step: its folder
// is there, and resuming begins again.
func (t *training) stoppedEarly(err error) error {
	if errors.Is(err, context.Canceled) && t.c.stop.wanted() && !t.c.stop.aborted() {
		return errStopped{t.log.Dir()}
	}
	return err
}

// explain adds how to go on to a step's error.
func (t *training) explain(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	if diverged(err) && t.trainer.Steps() > 0 { // before the first step nothing has moved: the model is at fault
		return fmt.Errorf("step %d: %w\n%s", t.trainer.Steps()+1, err, t.divergedText())
	}
	kept := "nothing is lost"
	if t.trainer.Steps() > 0 {
		kept = "the steps before are kept"
	}
	return fmt.Errorf("step %d: %w\n%s; once the cause is gone: %s", t.trainer.Steps()+1, err, kept, resumeLine(t.log.Dir()))
}

// record appends the step to the run's log.
func (t *training) record(done int, stats rl.Stats) error {
	entry := rl.StepLog{Step: done, Seed: t.run.Seed, Time: time.Now(), Stats: stats, Version: t.policy.Version() - 1}
	if _, fresh := stats.Values["tokens_sampled"]; fresh && t.batch != nil {
		entry.Rollouts = t.batch()
	}
	return t.log.Step(entry)
}

// save writes a checkpoint.
func (t *training) save(ctx context.Context) error {
	offsets, err := t.log.Offsets()
	if err != nil {
		return err
	}
	state := rl.CheckpointState{Step: t.trainer.Steps(), Version: t.policy.Version(), Cursor: t.cursor(), Counter: t.total.counters(),
		Log: offsets, Options: t.options, Base: t.base, Layout: rl.LayoutOf(t.session.backend),
		Precision: t.session.loaded.Model.Precision.String(), Extra: t.extra}
	write := func() error {
		_, err := rl.SaveCheckpoint(t.log.Dir(), state, t.policy.Part(), rl.OptimizerPart(t.trainer.Optimizer()))
		return err
	}
	if t.session.engine != nil {
		err = t.session.engine.Exclusive(ctx, write)
	} else {
		err = write()
	}
	if err != nil {
		return err
	}
	t.total.saved = state.Step
	return rl.PruneCheckpoints(t.log.Dir(), t.run.SaveTotalLimit)
}

// restore goes on where the checkpoint stopped.
func (t *training) restore() error {
	c := t.resume
	if err := c.LoadOptimizer(t.trainer.Optimizer()); err != nil {
		return err
	}
	if t.trainer.Steps() != c.State.Step {
		return fmt.Errorf("%s: the moments are of step %d, the state of step %d", c.Path, t.trainer.Steps(), c.State.Step)
	}
	t.total.restore(c.State.Counter)
	t.total.saved = c.State.Step
	return t.seek(c.State.Cursor)
}

// finish writes the result and the summary, and says what to do next.
func (t *training) finish(evalAfter *float64) error {
	m, dir := t.session.loaded.Model, t.log.Dir()
	hash := ""
	if t.adapter != nil {
		hash = m.HashAdapter(t.adapter)
		if err := m.SavePEFT(t.adapter, filepath.Join(dir, "adapter")); err != nil {
			return err
		}
	} else {
		hash = m.HashTrained()
		if err := launch.SaveModel(t.session.source, m, filepath.Join(dir, launch.ModelFile)); err != nil {
			return err
		}
	}
	sum := t.total.summary(t.trainer.Steps(), t.sampled)
	sum.EvalAfter, sum.AdapterSHA256, sum.Precision = evalAfter, hash, m.Precision.String()
	t.session.account(&sum)
	if t.session.engine != nil {
		sum.BytesSynced = int64(t.session.engine.Stats().BytesCopied)
	}
	if err := t.log.WriteSummary(sum); err != nil {
		return err
	}
	if t.run.JSON {
		return json.NewEncoder(t.c.out).Encode(sum)
	}
	return nil
}

func sized(n int64) launch.Bytes { return launch.Bytes(n) }

// close returns everything and leaves the log whole.
func (t *training) close() error {
	var err error
	if t.log != nil {
		err = t.log.Close()
	}
	if t.session != nil {
		t.session.close()
	}
	return err
}
