package rl

import "graft/kernels"

// GroupBound is the most that n siblings need when prompts and completions are at most this long.
// It is not simply what the longest need: a shorter prompt may leave siblings more of its last page
// to copy.
func GroupBound(n, maxPrompt, maxCompletion int) PolicySize {
	var most PolicySize
	tokens := make([]int32, maxPrompt+maxCompletion)
	for p := maxPrompt; p >= 1 && p > maxPrompt-kernels.PageSize; p-- {
		group := make([]Rollout, n)
		for i := range group {
			group[i] = Rollout{Tokens: tokens[:p+maxCompletion], PromptLen: p}
		}
		most = most.Max(SizeOf(group))
	}
	return most
}

// Plus is what two groups need in one micro-batch.
func (s PolicySize) Plus(o PolicySize) PolicySize {
	s.Rows, s.Scored = s.Rows+o.Rows, s.Scored+o.Scored
	s.Pairs, s.Pages = s.Pairs+o.Pairs, s.Pages+o.Pages
	return s
}
