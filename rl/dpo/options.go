// Package dpo trains on preferences: direct preference optimization (Rafailov et al. 2023, arXiv
// 2305.18290) and the losses that TRL gathers under its name.
//
// Loss is a pure function of log-probs. The package may not know where pairs come from or where a
// model lies. State: the optimizer's moments and step, through rl.Learner.
package dpo

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"graft/rl"
)

// LossTypes lists loss_type.
func LossTypes() []string {
	return []string{"sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard",
		"aot", "aot_unpaired", "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm"}
}

// FDivergences lists f_divergence_type.
func FDivergences() []string {
	return []string{"reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"}
}

// LossOptions shape the loss of a pair. Names and defaults are TRL's.
type LossOptions struct {
	LossType             []string  // loss_type: one, or several that are added up
	LossWeights          []float64 // loss_weights of several; nil: all 1
	Beta                 float64   // beta
	LabelSmoothing       float64   // label_smoothing: share of labels that are wrong; robust, exo_pair, aot, aot_unpaired
	FDivergenceType      string    // f_divergence_type
	FAlphaDivergenceCoef float64   // f_alpha_divergence_coef
	LDAlpha              *float64  // ld_alpha: weight of tokens beyond the shorter completion (LD-DPO); nil: 1
	DiscopopTau          float64   // discopop_tau
}

// Options are the trainer's.
type Options struct {
	LossOptions

	PerDeviceTrainBatchSize   int // per_device_train_batch_size: pairs of a micro-batch
	GradientAccumulationSteps int // gradient_accumulation_steps: micro-batches of an optimizer step
	Optimizer                 rl.AdamWOptions
	Schedule                  rl.ScheduleOptions
}

// DefaultOptions are TRL's.
func DefaultOptions() Options {
	return Options{
		LossOptions: LossOptions{LossType: []string{"sigmoid"}, Beta: 0.1, FDivergenceType: "reverse_kl",
			FAlphaDivergenceCoef: 0.5, DiscopopTau: 0.05},
		PerDeviceTrainBatchSize: 8, GradientAccumulationSteps: 1,
		Optimizer: rl.DefaultAdamW(),
		Schedule:  rl.ScheduleOptions{Type: "linear", LearningRate: 1e-6},
	}
}

// Validate names the option that is wrong, has no effect, or does not go with another.
func (o *LossOptions) Validate() error {
	if len(o.LossType) == 0 {
		return fmt.Errorf("dpo: no loss_type; there are %s", strings.Join(LossTypes(), ", "))
	}
	smooth := false
	for _, kind := range o.LossType {
		if !slices.Contains(LossTypes(), kind) {
			return fmt.Errorf("dpo: loss_type %q is not known; there are %s", kind, strings.Join(LossTypes(), ", "))
		}
		if o.FDivergenceType != "reverse_kl" && slices.Contains([]string{"nca_pair", "bco_pair", "sppo_hard", "aot", "aot_unpaired", "apo_zero", "apo_down"}, kind) {
			return fmt.Errorf("dpo: f_divergence_type %s has no effect with loss_type %s", o.FDivergenceType, kind)
		}
		smooth = smooth || slices.Contains([]string{"robust", "exo_pair", "aot", "aot_unpaired"}, kind)
	}
	switch {
	case o.LossWeights != nil && len(o.LossWeights) != len(o.LossType):
		return fmt.Errorf("dpo: %d loss_weights for %d loss types", len(o.LossWeights), len(o.LossType))
	case slices.ContainsFunc(o.LossWeights, notFinite):
		return fmt.Errorf("dpo: loss_weights are %v", o.LossWeights)
	case !(o.Beta > 0) || notFinite(o.Beta):
		return fmt.Errorf("dpo: beta is %g, must be positive", o.Beta)
	case !(o.LabelSmoothing >= 0 && o.LabelSmoothing < 0.5):
		return fmt.Errorf("dpo: label_smoothing is %g, must be in [0, 0.5)", o.LabelSmoothing)
	case o.LabelSmoothing != 0 && !smooth:
		return fmt.Errorf("dpo: label_smoothing has no effect with loss_type %s; robust, exo_pair, aot and aot_unpaired read it", strings.Join(o.LossType, ", "))
	case !slices.Contains(FDivergences(), o.FDivergenceType):
		return fmt.Errorf("dpo: f_divergence_type %q is not known; there are %s", o.FDivergenceType, strings.Join(FDivergences(), ", "))
	case notFinite(o.FAlphaDivergenceCoef):
		return fmt.Errorf("dpo: f_alpha_divergence_coef is %g", o.FAlphaDivergenceCoef)
	case o.LDAlpha != nil && !(*o.LDAlpha >= 0 && *o.LDAlpha <= 1):
		return fmt.Errorf("dpo: ld_alpha is %g, must be in [0, 1]", *o.LDAlpha)
	case slices.Contains(o.LossType, "discopop") && !(o.DiscopopTau > 0):
		return fmt.Errorf("dpo: discopop_tau is %g, must be positive", o.DiscopopTau)
	}
	return nil
}

// Validate checks all options.
func (o *Options) Validate() error {
	if err := o.LossOptions.Validate(); err != nil {
		return err
	}
	switch {
	case o.PerDeviceTrainBatchSize < 1:
		return fmt.Errorf("dpo: per_device_train_batch_size is %d", o.PerDeviceTrainBatchSize)
	case o.GradientAccumulationSteps < 1:
		return fmt.Errorf("dpo: gradient_accumulation_steps is %d", o.GradientAccumulationSteps)
	}
	return o.Optimizer.Validate()
}

// PolicySize bounds a micro-batch whose prompts and completions are at most this long, also where
// the two prompts of a pair differ in their tokens and cannot be shared.
func (o *Options) PolicySize(maxPrompt, maxCompletion int) rl.PolicySize {
	alone := rl.GroupBound(1, maxPrompt, maxCompletion)
	pair := rl.GroupBound(2, maxPrompt, maxCompletion).Max(alone.Plus(alone))
	var size rl.PolicySize
	for range o.PerDeviceTrainBatchSize {
		size = size.Plus(pair)
	}
	return size
}

func notFinite(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }
