package ref

import (
	"fmt"
	"math"
	"slices"

	"graft/kernels"
	"graft/kernels/libm"
)

// Sample implements kernels.Backend. A row whose largest logit is not a number, or infinite, or
// that may draw no token at all fails, which Sync tells; its result is not defined.
func (b *Backend) Sample(a *kernels.SampleArgs) {
	w := weights(a.W)
	for m, row := range a.Rows {
		raw, _ := logits(matrix(a.Hidden).Row(m), w, float64(a.Softcap))
		for v, z := range raw {
			a.Logits.Row(m)[v] = float32(z)
		}
		id, err := Draw(raw, row)
		if err != nil {
			b.fail(fmt.Errorf("ref: sample: row %d: %w", m, err))
			continue
		}
		z := scaled(raw, float64(row.InvT))
		lse := logSumExp(z)
		out := &a.Out[m]
		out.ID, out.LogP, out.Entropy = id, float32(z[id]-lse), float32(entropy(z, lse))
		out.Top = out.Top[:0]
		for _, v := range byLogit(z)[:min(row.NumTop, len(z))] {
			out.Top = append(out.Top, kernels.TokenLogP{ID: v, LogP: float32(z[v] - lse)})
		}
	}
}

// Draw chooses one token from raw logits, as kernels.SampleRow says. Greedy takes the largest logit
// after bias and bans, the lowest id on ties. Otherwise it inverts the cumulative distribution of
// Distribution in ascending id order: the first token at which the sum exceeds U.
func Draw(logits []float64, row kernels.SampleRow) (int32, error) {
	z := adjusted(logits, row)
	best := byLogit(z)[0]
	if math.IsInf(z[best], 0) || slices.ContainsFunc(z, math.IsNaN) {
		return 0, fmt.Errorf("no token can be drawn: the largest logit is %v", slices.Max(z))
	}
	if row.Greedy {
		return best, nil
	}
	ids, p := Distribution(logits, row)
	var sum float64
	for i, v := range p {
		if sum += v; sum > row.U {
			return ids[i], nil
		}
	}
	return ids[len(ids)-1], nil // U within rounding of 1
}

// Distribution returns the tokens that a row may draw, in ascending id order, and their
// probabilities, which sum to 1. The order of the cuts is vLLM's: bias and bans on the raw logits;
// temperature; min-p (at least MinP of the most probable token); top-k; top-p on what is left,
// renormalized: the smallest set of most probable tokens whose sum reaches TopP. Ties go to the
// lower id, and one token always stays.
func Distribution(logits []float64, row kernels.SampleRow) (ids []int32, p []float64) {
	z := scaled(adjusted(logits, row), float64(row.InvT))
	kept := byLogit(z)
	floor := z[kept[0]] + libm.Log(float64(row.MinP)) // MinP 0: −Inf
	kept = slices.DeleteFunc(kept, func(v int32) bool { return z[v] < floor || math.IsInf(z[v], -1) })
	if row.TopK > 0 {
		kept = kept[:min(row.TopK, len(kept))]
	}
	if row.TopP < 1 {
		kept = kept[:nucleus(z, kept, float64(row.TopP))]
	}
	slices.Sort(kept)
	return kept, softmaxOf(z, kept)
}

// adjusted is the logits after bias and bans; a banned token's is −Inf.
func adjusted(logits []float64, row kernels.SampleRow) []float64 {
	z := slices.Clone(logits)
	for _, b := range row.Bias {
		z[b.ID] += float64(b.Value)
	}
	for _, id := range row.Banned {
		z[id] = math.Inf(-1)
	}
	return z
}

// byLogit lists all tokens by descending logit, the lower id first on ties.
func byLogit(z []float64) []int32 {
	ids := make([]int32, len(z))
	for i := range ids {
		ids[i] = int32(i)
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

// nucleus is how many of the tokens, most probable first, it takes to reach topP.
func nucleus(z []float64, kept []int32, topP float64) int {
	var sum float64
	for i, v := range softmaxOf(z, kept) {
		if sum += v; sum >= topP {
			return i + 1
		}
	}
	return len(kept)
}

// softmaxOf is the softmax over the listed tokens only.
func softmaxOf(z []float64, ids []int32) []float64 {
	p := make([]float64, len(ids))
	for i, v := range ids {
		p[i] = z[v]
	}
	lse := logSumExp(p)
	for i := range p {
		p[i] = libm.Exp(p[i] - lse)
	}
	return p
}
