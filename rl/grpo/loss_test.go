package grpo

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels/rng"
	"graft/rl"
)

// worked is the example of two completions that was computed by hand from the formulas.
func worked() ([]rl.Rollout, []float32) {
	row := func(n int, old, ref, smp []float32, reward float64) rl.Rollout {
		return rl.Rollout{Tokens: make([]int32, 1+n), PromptLen: 1, OldLogP: old, RefLogP: ref, LogP: smp,
			Rewards: []float64{reward}, Reward: reward, Scored: true}
	}
	return []rl.Rollout{
		row(3, []float32{-.6, -.9, -.7}, []float32{-.55, -1.1, -.4}, []float32{-.62, -.88, -.75}, 1),
		row(2, []float32{-.2, -.8}, []float32{-.9, -.35}, []float32{-.25, -.7}, 0),
	}, []float32{-.5, -1, -.2, -.7, -.3}
}

func TestWorkedExample(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(o *Options)
		want   float64
	}{
		{"grpo", func(o *Options) { o.LossType = GRPO }, 0.04513927},
		{"grpo kl", func(o *Options) { o.LossType, o.Beta = GRPO, 0.04 }, 0.04550419},
		{"grpo delta", func(o *Options) { o.LossType, o.Delta = GRPO, 1.5 }, 0.01885253},
		{"bnpo", func(o *Options) { o.LossType = BNPO }, -0.11895913},
		{"dapo", func(o *Options) {}, -0.11895913},
		{"dapo kl", func(o *Options) { o.Beta = 0.04 }, -0.11860107},
		{"dapo delta", func(o *Options) { o.Delta = 1.5 }, -0.13998852},
		{"dr_grpo", func(o *Options) { o.LossType = DrGRPO }, -0.07434946},
		{"dr_grpo kl", func(o *Options) { o.LossType, o.Beta = DrGRPO, 0.04 }, -0.07412567},
		{"dr_grpo delta", func(o *Options) { o.LossType, o.Delta = DrGRPO, 1.5 }, -0.08749283},
		{"gspo", func(o *Options) { o.LossType, o.ImportanceSamplingLevel = GRPO, Sequence }, -0.06411152},
		{"luspo", func(o *Options) { o.LossType, o.ImportanceSamplingLevel = LUSPO, Sequence }, -0.54583796},
		{"cispo 5", func(o *Options) { o.LossType, o.EpsilonHigh = CISPO, 5 }, 0.12273345},
		{"cispo 1.28", func(o *Options) { o.LossType, o.EpsilonHigh = CISPO, 1.28 }, 0.12794722},
		{"sapo", func(o *Options) { o.LossType = SAPO }, -0.06686056},
		{"vespo", func(o *Options) { o.LossType = VESPO }, -0.04807834},
		{"token_truncate", func(o *Options) { o.ISCorrection, o.ISMode, o.ISClipMax = true, "token_truncate", 1.04 }, -0.14448286},
		{"token_mask", func(o *Options) { o.ISCorrection, o.ISMode, o.ISClipMax = true, "token_mask", 1.04 }, -0.07389530},
		{"sequence_truncate", func(o *Options) { o.ISCorrection, o.ISMode, o.ISClipMax = true, "sequence_truncate", 1.04 }, -0.15445453},
		{"sequence_mask", func(o *Options) { o.ISCorrection, o.ISClipMax = true, 1.04 }, 0.32936558},
		{"sequence_mask 3", func(o *Options) { o.ISCorrection = true }, -0.15969798},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := DefaultOptions()
			o.NumGenerations, o.PerDeviceTrainBatchSize, o.MaxCompletionLength = 2, 2, 4
			o.EpsilonHigh, o.UseBiasCorrectionKL = 0.28, false
			c.change(&o)
			require.NoError(t, o.Validate())
			batch, logp := worked()
			_, err := Advantages(batch, &o)
			require.NoError(t, err)
			require.InDelta(t, 0.7070067953, batch[0].Advantage, 1e-9)
			require.InDelta(t, -0.7070067953, batch[1].Advantage, 1e-9)
			_, stats, err := o.Loss(batch, logp, make([]float32, 5), Window{Rows: 2, MicroBatches: 1, Items: 5})
			require.NoError(t, err)
			require.InDelta(t, c.want, stats.Get("loss"), 2e-7)
			if o.Beta != 0 {
				require.InDelta(t, 0.00895155, stats.Get("kl"), 1e-7)
			}
		})
	}
}

