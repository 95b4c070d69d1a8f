package dpo

import (
	"fmt"
	"math"
	"slices"

	"graft/kernels/libm"
	"graft/rl"
)

// side is one completion of a pair.
type side struct {
	from, to int     // its tokens in the flat slices
	n        float64 // loss tokens
	logp     float64 // Σ weight·logp: the policy's, long tails weighed by ld_alpha
	plain    float64 // Σ mask·logp
	ratio    float64 // logp − the reference's
	score    float64 // f(ratio) of the f-divergence
	slope    float64 // f'(ratio)
	mask     []float64
	weight   []float64 // mask, times ld_alpha in the tail
	dRatio   float64   // dL/dratio
}

// pair is a chosen and a rejected completion of a prompt.
type pair struct{ w, l side }

// Loss is the loss of one of `micro` micro-batches of an optimizer step and its gradient by each
// token's log-prob. Rollouts come in pairs, chosen then rejected, with RefLogP set. The loss is the
// mean over pairs, divided by micro. Stats hold TRL's figures. The values are those of TRL 1.16.
func (o *LossOptions) Loss(batch []rl.Rollout, logp, entropy []float32, micro int) (rl.TokenGrad, rl.Stats, error) {
	var stats rl.Stats
	if n := rl.Tokens(batch); len(logp) != n || len(entropy) != n || micro < 1 {
		return rl.TokenGrad{}, stats, fmt.Errorf("dpo: %d log-probs and %d entropies for %d tokens, %d micro-batches", len(logp), len(entropy), n, micro)
	}
	pairs, err := o.pairs(batch, logp)
	if err != nil {
		return rl.TokenGrad{}, stats, err
	}
	grad := make([]float64, len(logp))
	total := 0.0
	for k, kind := range o.LossType {
		by := 1.0
		if o.LossWeights != nil {
			by = o.LossWeights[k]
		}
		total += float64(by * o.one(kind, pairs, by, grad, logp))
	}
	scale := 1 / float64(micro)
	for i := range pairs {
		for _, s := range []*side{&pairs[i].w, &pairs[i].l} {
			for t, w := range s.weight {
				grad[s.from+t] += float64(s.dRatio * w / float64(len(pairs)))
			}
		}
	}
	out := rl.TokenGrad{DLogP: make([]float32, len(grad))}
	for t, g := range grad {
		out.DLogP[t] = float32(g * scale)
	}
	stats.Set("loss", total*scale)
	o.figures(&stats, pairs, batch, entropy)
	return out, stats, nil
}

// pairs sums log-probs and forms the ratios to the reference.
func (o *LossOptions) pairs(batch []rl.Rollout, logp []float32) ([]pair, error) {
	if len(batch) == 0 || len(batch)%2 != 0 {
		return nil, fmt.Errorf("dpo: %d rollouts are not pairs of chosen and rejected", len(batch))
	}
	out := make([]pair, len(batch)/2)
	at := 0
	for i := range batch {
		r := &batch[i]
		if len(r.RefLogP) != r.Len() {
			return nil, fmt.Errorf("dpo: rollout %d has %d reference log-probs for %d tokens", i, len(r.RefLogP), r.Len())
		}
		s := &out[i/2].w
		if i%2 == 1 {
			s = &out[i/2].l
		}
		s.from, s.to = at, at+r.Len()
		shared := min(r.Len(), batch[i^1].Len())
		reference := 0.0
		for t := range r.Len() {
			w := float64(r.Weight(t))
			s.n += w
			s.mask = append(s.mask, w)
			lp := float64(logp[at+t])
			s.plain += float64(w * lp)
			if o.LDAlpha != nil && t >= shared {
				w *= *o.LDAlpha
			}
			s.weight = append(s.weight, w)
			s.logp += float64(w * lp)
			reference += float64(w * float64(r.RefLogP[t]))
		}
		if s.n == 0 {
			return nil, fmt.Errorf("dpo: rollout %d has no completion token to learn from", i)
		}
		s.ratio = s.logp - reference
		s.score, s.slope = o.divergence(s.ratio)
		at = s.to
	}
	return out, nil
}

