package grpo

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"graft/kernels/libm"
	"graft/rl"
)

// Window is what a loss must know beyond its micro-batch to normalise as one optimizer step.
type Window struct {
	Rows         int     // B: rows of the micro-batch, fully masked ones that were left out included
	MicroBatches int     // K: micro-batches of the optimizer step
	Items        float64 // N: loss tokens of the optimizer step: those of the generation batch × K / steps_per_generation
}

// Loss is one micro-batch's share of the loss of an optimizer step and its gradient by each token's
// log-prob and entropy. logp and entropy are the policy's, in order of rollouts, then tokens. The
// ratio is taken against Rollout.OldLogP, or against logp itself where that is nil; the sampler's
// Rollout.LogP serves the importance sampling correction and the off-policy mask. Stats hold loss
// and TRL's figures, each a mean over the micro-batch. The values are those of TRL 1.16.
func (o *LossOptions) Loss(batch []rl.Rollout, logp, entropy []float32, w Window) (rl.TokenGrad, rl.Stats, error) {
	b, err := newLossBatch(o, batch, logp, entropy)
	if err != nil {
		return rl.TokenGrad{}, rl.Stats{}, err
	}
	if w.Rows < len(batch) || w.MicroBatches < 1 {
		return rl.TokenGrad{}, rl.Stats{}, fmt.Errorf("grpo: a window of %d rows and %d micro-batches for %d rollouts", w.Rows, w.MicroBatches, len(batch))
	}
	b.ratios()
	b.correction()
	b.objective()
	b.keepTopEntropy()
	b.keepOnPolicy()
	loss := b.total(w)
	stats := b.stats(loss, w)
	return b.gradient(w), stats, nil
}

// row is a rollout's place in the flat slices of a lossBatch.
type row struct {
	from, to int
	len      float64 // Σ mask
	adv      float64
}

// lossBatch holds a micro-batch in float64. Per token: the objective l and its derivatives, by the
// ratio ρ and directly by logp, before the mask and the normaliser.
type lossBatch struct {
	o       *LossOptions
	rows    []row
	tokens  float64 // Σ mask
	mask    []float64
	logp    []float64
	old     []float64
	sampler []float64 // NaN where unknown
	ref     []float64 // nil without KL
	entropy []float64

	ratio  []float64 // ρ by token; the same in a whole row when the level is sequence
	is     []float64 // importance sampling correction; nil: none
	obj    []float64
	dRatio []float64
	dLogP  []float64
	kl     []float64 // k3, times ρ with bias correction; nil without
	phi    []float64 // vespo's weight by row
	bonus  []float64 // mask of the tokens whose entropy is rewarded

	weight []float64 // normaliser · mask by token, for the gradient
}

