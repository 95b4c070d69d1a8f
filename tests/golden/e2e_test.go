package golden

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/model"
	"graft/rl"
	"graft/rl/dpo"
	"graft/rl/grpo"
	"graft/rl/sft"
	"graft/weights"
	"graft/weights/safetensors"
)

// wholeRun is a training run of TRL's trainers, file e2e/<name>.json.
type wholeRun struct {
	Model string
	Args  struct {
		BatchSize     int     `json:"per_device_train_batch_size"`
		Accumulation  int     `json:"gradient_accumulation_steps"`
		MaxSteps      int     `json:"max_steps"`
		LearningRate  float64 `json:"learning_rate"`
		Scheduler     string  `json:"lr_scheduler_type"`
		Warmup        int     `json:"warmup_steps"`
		MaxGradNorm   float64 `json:"max_grad_norm"`
		WeightDecay   float64 `json:"weight_decay"`
		Beta2         float64 `json:"adam_beta2"`
		MaxCompletion int     `json:"max_completion_length"`
		Generations   int     `json:"num_generations"`
		Temperature   float64
		Beta          float64
		Epsilon       float64
		EpsilonHigh   float64 `json:"epsilon_high"`
		BiasKL        bool    `json:"use_bias_correction_kl"`
		LossType      any     `json:"loss_type"`
		Level         string  `json:"importance_sampling_level"`
		ScaleRewards  string  `json:"scale_rewards"`
		NumIterations int     `json:"num_iterations"`
	}
	Generations []struct {
		Prompts     [][]int32 `json:"prompt_ids"`
		Completions [][]int32 `json:"completion_ids"`
		Row         []int
		Rewards     []float64
	}
	MicroBatches []struct {
		IDs            [][]int32 `json:"input_ids"`
		Labels         [][]int32
		Attention      [][]int `json:"attention_mask"`
		CompletionMask [][]int `json:"completion_mask"`
	} `json:"micro_batches"`
	Logs  []map[string]float64
	Final map[string]struct {
		Norm   float64
		Update float64 `json:"update_norm"`
		Probes [3]float64
	} `json:"final_params"`
}

func readRun(t *testing.T, name string) *wholeRun {
	var r wholeRun
	readJSON(t, filepath.Join(dir(t, "golden-hf/e2e"), name+".json"), &r)
	require.Len(t, r.Logs, r.Args.MaxSteps)
	return &r
}

func (r *wholeRun) optimizer() rl.AdamWOptions {
	o := rl.DefaultAdamW()
	o.Beta2, o.WeightDecay, o.MaxGradNorm = r.Args.Beta2, r.Args.WeightDecay, r.Args.MaxGradNorm
	return o
}

func (r *wholeRun) schedule() rl.ScheduleOptions {
	return rl.ScheduleOptions{Type: r.Args.Scheduler, LearningRate: r.Args.LearningRate, WarmupSteps: r.Args.Warmup, TotalSteps: r.Args.MaxSteps}
}

// trained is a policy under training, with what it was before.
type trained struct {
	policy *rl.Policy
	before map[string][]float32
}

// policy loads what the run trains: all of the model with a second copy as the reference, or the
// adapter of name-init on a frozen one.
func (r *wholeRun) policy(t *testing.T, name string, temperature float64, batches ...[]rl.Rollout) *trained {
	be := backend(t)
	folder := filepath.Join(dir(t, "golden-hf/models"), filepath.Base(r.Model))
	p := &rl.Policy{InvT: float32(1 / temperature)}
	lora := strings.HasSuffix(name, "-lora")
	m := load(t, be, folder, model.Options{Context: 64, Trained: !lora})
	if lora {
		ad, err := m.LoadAdapter(filepath.Join(dir(t, "golden-hf/e2e"), name+"-init"), 1, true)
		require.NoError(t, err)
		p.Adapter = ad
	} else {
		p.Reference = load(t, be, folder, model.Options{Context: 64})
	}
	out := &trained{policy: policyFor(t, m, p, model.KeepAll, batches...)}
	out.before = out.values(t)
	return out
}

// values reads every trained parameter by its checkpoint name.
func (p *trained) values(t *testing.T) map[string][]float32 {
	m := p.policy.Model
	out := map[string][]float32{}
	if ad := p.policy.Adapter; ad != nil {
		for _, pair := range ad.Pairs() {
			out["base_model.model."+pair.Name+".lora_A.weight"] = model.Floats(m.Backend(), pair.A)
			out["base_model.model."+pair.Name+".lora_B.weight"] = model.Floats(m.Backend(), pair.B)
		}
		return out
	}
	for _, l := range append([]*weights.Linear{m.Embed}, m.Linears...) {
		out[l.Name+".weight"] = model.Floats(m.Backend(), l.W)
	}
	for _, v := range m.Trained {
		if !v.Decay {
			out[v.Name] = slices.Clone(v.Value.F32())
		}
	}
	return out
}

