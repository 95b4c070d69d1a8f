// Package rl holds what every trainer shares: rollouts, the policy that scores and differentiates
// them, optimizers, schedules, datasets, checkpoints and the run log.
//
// It may not know how tokens are sampled (a trainer declares the sampler it needs), nor any one
// objective: the seam is two numbers a token, see TokenGrad. State: the policy's buffers, the
// optimizer's moments and step, the data cursor.
package rl

import "fmt"

// Rollout is a prompt with one completion: sampled, chosen, rejected or given.
type Rollout struct {
	Tokens    []int32   // prompt, then completion; the truth: nothing is tokenized again
	PromptLen int       // tokens of the prompt; at least 1
	Group     int       // siblings share a group and, token for token, their prompt
	Sample    int       // number within the group
	Version   uint64    // the adapter version that sampled it; 0: not sampled
	LogP      []float32 // the sampler's log-probs [completion], nil if not sampled
	OldLogP   []float32 // at the start of the batch, when it is trained on more than once
	RefLogP   []float32 // the reference policy's, when the loss asks for it
	Mask      []float32 // loss weight of each completion token, nil: all 1. Tokens with 0 are not scored.
	Truncated bool      // ended by length, not by a stop token

	Row       int       // dataset row
	Rewards   []float64 // by reward function; NaN where it did not apply
	Reward    float64   // weighted sum
	Scored    bool      // some reward function applied
	Advantage float64
}

// Completion is the completion's tokens.
func (r *Rollout) Completion() []int32 { return r.Tokens[r.PromptLen:] }

// Len is the number of completion tokens.
func (r *Rollout) Len() int { return len(r.Tokens) - r.PromptLen }

// Weight is the loss mask of completion token t.
func (r *Rollout) Weight(t int) float32 {
	if r.Mask == nil {
		return 1
	}
	return r.Mask[t]
}

func (r *Rollout) check() error {
	switch {
	case r.PromptLen < 1 || r.PromptLen > len(r.Tokens):
		return fmt.Errorf("rl: a rollout of %d tokens has a prompt of %d", len(r.Tokens), r.PromptLen)
	case r.Mask != nil && len(r.Mask) != r.Len():
		return fmt.Errorf("rl: a mask of %d for %d completion tokens", len(r.Mask), r.Len())
	case r.LogP != nil && len(r.LogP) != r.Len():
		return fmt.Errorf("rl: %d sampler log-probs for %d completion tokens", len(r.LogP), r.Len())
	}
	return nil
}

// Tokens counts completion tokens of a batch: the length of every per-token slice over it.
func Tokens(batch []Rollout) int {
	n := 0
	for i := range batch {
		n += batch[i].Len()
	}
	return n
}

// TokenGrad is what a loss hands back: the gradient of the loss by each completion token's log-prob
// and by the entropy of the distribution it was drawn from, in order of rollouts, then tokens.
// Nil DEntropy means zero.
type TokenGrad struct {
	DLogP    []float32
	DEntropy []float32
}

// Stats are the named figures of a step, in the order they were added.
type Stats struct {
	Names  []string
	Values map[string]float64
}

// Set stores a figure.
func (s *Stats) Set(name string, v float64) {
	if s.Values == nil {
		s.Values = map[string]float64{}
	}
	if _, ok := s.Values[name]; !ok {
		s.Names = append(s.Names, name)
	}
	s.Values[name] = v
}

// Add adds to a figure.
func (s *Stats) Add(name string, v float64) { s.Set(name, s.Values[name]+v) }

// Get returns a figure, 0 if it was never set.
func (s *Stats) Get(name string) float64 { return s.Values[name] }

// Merge adds all figures of another set.
func (s *Stats) Merge(o Stats) {
	for _, n := range o.Names {
		s.Add(n, o.Values[n])
	}
}
