package loop

import (
	"context"

	"graft/rl"
)

// NLL is the mean negative log-likelihood of the examples' loss tokens, n examples a forward.
func NLL(ctx context.Context, p *rl.Policy, examples []rl.Example, n int) (float64, error) {
	var sum, weight float64
	for from := 0; from < len(examples); from += n {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		var batch []rl.Rollout
		for i, e := range examples[from:min(from+n, len(examples))] {
			batch = append(batch, e.Rollout(i, 0))
		}
		logp, _, err := p.Score(batch)
		if err != nil {
			return 0, err
		}
		at := 0
		for i := range batch {
			for t := range batch[i].Len() {
				w := float64(batch[i].Weight(t))
				sum -= float64(w * float64(logp[at]))
				weight += w
				at++
			}
		}
	}
	return sum / max(1, weight), nil
}

// Preferred is the share of pairs whose chosen completion is more probable than the rejected one,
// n pairs a forward.
func Preferred(ctx context.Context, p *rl.Policy, pairs []rl.Preference, n int) (float64, error) {
	right := 0
	for from := 0; from < len(pairs); from += n {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		part := pairs[from:min(from+n, len(pairs))]
		var batch []rl.Rollout
		for i, pair := range part {
			batch = append(batch, pair.Chosen.Rollout(i, 0), pair.Rejected.Rollout(i, 1))
		}
		logp, _, err := p.Score(batch)
		if err != nil {
			return 0, err
		}
		at := 0
		total := func(r *rl.Rollout) (sum float64) {
			for range r.Len() {
				sum += float64(logp[at])
				at++
			}
			return sum
		}
		for i := range part {
			if total(&batch[2*i]) > total(&batch[2*i+1]) {
				right++
			}
		}
	}
	return float64(right) / float64(max(1, len(pairs))), nil
}
