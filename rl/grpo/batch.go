package grpo

import (
	"fmt"
	"math"

	"graft/rl"
)

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

// live leaves out rows without a loss token: they need no forward.
func live(rollouts []rl.Rollout) []rl.Rollout {
	out := make([]rl.Rollout, 0, len(rollouts))
	for i := range rollouts {
		if lossTokens(rollouts[i:i+1]) > 0 {
			out = append(out, rollouts[i])
		}
	}
	return out
}

// checkSampled holds the sampler to its contract: n completions of each prompt, adjacent, within
// the length, sampled by the policy as it is now.
func checkSampled(rollouts []rl.Rollout, prompts []rl.Prompt, o *Options, version uint64) error {
	if len(rollouts) != len(prompts)*o.NumGenerations {
		return fmt.Errorf("grpo: the sampler returned %d completions for %d prompts × num_generations %d", len(rollouts), len(prompts), o.NumGenerations)
	}
	for i := range rollouts {
		r, p := &rollouts[i], &prompts[i/o.NumGenerations]
		switch {
		case r.PromptLen != len(p.IDs):
			return fmt.Errorf("grpo: completion %d has a prompt of %d tokens instead of %d", i, r.PromptLen, len(p.IDs))
		case r.Len() < 1:
			return fmt.Errorf("grpo: completion %d of group %d is empty", r.Sample, r.Group)
		case r.Len() > o.MaxCompletionLength:
			return fmt.Errorf("grpo: completion %d of group %d has %d tokens, max_completion_length is %d", r.Sample, r.Group, r.Len(), o.MaxCompletionLength)
		case r.LogP != nil && len(r.LogP) != r.Len():
			return fmt.Errorf("grpo: completion %d of group %d has %d log-probs for %d tokens", r.Sample, r.Group, len(r.LogP), r.Len())
		case r.LogP != nil && r.Version != version:
			return fmt.Errorf("grpo: completion %d of group %d was sampled by version %d of the policy, which is at %d", r.Sample, r.Group, r.Version, version)
		}
	}
	return nil
}

// lengthStats are TRL's figures of a fresh batch.
func lengthStats(rollouts []rl.Rollout, s *rl.Stats) {
	var all, ended []float64
	for i := range rollouts {
		n := float64(rollouts[i].Len())
		all = append(all, n)
		if !rollouts[i].Truncated {
			ended = append(ended, n)
		}
	}
	set := func(kind string, x []float64) {
		low, mean, high := extent(x)
		s.Set("completions/mean_"+kind, mean)
		s.Set("completions/min_"+kind, low)
		s.Set("completions/max_"+kind, high)
	}
	set("length", all)
	set("terminated_length", ended)
	s.Set("completions/clipped_ratio", 1-float64(len(ended))/float64(len(all)))
}

// mismatch compares what the sampler reported with what the trainer computed.
type mismatch struct {
	compared, tokens int
	max              float64
}

// count compares bits of every loss token that this version of the policy sampled.
func (m *mismatch) count(batch []rl.Rollout, logp []float32, version uint64) {
	at := 0
	for i := range batch {
		r := &batch[i]
		if r.LogP != nil && r.Version == version {
			for t, sampled := range r.LogP {
				if r.Weight(t) == 0 {
					continue
				}
				m.compared++
				if math.Float32bits(sampled) != math.Float32bits(logp[at+t]) {
					m.tokens++
					m.max = max(m.max, math.Abs(float64(sampled)-float64(logp[at+t])))
				}
			}
		}
		at += r.Len()
	}
}
