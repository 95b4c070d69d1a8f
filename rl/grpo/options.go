// Package grpo trains by group-relative policy optimization and its kin (Shao et al. 2024,
// arXiv 2402.03300; DAPO 2503.14476; Dr. GRPO 2503.20783; GSPO 2507.18071; CISPO 2506.13585 and
// others, see Options.LossType), with the options, normalisers and figures of TRL.
//
// Advantages and Loss are pure functions. Trainer.Step reads as the algorithm. The package may not
// know how tokens are sampled, where prompts come from, what a reward is or where a model lies: it
// declares Prompts, Sampler and Rewarder. State: the optimizer's moments, the step, and the rollouts
// of the generation batch in use.
package grpo

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"graft/rl"
)

// Loss types: how the clipped objective of a token is formed and what it is divided by.
const (
	GRPO   = "grpo"    // mean over sequences of token means
	BNPO   = "bnpo"    // token mean of the micro-batch
	DrGRPO = "dr_grpo" // divided by rows·max_completion_length
	DAPO   = "dapo"    // token mean of the optimizer step
	CISPO  = "cispo"   // −sg(min(ρ, epsilon_high))·A·logp, normalised as dapo
	SAPO   = "sapo"    // soft gate instead of the clip, normalised as grpo
	LUSPO  = "luspo"   // sequence ratio weighted by length
	VESPO  = "vespo"   // gamma-shaped sequence weight, normalised as dapo
)

// LossTypes lists them.
func LossTypes() []string { return []string{GRPO, BNPO, DrGRPO, DAPO, CISPO, SAPO, LUSPO, VESPO} }

// Importance sampling levels.
const (
	Token    = "token"    // a ratio for each token
	Sequence = "sequence" // one for a sequence: the geometric mean of its tokens' (GSPO)
)

// Ways to scale rewards into advantages.
const (
	ScaleGroup = "group" // by the group's standard deviation
	ScaleBatch = "batch" // by the batch's
	ScaleNone  = "none"  // not at all
)

// Ways to aggregate several rewards.
const (
	SumThenNormalize = "sum_then_normalize"
	NormalizeThenSum = "normalize_then_sum" // GDPO
)

// LossOptions shape the loss of a token. Names and defaults are TRL's.
type LossOptions struct {
	LossType                string  // loss_type
	ImportanceSamplingLevel string  // importance_sampling_level
	Beta                    float64 // beta: weight of the k3 estimate of KL(policy ‖ reference); 0: no reference is run
	UseBiasCorrectionKL     bool    // use_bias_correction_kl: k3 times the ratio, whose gradient is unbiased (DeepSeek-V3.2)
	Epsilon                 float64 // epsilon: the ratio is clipped to [1−epsilon, 1+epsilon_high]
	EpsilonHigh             float64 // epsilon_high; 0: epsilon. For cispo the cap of the ratio itself (5 in ScaleRL)
	Delta                   float64 // delta: upper bound of the unclipped ratio (two-sided clipping); 0: none
	MaxCompletionLength     int     // max_completion_length: dr_grpo divides by it

	TopEntropyQuantile     float64  // top_entropy_quantile: only this share of tokens, those of highest entropy, learns; 1: all
	EntropyCoef            float64  // entropy_coef: bonus on the mean entropy of the tokens
	OffPolicyMaskThreshold *float64 // off_policy_mask_threshold: rows with A < 0 that drifted further are dropped; nil: none

	SAPOTemperaturePos float64 // sapo_temperature_pos
	SAPOTemperatureNeg float64 // sapo_temperature_neg
	VESPOKPos          float64 // vespo_k_pos
	VESPOLambdaPos     float64 // vespo_lambda_pos
	VESPOKNeg          float64 // vespo_k_neg
	VESPOLambdaNeg     float64 // vespo_lambda_neg

	// The correction for a sampler whose log-probs differ from the policy's: vllm_importance_sampling_*
	// in TRL. With Graft's own sampler the ratio is exactly 1 and the correction off.
	ISCorrection bool    // importance_sampling_correction
	ISMode       string  // importance_sampling_mode: {token,sequence}_{truncate,mask}
	ISClipMax    float64 // importance_sampling_clip_max; 0: none
	ISClipMin    float64 // importance_sampling_clip_min; 0: none
}

// Options are the trainer's: LossOptions and how steps are made.
type Options struct {
	LossOptions

	NumGenerations            int       // num_generations: completions of a prompt (G)
	PerDeviceTrainBatchSize   int       // per_device_train_batch_size: completions of a micro-batch
	GradientAccumulationSteps int       // gradient_accumulation_steps: micro-batches of an optimizer step (K)
	StepsPerGeneration        int       // steps_per_generation: micro-batches of a generation batch; 0: K
	NumIterations             int       // num_iterations: passes over a generation batch (μ)
	Temperature               float64   // temperature of every log-prob
	MaskTruncatedCompletions  bool      // mask_truncated_completions: those cut by length do not learn
	ScaleRewards              string    // scale_rewards
	MultiObjectiveAggregation string    // multi_objective_aggregation
	RewardWeights             []float64 // reward_weights: what the rewarder weighs by; nil: unknown here, or all 1 with normalize_then_sum
	RewardNames               []string  // of the reward functions, for figures; nil: their numbers
	Optimizer                 rl.AdamWOptions
	Schedule                  rl.ScheduleOptions
}

// DefaultOptions are TRL's, except that the importance sampling correction is off.
func DefaultOptions() Options {
	return Options{
		LossOptions: LossOptions{
			LossType: DAPO, ImportanceSamplingLevel: Token, UseBiasCorrectionKL: true, Epsilon: 0.2,
			MaxCompletionLength: 512, TopEntropyQuantile: 1,
			SAPOTemperaturePos: 1, SAPOTemperatureNeg: 1.05,
			VESPOKPos: 2, VESPOLambdaPos: 3, VESPOKNeg: 3, VESPOLambdaNeg: 2,
			ISMode: "sequence_mask", ISClipMax: 3,
		},
		NumGenerations: 8, PerDeviceTrainBatchSize: 8, GradientAccumulationSteps: 1, NumIterations: 1, Temperature: 1,
		ScaleRewards: ScaleGroup, MultiObjectiveAggregation: SumThenNormalize,
		Optimizer: rl.DefaultAdamW(),
		Schedule:  rl.ScheduleOptions{Type: "linear", LearningRate: 1e-6},
	}
}

// epsHigh is where the clip ends, or cispo's cap.
func (o *LossOptions) epsHigh() float64 {
	if o.EpsilonHigh == 0 {
		return o.Epsilon
	}
	return o.EpsilonHigh
}

// clips tells whether the loss is a clipped ratio.
func (o *LossOptions) clips() bool {
	return slices.Contains([]string{GRPO, BNPO, DrGRPO, DAPO, LUSPO}, o.LossType)
}

// ISModes lists importance_sampling_mode.
func ISModes() []string {
	return []string{"token_truncate", "token_mask", "sequence_truncate", "sequence_mask"}
}

// Validate names the option that is wrong, has no effect, or does not go with another.
func (o *LossOptions) Validate() error {
	if err := oneOf("loss_type", o.LossType, LossTypes()); err != nil {
		return err
	}
	if err := oneOf("importance_sampling_level", o.ImportanceSamplingLevel, []string{Token, Sequence}); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		v    float64
	}{
		{"beta", o.Beta}, {"epsilon", o.Epsilon}, {"epsilon_high", o.EpsilonHigh}, {"delta", o.Delta}, {"entropy_coef", o.EntropyCoef},
		{"importance_sampling_clip_max", o.ISClipMax}, {"importance_sampling_clip_min", o.ISClipMin},
	} {
		if !(c.v >= 0) || math.IsInf(c.v, 0) {
			return fmt.Errorf("grpo: %s is %g, must be finite and not negative", c.name, c.v)
		}
	}
	switch {
	case o.Delta != 0 && !o.clips():
		return fmt.Errorf("grpo: delta has no effect with loss_type %s", o.LossType)
	case o.Delta != 0 && o.Delta <= 1+o.epsHigh():
		return fmt.Errorf("grpo: delta %g must exceed 1+epsilon_high = %g, or it clips what epsilon_high allows", o.Delta, 1+o.epsHigh())
	case !(o.TopEntropyQuantile > 0 && o.TopEntropyQuantile <= 1):
		return fmt.Errorf("grpo: top_entropy_quantile is %g, must be in (0, 1]", o.TopEntropyQuantile)
	case o.LossType == DrGRPO && o.MaxCompletionLength < 1:
		return fmt.Errorf("grpo: loss_type dr_grpo divides by max_completion_length, which is %d", o.MaxCompletionLength)
	case o.LossType == SAPO && !(o.SAPOTemperaturePos > 0 && o.SAPOTemperatureNeg > 0):
		return fmt.Errorf("grpo: sapo_temperature_pos and _neg are %g and %g, must be positive", o.SAPOTemperaturePos, o.SAPOTemperatureNeg)
	}
	if err := o.validateLUSPO(); err != nil {
		return err
	}
	if !o.ISCorrection {
		return nil
	}
	if o.LossType == VESPO && !strings.HasPrefix(o.ISMode, "token_") {
		return fmt.Errorf("grpo: loss_type vespo takes importance_sampling_mode token_truncate or token_mask, not %q", o.ISMode)
	}
	return oneOf("importance_sampling_mode", o.ISMode, ISModes())
}