// random makes rollouts around every corner of the loss: masks, both signs of A, ratios in and out
// of the clip, a fully masked row.
func random(seed uint64, rows int) ([]rl.Rollout, []float32, []float32) {
	src := rng.New(seed, "grpo test")
	var batch []rl.Rollout
	var logp, entropy []float32
	n := uint32(0)
	draw := func() float32 { n++; return float32(src.Uniform(n, 0, 0, 0)) }
	for i := range rows {
		length := 1 + int(draw()*6)
		r := rl.Rollout{Tokens: make([]int32, 2+length), PromptLen: 2, Group: i / 2, Advantage: float64(draw()*4 - 2)}
		for t := range length {
			lp := -draw() * 3
			logp, entropy = append(logp, lp), append(entropy, draw()*2)
			r.OldLogP = append(r.OldLogP, lp+draw()-0.5)
			r.LogP = append(r.LogP, r.OldLogP[t]+0.1*(draw()-0.5))
			r.RefLogP = append(r.RefLogP, lp+draw()-0.5)
			r.Mask = append(r.Mask, 1)
			if draw() < 0.2 || i == 3 {
				r.Mask[t] = 0
			}
		}
		batch = append(batch, r)
	}
	return batch, logp, entropy
}

// TestFiniteDifferences: for every loss type and level the gradient is that of the loss. CISPO and
// VESPO stop the gradient of their weight, so there the loss is linear in logp by definition.
func TestFiniteDifferences(t *testing.T) {
	threshold := 0.1
	extras := map[string]func(o *LossOptions){
		"plain":     func(o *LossOptions) {},
		"kl":        func(o *LossOptions) { o.Beta, o.UseBiasCorrectionKL = 0.3, false },
		"kl bias":   func(o *LossOptions) { o.Beta, o.UseBiasCorrectionKL = 0.3, true },
		"entropy":   func(o *LossOptions) { o.EntropyCoef, o.TopEntropyQuantile = 0.2, 0.5 },
		"delta":     func(o *LossOptions) { o.Delta = 1.3 },
		"is":        func(o *LossOptions) { o.ISCorrection, o.ISMode, o.ISClipMax = true, "token_truncate", 1.02 },
		"off":       func(o *LossOptions) { o.OffPolicyMaskThreshold = &threshold },
		"high":      func(o *LossOptions) { o.EpsilonHigh = 0.28 },
		"epsilon 0": func(o *LossOptions) { o.Epsilon, o.EpsilonHigh = 0.01, 0.01 },
	}
	checked := 0
	for _, kind := range []string{GRPO, BNPO, DrGRPO, DAPO, SAPO, LUSPO} {
		for _, level := range []string{Token, Sequence} {
			for name, extra := range extras {
				o := DefaultOptions().LossOptions
				o.LossType, o.ImportanceSamplingLevel, o.MaxCompletionLength = kind, level, 7
				extra(&o)
				if o.Validate() != nil {
					continue
				}
				checked++
				t.Run(fmt.Sprint(kind, " ", level, " ", name), func(t *testing.T) {
					batch, logp, entropy := random(7, 6)
					w := Window{Rows: 7, MicroBatches: 3, Items: 40}
					grad, _, err := o.Loss(batch, logp, entropy, w)
					require.NoError(t, err)
					slope := func(x []float32, i int) float64 {
						const h = 1.0 / 1024
						was := x[i]
						defer func() { x[i] = was }()
						x[i] = was + h
						_, up, err := o.Loss(batch, logp, entropy, w)
						require.NoError(t, err)
						x[i] = was - h
						_, down, err := o.Loss(batch, logp, entropy, w)
						require.NoError(t, err)
						return (up.Get("loss") - down.Get("loss")) / (float64(was+h) - float64(was-h))
					}
					for i := range logp {
						require.InDelta(t, slope(logp, i), float64(grad.DLogP[i]), 2e-6, "logp %d", i)
						if grad.DEntropy != nil {
							require.InDelta(t, slope(entropy, i), float64(grad.DEntropy[i]), 1e-6, "entropy %d", i)
						}
					}
				})
			}
		}
	}
	require.Greater(t, checked, 60)
}

// TestSplits: the loss and gradient of a step do not depend on how it is cut into micro-batches of
// equal rows, for dapo, dr_grpo, grpo and the others that promise it; bnpo's do, as documented.
func TestSplits(t *testing.T) {
	for _, kind := range []string{DAPO, DrGRPO, CISPO, VESPO, GRPO, SAPO, BNPO} {
		t.Run(kind, func(t *testing.T) {
			o := DefaultOptions().LossOptions
			o.LossType, o.Beta, o.MaxCompletionLength = kind, 0.04, 8
			require.NoError(t, o.Validate())
			batch, logp, entropy := random(3, 12)
			items := lossTokens(batch)
			sum := func(parts int) (loss float64, grad []float32) {
				rows, at := len(batch)/parts, 0
				for p := range parts {
					part := batch[p*rows : (p+1)*rows]
					n := rl.Tokens(part)
					g, s, err := o.Loss(part, logp[at:at+n], entropy[at:at+n], Window{Rows: rows, MicroBatches: parts, Items: items})
					require.NoError(t, err)
					loss, grad, at = loss+s.Get("loss"), append(grad, g.DLogP...), at+n
				}
				return loss, grad
			}
			whole, wholeGrad := sum(1)
			for _, parts := range []int{2, 3, 4, 6, 12} {
				loss, grad := sum(parts)
				if kind == BNPO {
					require.NotEqual(t, whole, loss)
					continue
				}
				require.InDelta(t, whole, loss, 1e-12)
				for i := range grad {
					require.InDelta(t, wholeGrad[i], grad[i], 1e-7)
				}
			}
		})
	}
}

