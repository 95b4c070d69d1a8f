package infer

import (
	"context"
	"fmt"
	"math"
	"slices"

	"graft/kernels"
	"graft/weights"
)

// scorePrompt computes the log-probs of the prompt's tokens that rows of hidden, from position from
// on, predict, and the entropies of their distributions. Positions already known (the prompt is computed again after a preemption) are
// passed over.
func (e *Engine) scorePrompt(q *request, hidden kernels.Tensor, from int) error {
	to := min(from+hidden.Rows, len(q.prompt))
	for at := max(from, q.scored); at < to; {
		n := min(to-at, len(e.sampler.logp))
		if err := e.scoreRows(q, hidden, at-from, at, n); err != nil {
			return err
		}
		at += n
		q.scored = at
	}
	return nil
}

// scoreRows scores n rows from row on, which hold positions from at on.
func (e *Engine) scoreRows(q *request, hidden kernels.Tensor, row, at, n int) error {
	s := &e.sampler
	c := &s.scored
	c.Rows, c.InvT, c.PairRows, c.Targets = c.Rows[:0], c.InvT[:0], c.PairRows[:0], c.Targets[:0]
	for i := range n {
		c.Rows, c.InvT = append(c.Rows, int32(row+i)), append(c.InvT, q.params.invT())
		// The last row predicts what is not there yet: its entropy counts, its target is any token.
		c.PairRows, c.Targets = append(c.PairRows, int32(i)), append(c.Targets, q.prompt[min(at+i+1, len(q.prompt)-1)])
	}
	if err := e.model.LogProbs(e.head, hidden, c, s.logp[:n], s.ent[:n]); err != nil {
		return fmt.Errorf("infer: log-probs of the prompt: %w", err)
	}
	for i, v := range s.logp[:n] {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			q.broken = fmt.Errorf("infer: the log-prob of prompt token %d is %g: the weights have diverged or the model file is damaged", at+i+1, v)
			return nil
		}
	}
	copy(q.scores.LogP[at+1:], s.logp[:n])
	copy(q.scores.Entropy[at:], s.ent[:n])
	if q.params.TopLogProbs == 0 {
		return nil
	}
	n = min(n, len(q.prompt)-1-at)
	for i := 0; i < n; {
		block := min(n-i, len(s.specs))
		for j := range block {
			s.place(j, int32(row+i+j))
			s.specs[j] = kernels.SampleRow{InvT: q.params.invT(), Greedy: true, NumTop: q.params.TopLogProbs}
		}
		s.gather(e.model, hidden, block)
		if err := s.sample(e.model, 0, block); err != nil {
			return fmt.Errorf("infer: log-probs of the prompt: %w", err)
		}
		for j := range block {
			q.scores.Top[at+i+j+1] = slices.Clone(s.out[j].Top)
		}
		i += block
	}
	return nil
}

// Score returns the log-probs of given tokens under an adapter (nil: the base) at a temperature, as
// the sampler and the trainer compute them (entry 0 is 0: nothing predicts the first token), and
// the entropy of the distribution that follows each of them. Cached prefixes are not read.
func (e *Engine) Score(ctx context.Context, ids []int32, ad *weights.Adapter, temperature float64) (logp, entropy []float32, err error) {
	out, err := e.Generate(ctx, []Request{{Prompt: ids, Params: Params{PromptLogProbs: true, Adapter: ad, Temperature: temperature}}})
	if err != nil {
		return nil, nil, err
	}
	return out[0].Prompt.LogP, out[0].Prompt.Entropy, nil
}