// validateLUSPO refuses what has no meaning of its own: TRL's value then depends on how far rows
// were padded.
func (o *LossOptions) validateLUSPO() error {
	if o.LossType != LUSPO {
		return nil
	}
	const why = "elsewhere its value then depends on the padding of the batch"
	switch {
	case o.ImportanceSamplingLevel != Sequence:
		return fmt.Errorf("grpo: loss_type luspo needs importance_sampling_level sequence; %s", why)
	case o.Beta != 0:
		return fmt.Errorf("grpo: loss_type luspo needs beta 0; %s", why)
	case o.TopEntropyQuantile != 1:
		return fmt.Errorf("grpo: loss_type luspo needs top_entropy_quantile 1; %s", why)
	case o.ISCorrection && strings.HasPrefix(o.ISMode, "token_"):
		return fmt.Errorf("grpo: loss_type luspo needs importance_sampling_mode sequence_truncate or sequence_mask; %s", why)
	}
	return nil
}

// Validate checks all options and fills in StepsPerGeneration.
func (o *Options) Validate() error {
	if err := o.LossOptions.Validate(); err != nil {
		return err
	}
	if err := oneOf("scale_rewards", o.ScaleRewards, []string{ScaleGroup, ScaleBatch, ScaleNone}); err != nil {
		return err
	}
	if err := oneOf("multi_objective_aggregation", o.MultiObjectiveAggregation, []string{SumThenNormalize, NormalizeThenSum}); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		n    int
		min  int
	}{
		{"num_generations", o.NumGenerations, 2}, {"per_device_train_batch_size", o.PerDeviceTrainBatchSize, 1},
		{"gradient_accumulation_steps", o.GradientAccumulationSteps, 1}, {"num_iterations", o.NumIterations, 1},
		{"max_completion_length", o.MaxCompletionLength, 1}, {"steps_per_generation", o.StepsPerGeneration, 0},
	} {
		if c.n < c.min {
			return fmt.Errorf("grpo: %s is %d, must be at least %d", c.name, c.n, c.min)
		}
	}
	if o.StepsPerGeneration == 0 {
		o.StepsPerGeneration = o.GradientAccumulationSteps
	}
	rows := o.PerDeviceTrainBatchSize * o.StepsPerGeneration
	switch {
	case o.StepsPerGeneration%o.GradientAccumulationSteps != 0:
		return fmt.Errorf("grpo: steps_per_generation %d must be a multiple of gradient_accumulation_steps %d", o.StepsPerGeneration, o.GradientAccumulationSteps)
	case rows%o.NumGenerations != 0:
		return fmt.Errorf("grpo: per_device_train_batch_size %d × steps_per_generation %d = %d completions do not divide into groups of num_generations %d",
			o.PerDeviceTrainBatchSize, o.StepsPerGeneration, rows, o.NumGenerations)
	case !(o.Temperature > 0) || math.IsInf(o.Temperature, 0):
		return fmt.Errorf("grpo: temperature is %g, must be positive", o.Temperature)
	}
	return o.Optimizer.Validate()
}

// PromptsPerBatch is the number of prompts of a generation batch.
func (o *Options) PromptsPerBatch() int {
	return o.PerDeviceTrainBatchSize * o.StepsPerGeneration / o.NumGenerations
}

// StepsPerBatch is the number of optimizer steps that one generation batch feeds.
func (o *Options) StepsPerBatch() int {
	return o.StepsPerGeneration / o.GradientAccumulationSteps * o.NumIterations
}

// PolicySize bounds a micro-batch whose prompts and completions are at most this long.
func (o *Options) PolicySize(maxPrompt int) rl.PolicySize {
	var most rl.PolicySize
	for offset := range o.NumGenerations { // where in a group the micro-batch begins
		var size rl.PolicySize
		for left, n := o.PerDeviceTrainBatchSize, o.NumGenerations-offset; left > 0; left, n = left-n, o.NumGenerations {
			n = min(n, left)
			size = size.Plus(rl.GroupBound(n, maxPrompt, o.MaxCompletionLength))
		}
		most = most.Max(size)
	}
	return most
}

func oneOf(name, v string, known []string) error {
	if slices.Contains(known, v) {
		return nil
	}
	return fmt.Errorf("grpo: %s %q is not known; there are %s", name, v, strings.Join(known, ", "))
}
