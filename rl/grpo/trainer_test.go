package grpo

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels/cpu"
	"graft/kernels/rng"
	"graft/model"
	"graft/rl"
	"graft/weights"
)

// pool hands out pages from 0; a policy has one batch at a time.
type pool int

func (p pool) Take(n int) ([]int32, error) {
	if n > int(p) {
		return nil, errors.New("too few pages")
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out, nil
}

func (p pool) Give([]int32) {}

// world is a small model with an adapter, and prompts, a sampler and rewards around it. Tokens are
// drawn at random, not from the model; their log-probs are the model's own.
type world struct {
	t       *testing.T
	policy  *rl.Policy
	next    int
	calls   []int // the step of each Generate
	damage  func(rollouts []rl.Rollout)
	rewards error
	cut     bool // every completion is ended by length
	unknown bool // the sampler reports no log-probs
}

const maxPrompt = 20

func newWorld(t *testing.T, o *Options, threads int) *world {
	path := filepath.Join("..", "..", "tests", "testdata", "golden-hf", "models", "llama-tied")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	be := cpu.New(cpu.Options{Threads: threads})
	arena := weights.NewArena(be, 0)
	t.Cleanup(func() { arena.Close(); require.NoError(t, be.Close()) })
	files, err := model.Open(path, model.Options{Context: 64})
	require.NoError(t, err)
	defer files.Close()
	m, err := files.Load(arena)
	require.NoError(t, err)
	ad, err := m.NewAdapter(1, weights.AdapterConfig{R: 4, Alpha: 8, TargetModules: []string{"all-linear"}}, 5, true)
	require.NoError(t, err)
	require.NoError(t, o.Validate())
	size := o.PolicySize(maxPrompt)
	size.Keep, size.Threads = model.KeepAll, threads
	pages, err := model.NewPages(arena, &m.Config, size.Pages)
	require.NoError(t, err)
	p := &rl.Policy{Model: m, Adapter: ad, Pages: pages, Pool: pool(size.Pages), InvT: float32(1 / o.Temperature)}
	require.NoError(t, p.Allocate(size))
	return &world{t: t, policy: p}
}

func (w *world) Next(n int) ([]rl.Prompt, error) {
	src := rng.New(3, "prompts")
	var out []rl.Prompt
	for range n {
		ids := make([]int32, 3+w.next%(maxPrompt-2))
		for i := range ids {
			ids[i] = int32(3 + src.Below(290, uint32(w.next), uint32(i), 0))
		}
		out = append(out, rl.Prompt{IDs: ids, Row: w.next})
		w.next++
	}
	return out, nil
}

func (w *world) Generate(_ context.Context, prompts []rl.Prompt, n, step int) ([]rl.Rollout, error) {
	w.calls = append(w.calls, step)
	src := rng.New(4, "completions")
	var out []rl.Rollout
	for g, p := range prompts {
		group := make([]rl.Rollout, n)
		for i := range group {
			tokens := slices.Clone(p.IDs)
			for j := range 1 + src.Below(8, uint32(p.Row), uint32(i), 99) {
				tokens = append(tokens, int32(3+src.Below(290, uint32(p.Row), uint32(i), j)))
			}
			group[i] = rl.Rollout{Tokens: tokens, PromptLen: len(p.IDs), Group: g, Sample: i, Row: p.Row, Version: w.policy.Version(), Truncated: w.cut || i == 1}
			logp, _, err := w.policy.Score(group[i : i+1]) // alone: the trainer's batches must agree
			if err != nil {
				return nil, err
			}
			if !w.unknown {
				group[i].LogP = logp
			}
		}
		out = append(out, group...)
	}
	if w.damage != nil {
		w.damage(out)
	}
	return out, nil
}

func (w *world) Score(_ context.Context, rollouts []rl.Rollout) error {
	for i := range rollouts {
		r := &rollouts[i]
		r.Reward, r.Scored = float64(r.Tokens[len(r.Tokens)-1]%7), true
		r.Rewards = []float64{r.Reward}
	}
	return w.rewards
}

func (w *world) trainer(o Options) *Trainer {
	tr, err := New(o, w.policy, w, w, w)
	require.NoError(w.t, err)
	return tr
}

func (w *world) hash() string { return w.policy.Model.HashAdapter(w.policy.Adapter) }

func small() Options {
	o := DefaultOptions()
	o.NumGenerations, o.PerDeviceTrainBatchSize, o.MaxCompletionLength = 4, 8, 8
	o.Schedule.LearningRate, o.Schedule.TotalSteps = 0.01, 20
	return o
}

func (w *world) run(tr *Trainer, steps int) []rl.Stats {
	var out []rl.Stats
	for range steps {
		s, err := tr.Step(w.t.Context())
		require.NoError(w.t, err)
		require.False(w.t, math.IsNaN(s.Get("loss")))
		out = append(out, s)
	}
	return out
}

// TestReuse: a generation batch feeds steps_per_generation/K·num_iterations steps; the sampler's
// log-probs are the old ones, and those computed for the fresh batch have the same bits.
func TestReuse(t *testing.T) {
	o := small()
	o.Beta, o.PerDeviceTrainBatchSize, o.StepsPerGeneration, o.NumIterations = 0.1, 4, 2, 2
	w := newWorld(t, &o, 2)
	tr := w.trainer(o)
	require.Equal(t, 4, o.StepsPerBatch())
	first := w.hash()
	stats := w.run(tr, 9)
	require.NotEqual(t, first, w.hash())
	require.Equal(t, []int{0, 4, 8}, w.calls)
	require.Equal(t, 9, tr.Steps())
	require.Equal(t, uint64(10), w.policy.Version())
	for i, s := range stats {
		fresh := i%4 == 0
		require.Equal(t, fresh, s.Get("mismatch_compared") > 0, "only a fresh batch is what the policy sampled")
		require.Zero(t, s.Get("mismatch_tokens"))
		require.Equal(t, fresh, s.Get("tokens_sampled") > 0)
		require.NotZero(t, s.Get("grad_norm"))
		if fresh {
			require.Zero(t, s.Get("clip_ratio/region_mean"))
			require.Equal(t, s.Get("mismatch_compared"), s.Get("tokens_trained"))
		}
	}
	// Two steps see the batch once, two see it again.
	require.Equal(t, stats[0].Get("tokens_sampled"), stats[0].Get("tokens_trained")+stats[1].Get("tokens_trained"))
	require.NotEqual(t, stats[0].Get("tokens_trained"), stats[1].Get("tokens_trained"))
	require.Equal(t, stats[0].Get("tokens_trained"), stats[2].Get("tokens_trained"))
	require.Zero(t, stats[0].Get("kl"), "B is 0: the policy is its reference")
	require.NotZero(t, stats[1].Get("kl"))
	require.False(t, tr.Idle())
	require.Len(t, tr.Batch(), 8)
}

// TestMismatchIsSeen: one bit of one log-prob.
// TestProgress: the watcher sees every micro-batch, forwards that freeze log-probs included, and a
// step ends with all of what it announced.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(o *Options, w *world)
		toScore int // of the first step; the second of a batch freezes nothing
	}{
		"plain":      {func(o *Options, w *world) {}, 16},
		"reference":  {func(o *Options, w *world) { o.Beta = 0.1 }, 32 + 16},
		"unknown":    {func(o *Options, w *world) { w.unknown = true }, 32 + 16},
		"all masked": {func(o *Options, w *world) { o.MaskTruncatedCompletions, w.cut = true, true }, 16},
	} {
		o := small()
		o.GradientAccumulationSteps, o.StepsPerGeneration = 2, 4
		c.change(&o, &world{})
		w := newWorld(t, &o, 1)
		c.change(&o, w)
		tr := w.trainer(o)
		n, all := o.PerDeviceTrainBatchSize*2, o.PerDeviceTrainBatchSize*4
		require.Equal(t, []int{16, 32}, []int{n, all})
		for step := range 2 {
			var seen []rl.Progress
			tr.Watch = func(p rl.Progress) { seen = append(seen, p) }
			_, err := tr.Step(context.Background())
			require.NoError(t, err, name)
			want, sampled := c.toScore, all
			if step == 1 {
				want, sampled = n, 0
			}
			last := seen[len(seen)-1]
			require.Equal(t, rl.Progress{Sampled: sampled, Scored: want, ToScore: want, Trained: n, ToTrain: n}, last, "%s, step %d", name, step)
			require.Equal(t, rl.Progress{Sampled: sampled}, seen[0], name)
			middle := false
			for i := 1; i < len(seen); i++ {
				require.GreaterOrEqual(t, seen[i].Scored, seen[i-1].Scored)
				require.GreaterOrEqual(t, seen[i].Trained, seen[i-1].Trained)
				require.LessOrEqual(t, seen[i].Scored, seen[i].ToScore)
				middle = middle || seen[i].Trained == o.PerDeviceTrainBatchSize
			}
			require.True(t, middle, "%s: told between two micro-batches", name)
		}
	}
}

func TestMismatchIsSeen(t *testing.T) {
	o := small()
	w := newWorld(t, &o, 1)
	w.damage = func(r []rl.Rollout) {
		r[2].LogP[0] = math.Float32frombits(math.Float32bits(r[2].LogP[0]) ^ 1)
	}
	s := w.run(w.trainer(o), 1)[0]
	require.Equal(t, 1.0, s.Get("mismatch_tokens"))
	require.Greater(t, s.Get("mismatch_max"), 0.0)
	require.Less(t, s.Get("mismatch_max"), 1e-5)
}

// TestSameBits: neither threads nor micro-batches of whole groups change a bit of a dapo run.
func TestSameBits(t *testing.T) {
	var hashes []string
	for _, c := range [][3]int{{1, 8, 1}, {2, 8, 1}, {2, 4, 2}} {
		o := small()
		o.Beta, o.EntropyCoef = 0.05, 0
		o.PerDeviceTrainBatchSize, o.GradientAccumulationSteps = c[1], c[2]
		w := newWorld(t, &o, c[0])
		w.run(w.trainer(o), 3)
		hashes = append(hashes, w.hash())
	}
	require.Equal(t, hashes[0], hashes[1], "threads")
	require.Equal(t, hashes[0], hashes[2], "micro-batches")
}