// finish compares the final parameters: norms of values and updates, probes, and for adapters every
// entry.
func (p *trained) finish(t *testing.T, r *wholeRun, name string) {
	after := p.values(t)
	require.Len(t, after, len(r.Final))
	for param, want := range r.Final {
		param = strings.Replace(param, ".default.", ".", 1)
		got, was := after[param], p.before[param]
		require.NotEmpty(t, got, param)
		var norm, update float64
		for i, v := range got {
			norm += float64(v) * float64(v)
			update += math.Pow(float64(v)-float64(was[i]), 2)
		}
		require.InEpsilon(t, want.Norm, math.Sqrt(norm), 1e-4, param)
		require.InEpsilon(t, want.Update, math.Sqrt(update), 1e-2, param)
		for i, f := range []float64{0.37, 1.1, 2.9} {
			var probe float64
			for j, v := range got {
				probe += float64(v) * math.Cos(f*float64(j)+1)
			}
			require.InDelta(t, want.Probes[i], probe, 1e-2*want.Update, "%s probe %d", param, i)
		}
	}
	if p.policy.Adapter == nil {
		return
	}
	want, err := safetensors.Open(filepath.Join(dir(t, "golden-hf/e2e"), name+"-final", "adapter_model.safetensors"))
	require.NoError(t, err)
	defer want.Close()
	for param, got := range after {
		relative(t, want, param, got, 1e-2)
	}
}

// steps runs a trainer and compares each step's loss, gradient norm, rate and the figures given.
func (r *wholeRun) steps(t *testing.T, step func(context.Context) (rl.Stats, error), figures ...string) {
	for i, want := range r.Logs {
		got, err := step(t.Context())
		require.NoError(t, err)
		require.InDelta(t, want["loss"], got.Get("loss"), 1e-4, "loss of step %d", i)
		require.InEpsilon(t, want["grad_norm"], got.Get("grad_norm"), 1e-3, "gradient norm of step %d", i)
		require.InDelta(t, want["learning_rate"], got.Get("learning_rate"), 1e-9)
		for _, name := range figures {
			if v, ok := want[name]; ok {
				require.InDelta(t, v, got.Get(name), 2e-3*math.Abs(v)+1e-5, "%s of step %d", name, i)
			}
		}
	}
}

// fixedRollouts plays the recorded generations: prompts, sampler and rewarder of the GRPO runs.
type fixedRollouts struct {
	run  *wholeRun
	next int // generation batch
	eos  int32
}

func (f *fixedRollouts) Next(n int) ([]rl.Prompt, error) {
	if f.next == len(f.run.Generations) {
		return nil, fmt.Errorf("no generation %d", f.next)
	}
	var out []rl.Prompt
	for i := 0; i < len(f.run.Generations[f.next].Prompts); i += f.run.Args.Generations {
		out = append(out, rl.Prompt{IDs: f.run.Generations[f.next].Prompts[i]})
	}
	if len(out) != n {
		return nil, fmt.Errorf("%d prompts wanted, %d recorded", n, len(out))
	}
	return out, nil
}

func (f *fixedRollouts) Generate(_ context.Context, prompts []rl.Prompt, n, _ int) ([]rl.Rollout, error) {
	out := f.batch(f.next)
	f.next++
	return out, nil
}

func (f *fixedRollouts) batch(generation int) []rl.Rollout {
	g := &f.run.Generations[generation]
	var out []rl.Rollout
	for i, c := range g.Completions {
		out = append(out, rl.Rollout{Tokens: slices.Concat(g.Prompts[i], c), PromptLen: len(g.Prompts[i]),
			Group: i / f.run.Args.Generations, Sample: i % f.run.Args.Generations, Row: g.Row[i], Truncated: c[len(c)-1] != f.eos})
	}
	return out
}

func (f *fixedRollouts) Score(_ context.Context, rollouts []rl.Rollout) error {
	for i, r := range f.run.Generations[f.next-1].Rewards {
		rollouts[i].Rewards, rollouts[i].Reward, rollouts[i].Scored = []float64{r}, r, true
	}
	return nil
}