// divergence is the f-divergence's score of a log-ratio and its slope (Wang et al. 2023, arXiv
// 2309.16240). Exponents are capped so that an outlier stays finite.
func (o *LossOptions) divergence(x float64) (score, slope float64) {
	const most = 80
	switch o.FDivergenceType {
	case "forward_kl":
		e := libm.Exp(min(-x, most))
		return 1 - e, e
	case "js_divergence":
		return libm.LogSigmoid(x) + math.Ln2, libm.Sigmoid(-x)
	case "alpha_divergence":
		a := o.FAlphaDivergenceCoef - 1
		if math.Abs(a) < 1e-6 {
			return x, 1
		}
		e := libm.Exp(min(float64(a*x), most))
		return (e - 1) / a, e
	}
	return x, 1
}

// one returns the mean of one loss over the pairs and adds by·dL/dratio to each side; "sft" adds
// its gradient to the tokens directly.
func (o *LossOptions) one(kind string, pairs []pair, by float64, grad []float64, logp []float32) float64 {
	switch kind {
	case "sft":
		return o.sft(pairs, by, grad, logp)
	case "aot", "aot_unpaired":
		return o.transport(kind, pairs, by)
	}
	sum := 0.0
	for i := range pairs {
		p := &pairs[i]
		loss, dw, dl := o.pairwise(kind, p)
		sum += float64(loss)
		p.w.dRatio += float64(by * dw)
		p.l.dRatio += float64(by * dl)
	}
	return sum / float64(len(pairs))
}

// pairwise is the loss of one pair and its derivatives by both log-ratios.
func (o *LossOptions) pairwise(kind string, p *pair) (loss, dw, dl float64) {
	b, e := o.Beta, o.LabelSmoothing
	delta := p.w.score - p.l.score
	byDelta := func(loss, d float64) (float64, float64, float64) { return loss, d * p.w.slope, -d * p.l.slope }
	c, r := p.w.ratio, p.l.ratio
	z := b * delta
	switch kind {
	case "sigmoid":
		return byDelta(-libm.LogSigmoid(z), -b*libm.Sigmoid(-z))
	case "hinge":
		if z >= 1 {
			return 0, 0, 0
		}
		return byDelta(1-z, -b)
	case "robust":
		good, bad := -libm.LogSigmoid(z), -libm.LogSigmoid(-z)
		d := float64(-(1-e)*libm.Sigmoid(-z)) - float64(e*libm.Sigmoid(z))
		return byDelta((float64((1-e)*good)-float64(e*bad))/(1-2*e), b*d/(1-2*e))
	case "exo_pair":
		return byDelta(o.exo(z))
	case "discopop":
		return byDelta(o.discopop(z))
	case "ipo":
		x := p.w.score/p.w.n - p.l.score/p.l.n - 1/(2*b)
		return x * x, 2 * x * p.w.slope / p.w.n, -2 * x * p.l.slope / p.l.n
	case "sigmoid_norm":
		x := b * (p.w.score/p.w.n - p.l.score/p.l.n)
		d := -b * libm.Sigmoid(-x)
		return -libm.LogSigmoid(x), d * p.w.slope / p.w.n, -d * p.l.slope / p.l.n
	case "nca_pair":
		loss = -libm.LogSigmoid(b*c) - float64(0.5*libm.LogSigmoid(-b*c)) - float64(0.5*libm.LogSigmoid(-b*r))
		return loss, b * (float64(0.5*libm.Sigmoid(b*c)) - libm.Sigmoid(-b*c)), b * 0.5 * libm.Sigmoid(b*r)
	case "bco_pair":
		return -libm.LogSigmoid(b*c) - libm.LogSigmoid(-b*r), -b * libm.Sigmoid(-b*c), b * libm.Sigmoid(b*r)
	case "sppo_hard":
		x, y := c-0.5/b, r+0.5/b
		return float64(x*x) + float64(y*y), 2 * x, 2 * y
	case "apo_zero":
		return libm.Sigmoid(-b*c) + libm.Sigmoid(b*r), -b * bell(b*c), b * bell(b*r)
	case "apo_down":
		d := float64(b * bell(b*(c-r)))
		return libm.Sigmoid(b*c) + libm.Sigmoid(-b*(c-r)), float64(b*bell(b*c)) - d, d
	}
	panic("dpo: loss_type " + kind + " was not validated")
}

