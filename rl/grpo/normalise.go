package grpo

import (
	"math"
	"slices"
	"strings"

	"graft/kernels/libm"
	"graft/rl"
)

// total is Σ weight·(l + beta·kl) − the entropy bonus, and sets the weights: the loss mask times
// the normaliser of the loss type. This is where trainers differ silently; the numbers are TRL's.
func (b *lossBatch) total(w Window) float64 {
	b.weight = make([]float64, len(b.mask))
	k := float64(w.MicroBatches)
	sum := 0.0
	for _, r := range b.rows {
		var by float64
		switch b.o.LossType {
		case GRPO, SAPO:
			by = max(1, r.len) * float64(w.Rows) * k
		case BNPO:
			by = max(1, b.tokens) * k
		case DrGRPO:
			by = float64(w.Rows) * float64(b.o.MaxCompletionLength) * k
		case LUSPO:
			by = float64(w.Rows) * k // a row counts as often as it has tokens
		default: // dapo, cispo, vespo
			by = max(1, w.Items)
		}
		for t := r.from; t < r.to; t++ {
			b.weight[t] = b.mask[t] / by
			l := b.obj[t]
			if b.kl != nil {
				l += float64(b.o.Beta * b.kl[t])
			}
			sum += float64(b.weight[t] * l)
		}
	}
	return sum - b.o.EntropyCoef*b.rewarded()/k
}

// rewarded is the mean entropy of the tokens that the bonus covers.
func (b *lossBatch) rewarded() float64 {
	sum, n := 0.0, 0.0
	for t, m := range b.bonus {
		sum += float64(m * b.entropy[t])
		n += m
	}
	return sum / max(1, n)
}

// gradient is that of total: dL/dlogp = weight·(∂l/∂logp + ∂l/∂ρ·∂ρ/∂logp + KL's), where ∂ρ/∂logp is
// ρ, or ρ·mask/len for every token of the row at the sequence level.
func (b *lossBatch) gradient(w Window) rl.TokenGrad {
	grad := rl.TokenGrad{DLogP: make([]float32, len(b.mask))}
	for _, r := range b.rows {
		through := 0.0 // the row's Σ ∂L/∂ρ
		for t := r.from; t < r.to; t++ {
			direct, byRatio := b.derivatives(t)
			if b.o.ImportanceSamplingLevel == Sequence {
				through += byRatio
				byRatio = 0
			}
			grad.DLogP[t] = float32(direct + float64(byRatio*b.ratio[t]))
		}
		if through == 0 {
			continue
		}
		for t := r.from; t < r.to; t++ {
			direct, _ := b.derivatives(t)
			grad.DLogP[t] = float32(direct + float64(through*b.ratio[t]*b.mask[t]/max(1, r.len)))
		}
	}
	if b.o.EntropyCoef != 0 {
		grad.DEntropy = make([]float32, len(b.mask))
		n := 0.0
		for _, m := range b.bonus {
			n += m
		}
		for t, m := range b.bonus {
			grad.DEntropy[t] = float32(-b.o.EntropyCoef * m / (max(1, n) * float64(w.MicroBatches)))
		}
	}
	return grad
}

// derivatives of the loss by token t's log-prob with ρ held, and by its ρ.
func (b *lossBatch) derivatives(t int) (direct, byRatio float64) {
	direct, byRatio = b.dLogP[t], b.dRatio[t]
	if b.kl != nil {
		d := b.ref[t] - b.logp[t]
		dk3 := -libm.Expm1(d)
		if b.o.UseBiasCorrectionKL {
			dk3 *= b.ratio[t]
			byRatio += float64(b.o.Beta * (libm.Expm1(d) - d))
		}
		direct += float64(b.o.Beta * dk3)
	}
	return float64(b.weight[t] * direct), float64(b.weight[t] * byRatio)
}

// masked is the mean over loss tokens.
func (b *lossBatch) masked(x []float64) float64 {
	sum := 0.0
	for t, v := range x {
		sum += float64(b.mask[t] * v)
	}
	return sum / max(1, b.tokens)
}

// stats are TRL's figures of a micro-batch.
func (b *lossBatch) stats(loss float64, w Window) rl.Stats {
	var s rl.Stats
	s.Set("loss", loss)
	if b.o.EntropyCoef != 0 {
		policy := loss + b.o.EntropyCoef*b.rewarded()/float64(w.MicroBatches)
		if !slices.Contains([]string{DAPO, CISPO, VESPO}, b.o.LossType) {
			policy *= float64(w.MicroBatches) // TRL shows the micro-batch's own, before the division
		}
		s.Set("policy_loss", policy)
		s.Set("entropy_coef", b.o.EntropyCoef)
	}
	if b.kl != nil {
		s.Set("kl", b.masked(b.kl))
	}
	s.Set("entropy", b.masked(b.entropy))
	b.clipStats(&s)
	if b.is != nil {
		b.correctionStats(&s)
	}
	return s
}

