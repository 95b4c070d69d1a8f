package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"graft/kernels/cpu/vec"
)

// tied is n logits of which many are equal and some are banned; the largest is at random.
func tied(rng *rand.Rand, n int) []float32 {
	z := make([]float32, n)
	for i := range z {
		z[i] = float32(rng.IntN(40)) / 4
		if rng.IntN(10) == 0 {
			z[i] = float32(math.Inf(-1))
		}
	}
	z[rng.IntN(n)] = 10
	return z
}

// sorted lists the tokens that are not banned, most probable first, the lower id first on ties.
func sorted(z []float32) []int32 {
	var ids []int32
	for i, v := range z {
		if !math.IsInf(float64(v), -1) {
			ids = append(ids, int32(i))
		}
	}
	slices.SortStableFunc(ids, func(a, b int32) int {
		switch {
		case z[a] > z[b]:
			return -1
		case z[a] < z[b]:
			return 1
		}
		return 0
	})
	return ids
}

func ids(candidates []candidate) []int32 {
	var ids []int32
	for _, c := range candidates {
		ids = append(ids, c.id)
	}
	return ids
}

func TestNucleusIsTheFewestThatReachTopP(t *testing.T) {
	w, rng, ties := newWorker(0, vec.For(vec.Generic)), rand.New(rand.NewPCG(1, 7)), 0
	defer w.free()
	for range 400 {
		z := tied(rng, 1+rng.IntN(300))
		top, low := float64(slices.Max(z)), float32(rng.IntN(2)*3)
		want := slices.DeleteFunc(sorted(z), func(id int32) bool { return z[id] < low })
		total := 0.0
		for _, id := range want {
			total += math.Exp(float64(z[id]) - top)
		}
		// Between two sums, so that rounding does not decide.
		n, sum := 1+rng.IntN(len(want)), 0.0
		for _, id := range want[:n] {
			sum += math.Exp(float64(z[id]) - top)
		}
		topP := float32((sum - math.Exp(float64(z[want[n-1]])-top)/2) / total)
		if n < len(want) && z[want[n]] == z[want[n-1]] {
			ties++
		}
		want = slices.Clone(want[:n])
		slices.Sort(want)
		w.nucleus(z, float32(top), low, topP)
		require.Equal(t, want, ids(w.candidates))
	}
	require.Greater(t, ties, 50, "cuts inside of ties")
}

func TestMostProbableIsTheHeadOfTheSort(t *testing.T) {
	w, rng := newWorker(0, vec.For(vec.Generic)), rand.New(rand.NewPCG(2, 7))
	defer w.free()
	for range 400 {
		z := tied(rng, 1+rng.IntN(400))
		want := sorted(z)
		n := 1 + rng.IntN(100)
		w.mostProbable(z, n, float32(math.Inf(-1)))
		require.Equal(t, want[:min(n, len(want))], ids(w.candidates))
	}
}

// The draw by chunk sums and the walk inside one chunk give each token its share of the unit interval.
func TestDrawInvertsTheDistribution(t *testing.T) {
	w, rng := newWorker(0, vec.For(vec.Generic)), rand.New(rand.NewPCG(3, 7))
	defer w.free()
	z := tied(rng, 9000)
	var states []chunkState
	raw, total := unsafe.Pointer(&z[0]), 0.0
	for c := range 3 {
		states = append(states, w.scaledChunk(raw, c, len(z), 0.5))
	}
	for _, v := range z {
		total += math.Exp(float64(v) / 2)
	}
	sum := 0.0
	for id, v := range z {
		p := math.Exp(float64(v)/2) / total
		if p > 1e-5 {
			require.Equal(t, id, w.draw(raw, states, len(z), 0.5, sum+p/2))
		}
		sum += p
	}
	last := slices.IndexFunc(z, func(v float32) bool { return !math.IsInf(float64(v), -1) })
	require.Equal(t, last, w.draw(raw, states, len(z), 0.5, 0), "U = 0 is the first token that may be drawn")
	for last = len(z) - 1; math.IsInf(float64(z[last]), -1); last-- {
	}
	require.Equal(t, last, w.draw(raw, states, len(z), 0.5, 1), "U rounded to 1 is the last")
}