// bell is σ(x)·σ(−x), the slope of σ.
func bell(x float64) float64 { return libm.Sigmoid(x) * libm.Sigmoid(-x) }

// exo is the reverse KL between the policy's and the smoothed preference (Ji et al. 2024).
func (o *LossOptions) exo(z float64) (loss, d float64) {
	e := o.LabelSmoothing
	if e == 0 {
		e = 1e-3
	}
	win := libm.LogSigmoid(z) - libm.Log(1-e)
	lose := libm.LogSigmoid(-z) - libm.Log(e)
	loss = float64(libm.Sigmoid(z)*win) + float64(libm.Sigmoid(-z)*lose)
	return loss, o.Beta * bell(z) * (win - lose)
}

// discopop blends logistic and exponential loss (Lu et al. 2024, arXiv 2406.08414).
func (o *LossOptions) discopop(z float64) (loss, d float64) {
	m := libm.Sigmoid(z / o.DiscopopTau)
	logistic, exponential := -libm.LogSigmoid(z), libm.Exp(-z)
	loss = float64(logistic*(1-m)) + float64(exponential*m)
	dm := bell(z/o.DiscopopTau) / o.DiscopopTau
	d = float64(-libm.Sigmoid(-z)*(1-m)) - float64(exponential*m) + float64(dm*(exponential-logistic))
	return loss, o.Beta * d
}

// transport is alignment via optimal transport (Melnyk et al. 2024, arXiv 2406.05882): the k-th
// largest value of one set against the k-th largest of another over the micro-batch. aot compares
// the policy's margins with the reference's, aot_unpaired chosen with rejected ratios.
func (o *LossOptions) transport(kind string, pairs []pair, by float64) float64 {
	n := len(pairs)
	first, second := make([]float64, n), make([]float64, n)
	for i, p := range pairs {
		if kind == "aot" {
			first[i] = p.w.logp - p.l.logp
			second[i] = (p.w.logp - p.w.ratio) - (p.l.logp - p.l.ratio)
		} else {
			first[i], second[i] = p.w.ratio, p.l.ratio
		}
	}
	a, c := ascending(first), ascending(second)
	sum := 0.0
	for k := range n {
		z := o.Beta * (first[a[k]] - second[c[k]])
		sum += float64(-(1-o.LabelSmoothing)*libm.LogSigmoid(z)) - float64(o.LabelSmoothing*libm.LogSigmoid(-z))
		d := float64(by * o.Beta * (float64(o.LabelSmoothing*libm.Sigmoid(z)) - float64((1-o.LabelSmoothing)*libm.Sigmoid(-z))))
		pairs[a[k]].w.dRatio += d
		if kind == "aot" {
			pairs[a[k]].l.dRatio -= d
		} else {
			pairs[c[k]].l.dRatio -= d
		}
	}
	return sum / float64(n)
}

func ascending(x []float64) []int {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case x[a] < x[b]:
			return -1
		case x[a] > x[b]:
			return 1
		}
		return 0
	})
	return order
}

// sft is the token mean of −logp over the chosen completions of the micro-batch.
func (o *LossOptions) sft(pairs []pair, by float64, grad []float64, logp []float32) float64 {
	sum, n := 0.0, 0.0
	for i := range pairs {
		sum, n = sum-pairs[i].w.plain, n+pairs[i].w.n
	}
	for i := range pairs {
		w := &pairs[i].w
		for t, m := range w.mask {
			grad[w.from+t] -= by * m / n
		}
	}
	return sum / n
}