// TestLeftOutRows: a fully masked row changes nothing but the row count, so it may be left out.
func TestLeftOutRows(t *testing.T) {
	for _, kind := range []string{GRPO, BNPO, DrGRPO, DAPO, CISPO, SAPO, VESPO} {
		o := DefaultOptions().LossOptions
		o.LossType = kind
		batch, logp, entropy := random(9, 6) // row 3 is fully masked
		w := Window{Rows: 6, MicroBatches: 1, Items: lossTokens(batch)}
		with, all, err := o.Loss(batch, logp, entropy, w)
		require.NoError(t, err)
		from := rl.Tokens(batch[:3])
		to := from + batch[3].Len()
		cut := func(x []float32) []float32 { return append(append([]float32{}, x[:from]...), x[to:]...) }
		without, less, err := o.Loss(append(append([]rl.Rollout{}, batch[:3]...), batch[4:]...), cut(logp), cut(entropy), w)
		require.NoError(t, err)
		require.Equal(t, all.Get("loss"), less.Get("loss"), kind)
		require.Equal(t, cut(with.DLogP), without.DLogP, kind)
	}
}

// TestOnPolicy: sampled and scored by the same bits, the ratio is exactly 1, nothing is clipped and
// the correction is exactly 1.
func TestOnPolicy(t *testing.T) {
	o := DefaultOptions().LossOptions
	batch, logp, entropy := random(5, 4)
	at := 0
	for i := range batch {
		batch[i].LogP = logp[at : at+batch[i].Len()]
		batch[i].OldLogP = batch[i].LogP
		at += batch[i].Len()
	}
	w := Window{Rows: 4, MicroBatches: 1, Items: lossTokens(batch)}
	plain, stats, err := o.Loss(batch, logp, entropy, w)
	require.NoError(t, err)
	require.Zero(t, stats.Get("clip_ratio/region_mean"))
	o.ISCorrection = true
	require.NoError(t, o.Validate())
	corrected, stats, err := o.Loss(batch, logp, entropy, w)
	require.NoError(t, err)
	require.Equal(t, plain, corrected)
	require.Equal(t, 1.0, stats.Get("sampling/importance_sampling_ratio/min"))
	require.Equal(t, 1.0, stats.Get("sampling/importance_sampling_ratio/max"))
	for i := range batch {
		batch[i].OldLogP = nil
	}
	fresh, _, err := (&LossOptions{LossType: DAPO, ImportanceSamplingLevel: Token, Epsilon: 0.2, TopEntropyQuantile: 1}).Loss(batch, logp, entropy, w)
	require.NoError(t, err)
	require.Equal(t, plain, fresh)
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		change func(o *Options)
		want   string
	}{
		{func(o *Options) { o.LossType = "ppo" }, `loss_type "ppo" is not known; there are grpo, bnpo`},
		{func(o *Options) { o.ImportanceSamplingLevel = "word" }, "importance_sampling_level"},
		{func(o *Options) { o.Beta = math.NaN() }, "beta is NaN"},
		{func(o *Options) { o.Epsilon = -1 }, "epsilon is -1"},
		{func(o *Options) { o.Delta = 1.1 }, "delta 1.1 must exceed"},
		{func(o *Options) { o.LossType, o.Delta = CISPO, 2 }, "delta has no effect"},
		{func(o *Options) { o.TopEntropyQuantile = 0 }, "top_entropy_quantile is 0"},
		{func(o *Options) { o.LossType = LUSPO }, "luspo needs importance_sampling_level sequence"},
		{func(o *Options) { o.LossType, o.ISCorrection = VESPO, true }, "vespo takes importance_sampling_mode"},
		{func(o *Options) { o.ISCorrection, o.ISMode = true, "mask" }, "importance_sampling_mode"},
		{func(o *Options) { o.LossType, o.SAPOTemperatureNeg = SAPO, 0 }, "sapo_temperature"},
		{func(o *Options) { o.NumGenerations = 1 }, "num_generations is 1, must be at least 2"},
		{func(o *Options) { o.NumGenerations = 3 }, "do not divide into groups of num_generations 3"},
		{func(o *Options) { o.GradientAccumulationSteps, o.StepsPerGeneration = 2, 3 }, "must be a multiple of gradient_accumulation_steps"},
		{func(o *Options) { o.Temperature = 0 }, "temperature is 0"},
		{func(o *Options) { o.ScaleRewards = "row" }, "scale_rewards"},
		{func(o *Options) { o.MultiObjectiveAggregation = "sum" }, "multi_objective_aggregation"},
		{func(o *Options) { o.Optimizer.Beta1 = 1 }, "adam_beta1"},
	} {
		o := DefaultOptions()
		c.change(&o)
		require.ErrorContains(t, o.Validate(), c.want)
	}
	o := DefaultOptions()
	require.NoError(t, o.Validate())
	require.Equal(t, 1, o.PromptsPerBatch())
	require.Equal(t, 1, o.StepsPerBatch())
}

