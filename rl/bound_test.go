package rl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"graft/model"
)

// TestGroupBound: no shorter group needs more of anything, and the bound is reached.
func TestGroupBound(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		for _, most := range [][2]int{{1, 1}, {3, 40}, {15, 2}, {16, 1}, {20, 8}, {33, 17}} {
			bound := GroupBound(n, most[0], most[1])
			var seen PolicySize
			for p := 1; p <= most[0]; p++ {
				for c := 1; c <= most[1]; c++ {
					group := make([]Rollout, n)
					for i := range group {
						group[i] = Rollout{Tokens: make([]int32, p+c), PromptLen: p}
					}
					seen = seen.Max(SizeOf(group))
				}
			}
			require.Equal(t, seen, bound, "%d siblings, at most %v", n, most)
		}
	}
	a := GroupBound(2, 20, 8)
	require.Equal(t, 2*a.Pages, a.Plus(a).Pages)
}

// TestBeyondTheBound: a micro-batch larger than planned is an error, and the policy still works.
func TestBeyondTheBound(t *testing.T) {
	p := newPolicy(t, 1, model.KeepAll)
	small, large := sampleBatch([]int{10}, 2), sampleBatch([]int{10}, 3)
	size := SizeOf(small)
	size.Keep, size.Threads = model.KeepAll, 1
	require.NoError(t, p.Allocate(size))
	_, _, err := p.Score(large)
	require.ErrorContains(t, err, "were planned; lower the batch size")
	_, _, err = p.Score(small)
	require.NoError(t, err)
}