func newLossBatch(o *LossOptions, batch []rl.Rollout, logp, entropy []float32) (*lossBatch, error) {
	n := rl.Tokens(batch)
	if len(logp) != n || len(entropy) != n {
		return nil, fmt.Errorf("grpo: %d log-probs and %d entropies for %d tokens", len(logp), len(entropy), n)
	}
	b := &lossBatch{o: o, mask: make([]float64, n), old: make([]float64, n), sampler: make([]float64, n),
		logp: widen(logp), entropy: widen(entropy), ratio: make([]float64, n), obj: make([]float64, n), dRatio: make([]float64, n), dLogP: make([]float64, n)}
	if o.Beta != 0 {
		b.ref, b.kl = make([]float64, n), make([]float64, n)
	}
	at := 0
	for i := range batch {
		r := &batch[i]
		one := row{from: at, to: at + r.Len(), adv: r.Advantage}
		for _, c := range []struct {
			name     string
			x        []float32
			required bool
		}{
			{"old log-probs", r.OldLogP, false}, {"sampler log-probs", r.LogP, o.ISCorrection}, {"reference log-probs", r.RefLogP, o.Beta != 0},
		} {
			if len(c.x) != r.Len() && (c.x != nil || c.required) {
				return nil, fmt.Errorf("grpo: completion %d of group %d has %d %s for %d tokens", r.Sample, r.Group, len(c.x), c.name, r.Len())
			}
		}
		for t := range r.Len() {
			b.mask[at] = float64(r.Weight(t))
			one.len += b.mask[at]
			b.old[at], b.sampler[at] = b.logp[at], math.NaN()
			if r.OldLogP != nil {
				b.old[at] = float64(r.OldLogP[t])
			}
			if r.LogP != nil {
				b.sampler[at] = float64(r.LogP[t])
			}
			if b.ref != nil {
				b.ref[at] = float64(r.RefLogP[t])
			}
			at++
		}
		b.tokens += one.len
		b.rows = append(b.rows, one)
	}
	b.bonus = slices.Clone(b.mask)
	return b, nil
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// ratios sets ρ = exp(logp − old), or for the sequence level the exponential of its mean over the
// row, and the KL estimate k3 = exp(ref−logp) − (ref−logp) − 1.
func (b *lossBatch) ratios() {
	for _, r := range b.rows {
		mean := 0.0
		for t := r.from; t < r.to; t++ {
			d := b.logp[t] - b.old[t]
			mean += float64(b.mask[t] * d)
			b.ratio[t] = libm.Exp(d)
		}
		if b.o.ImportanceSamplingLevel == Sequence {
			rho := libm.Exp(mean / max(1, r.len))
			for t := r.from; t < r.to; t++ {
				b.ratio[t] = rho
			}
		}
	}
	for t := range b.kl {
		d := b.ref[t] - b.logp[t]
		b.kl[t] = libm.Expm1(d) - d
		if b.o.UseBiasCorrectionKL {
			b.kl[t] *= b.ratio[t]
		}
	}
}

// correction sets the weights of TIS and MIS from d = (old − sampler)·mask: exp(d), or that of its
// sum over the row; truncated to [min, max] or zeroed outside. An unknown sampler log-prob counts
// as no difference.
func (b *lossBatch) correction() {
	if !b.o.ISCorrection {
		return
	}
	b.is = make([]float64, len(b.mask))
	for _, r := range b.rows {
		sum := 0.0
		for t := r.from; t < r.to; t++ {
			d := float64(b.difference(t) * b.mask[t])
			sum += d
			b.is[t] = b.bounded(libm.Exp(d))
		}
		if strings.HasPrefix(b.o.ISMode, "sequence_") {
			for t := r.from; t < r.to; t++ {
				b.is[t] = b.bounded(libm.Exp(sum))
			}
		}
	}
}

// difference is old − sampler, 0 where the sampler's log-prob is unknown.
func (b *lossBatch) difference(t int) float64 { return zeroNaN(b.old[t] - b.sampler[t]) }

func (b *lossBatch) bounded(w float64) float64 {
	lo, hi := b.o.ISClipMin, b.o.ISClipMax
	if hi == 0 {
		hi = math.Inf(1)
	}
	if w >= lo && w <= hi {
		return w
	}
	if strings.HasSuffix(b.o.ISMode, "_mask") {
		return 0
	}
	return min(max(w, lo), hi)
}

// objective sets l and its derivatives by loss type, the correction included.
func (b *lossBatch) objective() {
	for _, r := range b.rows {
		phi := 0.0
		if b.o.LossType == VESPO {
			phi = b.gamma(r)
			b.phi = append(b.phi, phi)
		}
		for t := r.from; t < r.to; t++ {
			switch b.o.LossType {
			case CISPO:
				c := min(b.ratio[t], b.o.epsHigh())
				b.obj[t], b.dLogP[t] = -c*r.adv*b.logp[t], -c*r.adv
			case VESPO:
				b.obj[t], b.dLogP[t] = -phi*r.adv*b.logp[t], -phi*r.adv
			case SAPO:
				b.obj[t], b.dRatio[t] = b.softGate(b.ratio[t], r.adv)
			default:
				b.obj[t], b.dRatio[t] = b.clipped(b.ratio[t], r.adv)
			}
			if b.is != nil && b.o.LossType != VESPO {
				b.obj[t] *= b.is[t]
				b.dRatio[t] *= b.is[t]
				b.dLogP[t] *= b.is[t]
			}
		}
	}
}

// clipped is −min(min(ρ, δ)·A, clip(ρ, 1−ε, 1+ε')·A) and its derivative by ρ. Where both are equal
// each carries half, as in torch.
func (b *lossBatch) clipped(rho, adv float64) (l, d float64) {
	lo, hi := 1-b.o.Epsilon, 1+b.o.epsHigh()
	first, dFirst := rho, 1.0
	if b.o.Delta != 0 && rho > b.o.Delta {
		first, dFirst = b.o.Delta, 0
	}
	second, dSecond := rho, 1.0
	if rho < lo || rho > hi {
		second, dSecond = min(max(rho, lo), hi), 0
	}
	x, y := first*adv, second*adv
	switch {
	case x < y:
		return -x, -dFirst * adv
	case y < x:
		return -y, -dSecond * adv
	}
	return -x, -0.5 * (dFirst + dSecond) * adv
}

// softGate is SAPO's −(4/τ)·σ(τ(ρ−1))·A.
func (b *lossBatch) softGate(rho, adv float64) (l, d float64) {
	tau := b.o.SAPOTemperatureNeg
	if adv > 0 {
		tau = b.o.SAPOTemperaturePos
	}
	s := libm.Sigmoid(tau * (rho - 1))
	return -4 / tau * s * adv, -4 * s * (1 - s) * adv
}

// gamma is VESPO's weight of a row: φ(W) = exp(λ + k·ln W − λ·W), 1 at W = 1, without gradient.
// ln W sums the row's log-ratios, each within ±20, and the logs of the correction.
func (b *lossBatch) gamma(r row) float64 {
	floor := libm.Log(1e-8)
	sum := 0.0
	for t := r.from; t < r.to; t++ {
		d := min(max(b.logp[t]-b.old[t], -20), 20)
		if b.is != nil {
			d += libm.Log(max(b.is[t], 1e-8))
		}
		sum += float64(d * b.mask[t])
	}
	sum = min(max(sum, floor), 20)
	k, lambda := b.o.VESPOKPos, b.o.VESPOLambdaPos
	if r.adv < 0 {
		k, lambda = b.o.VESPOKNeg, b.o.VESPOLambdaNeg
	}
	return libm.Exp(lambda + float64(k*sum) - float64(lambda*libm.Exp(sum)))
}

// keepTopEntropy zeroes the objective of all but the tokens of highest entropy in the micro-batch
// (Wang et al. 2025, arXiv 2506.01939); the entropy bonus is theirs too. The KL term stays. The threshold is torch's float32 quantile.
func (b *lossBatch) keepTopEntropy() {
	if b.o.TopEntropyQuantile == 1 || b.tokens == 0 {
		return
	}
	var seen []float64
	for t, h := range b.entropy {
		if b.mask[t] != 0 {
			seen = append(seen, h)
		}
	}
	slices.Sort(seen)
	rank := float32(1-b.o.TopEntropyQuantile) * float32(len(seen)-1)
	below := int(math.Floor(float64(rank)))
	above := min(below+1, len(seen)-1)
	part := float64(rank) - float64(below)
	threshold := float64(float32(seen[below] + float64(part*(seen[above]-seen[below]))))
	for t, h := range b.entropy {
		if h < threshold {
			b.drop(t)
			b.bonus[t] = 0
		}
	}
}

// keepOnPolicy drops rows with a negative advantage whose tokens the policy has meanwhile made less
// likely by more than the threshold on average (DeepSeek-V3.2). The KL term stays.
func (b *lossBatch) keepOnPolicy() {
	if b.o.OffPolicyMaskThreshold == nil {
		return
	}
	for _, r := range b.rows {
		sum := 0.0
		for t := r.from; t < r.to; t++ {
			was := b.sampler[t]
			if math.IsNaN(was) {
				was = b.old[t]
			}
			sum += float64((was - b.logp[t]) * b.mask[t])
		}
		if r.adv < 0 && sum/max(1, r.len) > *b.o.OffPolicyMaskThreshold {
			for t := r.from; t < r.to; t++ {
				b.drop(t)
			}
		}
	}
}

func (b *lossBatch) drop(t int) { b.obj[t], b.dRatio[t], b.dLogP[t] = 0, 0, 0 }