func TestRewardContract(t *testing.T) {
	o := DefaultOptions()
	o.NumGenerations = 2
	good := func() []rl.Rollout {
		b, _ := worked()
		return b
	}
	for _, c := range []struct {
		change func(b []rl.Rollout)
		want   string
	}{
		{func(b []rl.Rollout) { b[1].Group = 1 }, "1 rollouts instead of num_generations 2"},
		{func(b []rl.Rollout) { b[1].Rewards = nil }, "has 0 rewards, the first one 1"},
		{func(b []rl.Rollout) { b[1].Rewards = []float64{math.Inf(1)} }, "is +Inf"},
		{func(b []rl.Rollout) { b[1].Rewards = []float64{-1e300} }, "is -1e+300, want at most 1e+100 either way; scale it down"},
		{func(b []rl.Rollout) { b[0].Reward = 1e200 }, "the reward of completion 0 of group 0 is 1e+200, want at most 1e+100 either way"},
		{func(b []rl.Rollout) { b[1].Scored = false }, "scored false although"},
		{func(b []rl.Rollout) { b[0].Reward = math.NaN() }, "the reward of completion 0 of group 0 is NaN"},
	} {
		b := good()
		c.change(b)
		_, err := Advantages(b, &o)
		require.ErrorContains(t, err, c.want)
	}
	o.RewardWeights = []float64{2}
	_, err := Advantages(good(), &o)
	require.ErrorContains(t, err, "reward_weights make 2")
	o.RewardWeights = []float64{1, 1}
	_, err = Advantages(good(), &o)
	require.ErrorContains(t, err, "2 reward_weights for 1 reward functions")
	o.RewardWeights, o.RewardNames = []float64{1}, []string{"math", "format"}
	_, err = Advantages(good(), &o)
	require.ErrorContains(t, err, "2 names for 1 reward functions")
	o.RewardNames = []string{"math"}
	stats, err := Advantages(good(), &o)
	require.NoError(t, err)
	require.Equal(t, 0.5, stats.Get("rewards/math/mean"))
	require.InDelta(t, math.Sqrt(0.5), stats.Get("rewards/math/std"), 1e-12)

	o.RewardWeights = nil
	b := good()
	b[0].Rewards, b[0].Reward = []float64{largestReward}, largestReward
	b[1].Rewards, b[1].Reward = []float64{-largestReward}, -largestReward
	_, err = Advantages(b, &o)
	require.NoError(t, err)
	require.InDelta(t, math.Sqrt(0.5), b[0].Advantage, 1e-12, "the largest reward still tells its group apart")
}

// TestPolicySize: no micro-batch of a generation batch needs more than the plan said.
func TestPolicySize(t *testing.T) {
	for _, c := range [][3]int{{4, 4, 2}, {4, 6, 2}, {4, 3, 4}, {2, 8, 1}, {8, 2, 4}, {3, 1, 3}} {
		o := DefaultOptions()
		o.NumGenerations, o.PerDeviceTrainBatchSize, o.StepsPerGeneration, o.MaxCompletionLength = c[0], c[1], c[2], 40
		require.NoError(t, o.Validate())
		bound := o.PolicySize(50)
		batch := make([]rl.Rollout, c[1]*c[2])
		src := rng.New(1, "sizes")
		for try := range uint32(50) {
			for i := range batch {
				g := i / c[0]
				p := 1 + int(src.Below(50, try, uint32(g), 0))
				batch[i] = rl.Rollout{Tokens: make([]int32, p+1+int(src.Below(40, try, uint32(i), 1))), PromptLen: p, Group: g}
			}
			for m := range c[2] {
				size := rl.SizeOf(batch[m*c[1] : (m+1)*c[1]])
				require.Equal(t, bound, bound.Max(size), "%v", c)
			}
		}
	}
}
