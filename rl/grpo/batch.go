package grpo

import "graft/rl"

// maskTruncated takes completions that length ended out of the loss, if asked to; they still count
// as rows.
func maskTruncated(rollouts []rl.Rollout, o *Options) {
	if !o.MaskTruncatedCompletions {
		return
	}
	for i := range rollouts {
		if r := &rollouts[i]; r.Truncated {
			r.Mask = make([]float32, r.Len())
		}
	}
}

// lossTokens is Σ mask.
func lossTokens(rollouts []rl.Rollout) float64 {
	n := 0.0
	for i := range rollouts {
		for t := range rollouts[i].Len() {
			n += float64(rollouts[i].Weight(t))
		}
	}
	return n
}