// TestResume: parameters and moments are all there is at the end of a batch.
func TestResume(t *testing.T) {
	o := small()
	a := newWorld(t, &o, 2)
	whole := a.trainer(o)
	a.run(whole, 3)
	require.True(t, whole.Idle())
	var moments bytes.Buffer
	require.NoError(t, whole.Optimizer().Export(&moments))

	b := newWorld(t, &o, 2)
	b.policy.Adapter.CopyParams(a.policy.Adapter)
	b.next = a.next
	resumed := b.trainer(o)
	require.NoError(t, resumed.Optimizer().Import(&moments))
	a.run(whole, 3)
	b.run(resumed, 3)
	require.Equal(t, a.hash(), b.hash())
	require.Equal(t, []int{3, 4, 5}, b.calls)
}

// TestUnknownLogProbs: given completions are scored once before they are trained on twice, which
// changes nothing.
func TestUnknownLogProbs(t *testing.T) {
	var hashes []string
	for _, unknown := range []bool{false, true} {
		o := small()
		o.NumIterations = 2
		w := newWorld(t, &o, 2)
		w.unknown = unknown
		stats := w.run(w.trainer(o), 4)
		require.Equal(t, unknown, stats[0].Get("mismatch_compared") == 0)
		hashes = append(hashes, w.hash())
	}
	require.Equal(t, hashes[0], hashes[1])
}