// clipStats say how many ratios lie outside the clip on the side where it acts.
func (b *lossBatch) clipStats(s *rl.Stats) {
	flag := func(f func(rho, adv float64) bool) (mean, low, high float64) {
		x := make([]float64, len(b.mask))
		for _, r := range b.rows {
			for t := r.from; t < r.to; t++ {
				if f(b.clipRatio(t), r.adv) {
					x[t] = 1
				}
			}
		}
		return b.flagged(x)
	}
	lo, hi := 1-b.o.Epsilon, 1+b.o.epsHigh()
	isLow := func(rho, adv float64) bool { return rho < lo && adv < 0 }
	isHigh := func(rho, adv float64) bool { return rho > hi && adv > 0 }
	switch {
	case b.o.clips():
		low, lowMin, _ := flag(isLow)
		high, _, highMax := flag(isHigh)
		region, _, _ := flag(func(rho, adv float64) bool { return isLow(rho, adv) || isHigh(rho, adv) })
		s.Set("clip_ratio/low_mean", low)
		s.Set("clip_ratio/low_min", lowMin)
		s.Set("clip_ratio/high_mean", high)
		s.Set("clip_ratio/high_max", highMax)
		s.Set("clip_ratio/region_mean", region)
	case b.o.LossType == CISPO:
		mean, _, _ := flag(func(rho, adv float64) bool { return rho > b.o.epsHigh() && adv > 0 })
		s.Set("cispo_clip_ratio", mean)
	case b.o.LossType == VESPO:
		sum := 0.0
		for _, phi := range b.phi {
			sum += phi
		}
		s.Set("vespo/phi_seq_mean", sum/float64(max(1, len(b.phi))))
	}
}

// clipRatio is the ratio that the clip sees.
func (b *lossBatch) clipRatio(t int) float64 {
	if b.o.Delta != 0 {
		return min(b.ratio[t], b.o.Delta)
	}
	return b.ratio[t]
}

// flagged averages flags over tokens (over rows at the sequence level) and finds the smallest and
// largest mean of a row.
func (b *lossBatch) flagged(x []float64) (mean, low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	rows := 0.0
	for _, r := range b.rows {
		sum, any := 0.0, 0.0
		for t := r.from; t < r.to; t++ {
			sum += float64(b.mask[t] * x[t])
			any = max(any, x[t])
		}
		share := sum / max(1, r.len)
		if b.o.ImportanceSamplingLevel == Sequence {
			share = any
		}
		rows += share
		low, high = min(low, share), max(high, share)
	}
	if len(b.rows) == 0 {
		return 0, 0, 0
	}
	if b.o.ImportanceSamplingLevel == Sequence {
		return rows / float64(len(b.rows)), low, high
	}
	return b.masked(x), low, high
}

// correctionStats describe sampler/trainer differences and the weights that correct for them.
func (b *lossBatch) correctionStats(s *rl.Stats) {
	var differences, ratios []float64
	for _, r := range b.rows {
		for t := r.from; t < r.to; t++ {
			if b.mask[t] != 0 {
				if !math.IsNaN(b.sampler[t]) {
					differences = append(differences, math.Abs(b.difference(t)))
				}
				ratios = append(ratios, b.is[t])
			}
		}
	}
	if strings.HasPrefix(b.o.ISMode, "sequence_") {
		ratios = ratios[:0]
		for _, r := range b.rows {
			if r.to > r.from {
				ratios = append(ratios, b.is[r.from])
			}
		}
	}
	_, mean, most := extent(differences)
	s.Set("sampling/sampling_logp_difference/mean", mean)
	s.Set("sampling/sampling_logp_difference/max", most)
	low, mean, high := extent(ratios)
	s.Set("sampling/importance_sampling_ratio/min", low)
	s.Set("sampling/importance_sampling_ratio/mean", mean)
	s.Set("sampling/importance_sampling_ratio/max", high)
}

// extent is the smallest, mean and largest entry, zeros where there is none.
func extent(x []float64) (low, mean, high float64) {
	if len(x) == 0 {
		return 0, 0, 0
	}
	for _, v := range x {
		mean += v
	}
	return slices.Min(x), mean / float64(len(x)), slices.Max(x)
}