func TestWholeGRPO(t *testing.T) {
	for _, name := range []string{"grpo-dapo", "grpo-grpo", "grpo-iter2", "gspo", "grpo-lora"} {
		t.Run(name, func(t *testing.T) {
			r := readRun(t, name)
			a := r.Args
			o := grpo.DefaultOptions()
			o.LossType, o.Beta, o.Epsilon, o.EpsilonHigh, o.UseBiasCorrectionKL = a.LossType.(string), a.Beta, a.Epsilon, a.EpsilonHigh, a.BiasKL
			o.PerDeviceTrainBatchSize, o.GradientAccumulationSteps, o.NumGenerations = a.BatchSize, a.Accumulation, a.Generations
			o.NumIterations, o.MaxCompletionLength, o.Temperature = max(1, a.NumIterations), a.MaxCompletion, a.Temperature
			o.Optimizer, o.Schedule = r.optimizer(), r.schedule()
			o.RewardNames = []string{"reward"}
			if a.Level != "" {
				o.ImportanceSamplingLevel = a.Level
			}
			if a.ScaleRewards != "" {
				o.ScaleRewards = a.ScaleRewards
			}
			f := &fixedRollouts{run: r, eos: 2}
			var batches [][]rl.Rollout
			for g := range r.Generations {
				batches = append(batches, f.batch(g))
			}
			p := r.policy(t, name, a.Temperature, batches...)
			trainer, err := grpo.New(o, p.policy, f, f, f)
			require.NoError(t, err)
			// kl, entropy and clip ratios are means of micro-batch means there, over shuffled rows: not
			// comparable figure by figure.
			r.steps(t, trainer.Step, "reward", "reward_std", "rewards/reward/mean", "rewards/reward/std", "frac_reward_zero_std", "completions/mean_length",
				"completions/clipped_ratio", "completions/min_length", "completions/mean_terminated_length", "completions/max_terminated_length")
			p.finish(t, r, name)
		})
	}
}

// fixedFeed hands out recorded rows.
type fixedFeed[T any] struct{ rows []T }

func (f *fixedFeed[T]) Next(n int) ([]T, error) {
	if n > len(f.rows) {
		return nil, fmt.Errorf("%d rows wanted, %d left", n, len(f.rows))
	}
	out := f.rows[:n]
	f.rows = f.rows[n:]
	return out, nil
}

// example cuts padding; learn tells which tokens carry loss: a suffix of the row.
func example(ids []int32, attention []int, learn func(i int) bool) rl.Example {
	e := rl.Example{}
	for i := range ids {
		if attention[i] == 1 {
			e.Tokens = append(e.Tokens, ids[i])
			if !learn(i) {
				e.PromptLen = len(e.Tokens)
			}
		}
	}
	return e
}

func TestWholeDPO(t *testing.T) {
	for _, name := range []string{"dpo", "dpo-ipo", "dpo-lora"} {
		t.Run(name, func(t *testing.T) {
			r := readRun(t, name)
			o := dpo.DefaultOptions()
			o.Beta, o.LossType = r.Args.Beta, nil
			for _, kind := range r.Args.LossType.([]any) {
				o.LossType = append(o.LossType, kind.(string))
			}
			o.PerDeviceTrainBatchSize, o.GradientAccumulationSteps = r.Args.BatchSize, r.Args.Accumulation
			o.Optimizer, o.Schedule = r.optimizer(), r.schedule()
			feed := &fixedFeed[rl.Preference]{}
			var batches [][]rl.Rollout
			for _, b := range r.MicroBatches {
				n := len(b.IDs) / 2 // chosen rows, then rejected ones
				row := func(i int) rl.Example {
					return example(b.IDs[i], b.Attention[i], func(j int) bool { return b.CompletionMask[i][j] == 1 })
				}
				var batch []rl.Rollout
				for i := range n {
					p := rl.Preference{Chosen: row(i), Rejected: row(n + i)}
					feed.rows = append(feed.rows, p)
					batch = append(batch, p.Chosen.Rollout(i, 0), p.Rejected.Rollout(i, 1))
				}
				batches = append(batches, batch)
			}
			p := r.policy(t, name, 1, batches...)
			trainer, err := dpo.New(o, p.policy, feed)
			require.NoError(t, err)
			r.steps(t, trainer.Step, "entropy", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected")
			p.finish(t, r, name)
		})
	}
}

func TestWholeSFT(t *testing.T) {
	for _, name := range []string{"sft", "sft-dft"} {
		t.Run(name, func(t *testing.T) {
			r := readRun(t, name)
			o := sft.DefaultOptions()
			o.LossType = r.Args.LossType.(string)
			o.PerDeviceTrainBatchSize, o.GradientAccumulationSteps = r.Args.BatchSize, r.Args.Accumulation
			o.Optimizer, o.Schedule = r.optimizer(), r.schedule()
			feed := &fixedFeed[rl.Example]{}
			var batches [][]rl.Rollout
			for _, b := range r.MicroBatches {
				var batch []rl.Rollout
				for i := range b.IDs {
					e := example(b.IDs[i], b.Attention[i], func(j int) bool { return b.Labels[i][j] != -100 })
					feed.rows = append(feed.rows, e)
					batch = append(batch, e.Rollout(i, 0))
				}
				batches = append(batches, batch)
			}
			p := r.policy(t, name, 1, batches...)
			trainer, err := sft.New(o, p.policy, feed)
			require.NoError(t, err)
			r.steps(t, trainer.Step, "entropy")
			p.finish(t, r, name)
		})
	}
}