// TestCorrection: with the product's own sampler the importance sampling correction is exactly 1.
func TestCorrection(t *testing.T) {
	var hashes []string
	for _, on := range []bool{false, true} {
		o := small()
		o.ISCorrection = on
		w := newWorld(t, &o, 2)
		s := w.run(w.trainer(o), 2)[1]
		if on {
			require.Equal(t, 1.0, s.Get("sampling/importance_sampling_ratio/min"))
			require.Equal(t, 1.0, s.Get("sampling/importance_sampling_ratio/max"))
		}
		hashes = append(hashes, w.hash())
	}
	require.Equal(t, hashes[0], hashes[1])
}

func TestMaskTruncated(t *testing.T) {
	o := small()
	o.MaskTruncatedCompletions, o.Beta = true, 0.1
	w := newWorld(t, &o, 1)
	s := w.run(w.trainer(o), 1)[0]
	require.Less(t, s.Get("tokens_trained"), s.Get("tokens_sampled"))
	require.Equal(t, 0.25, s.Get("completions/clipped_ratio"))

	w.cut = true
	before := w.hash()
	tr := w.trainer(o)
	s = w.run(tr, 1)[0]
	require.Zero(t, s.Get("loss"))
	require.Zero(t, s.Get("grad_norm"))
	require.Zero(t, s.Get("tokens_trained"))
	require.Equal(t, 1.0, s.Get("completions/clipped_ratio"))
	require.Equal(t, before, w.hash())
}

// TestFailuresChangeNothing: whatever goes wrong, the parameters are as they were and the next step
// begins with a new batch.
func TestFailuresChangeNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(w *world, tr *Trainer) context.Context
		want   string
	}{
		{"stale", func(w *world, _ *Trainer) context.Context {
			w.damage = func(r []rl.Rollout) { r[3].Version = 0 }
			return w.t.Context()
		}, "was sampled by version 0 of the policy, which is at 1"},
		{"missing", func(w *world, _ *Trainer) context.Context {
			w.damage = func(r []rl.Rollout) { r[3].Group = 7 }
			return w.t.Context()
		}, "rollouts instead of num_generations 4"},
		{"long", func(w *world, _ *Trainer) context.Context {
			w.damage = func(r []rl.Rollout) { r[3].Tokens, r[3].LogP = make([]int32, 60), nil }
			return w.t.Context()
		}, "max_completion_length is 8"},
		{"rewards", func(w *world, _ *Trainer) context.Context {
			w.rewards = errors.New("judge is down")
			return w.t.Context()
		}, "judge is down"},
		{"diverged", func(w *world, _ *Trainer) context.Context {
			w.damage = func(r []rl.Rollout) { r[0].LogP[0] = float32(math.Inf(-1)) }
			return w.t.Context()
		}, "gradient norm of step 1"},
		{"cancelled", func(w *world, tr *Trainer) context.Context {
			ctx, cancel := context.WithCancel(w.t.Context())
			tr.Exclusive = func(_ context.Context, f func() error) error { cancel(); return f() }
			return ctx
		}, "context canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := small()
			w := newWorld(t, &o, 1)
			tr := w.trainer(o)
			before := w.hash()
			_, err := tr.Step(c.damage(w, tr))
			require.ErrorContains(t, err, c.want)
			require.Equal(t, before, w.hash())
			require.Zero(t, tr.Steps())
			w.damage, w.rewards, tr.Exclusive = nil, nil, nil
			w.run(tr, 1)
			require.Len(t, w.calls, 2)
		})
	}
}

func TestNewRefuses(t *testing.T) {
	o := small()
	w := newWorld(t, &o, 1)
	used := w.policy.Model.Arena.Used()
	o.Temperature = 0.7
	_, err := New(o, w.policy, w, w, w)
	require.ErrorContains(t, err, "the options say temperature 0.7")
	o = small()
	o.Schedule.TotalSteps = 0
	_, err = New(o, w.policy, w, w, w)
	require.ErrorContains(t, err, "over 0 steps")
	o = small()
	o.Beta = 0.1
	w.policy.Adapter = nil
	_, err = New(o, w.policy, w, w, w)
	require.ErrorContains(t, err, "needs a reference policy")
	require.Equal(t, used, w.policy.Model.Arena.Used())
}
