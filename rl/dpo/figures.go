package dpo

import "graft/rl"

// figures are TRL's of a micro-batch: rewards are beta times the log-ratios.
func (o *LossOptions) figures(s *rl.Stats, pairs []pair, batch []rl.Rollout, entropy []float32) {
	n := float64(len(pairs))
	var chosen, rejected, right, logpW, logpL float64
	for i := range pairs {
		p := &pairs[i]
		w, l := o.Beta*p.w.ratio, o.Beta*p.l.ratio
		chosen, rejected = chosen+w, rejected+l
		logpW, logpL = logpW+p.w.logp, logpL+p.l.logp
		if w > l {
			right++
		}
	}
	s.Set("rewards/chosen", chosen/n)
	s.Set("rewards/rejected", rejected/n)
	s.Set("rewards/accuracies", right/n)
	s.Set("rewards/margins", (chosen-rejected)/n)
	s.Set("logps/chosen", logpW/n)
	s.Set("logps/rejected", logpL/n)
	sum, tokens, at := 0.0, 0.0, 0
	for i := range batch {
		for t := range batch[i].Len() {
			w := float64(batch[i].Weight(t))
			sum += float64(w * float64(entropy[at]))
			tokens += w
			at++
		}
	}
	s.Set("entropy", sum/max(1, tokens))
}
