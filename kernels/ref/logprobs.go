package ref

import (
	"math"

	"graft/kernels"
	"graft/kernels/libm"
	"graft/kernels/quant"
)

// LogProbs implements kernels.Backend.
func (b *Backend) LogProbs(a *kernels.LogProbsArgs) { logProbs(a).Forward() }

// LogProbsBackward implements kernels.Backend. It recomputes what the forward stored.
func (b *Backend) LogProbsBackward(a *kernels.LogProbsArgs, g *kernels.LogProbsGrad) {
	logProbs(a).Backward(g.DLogP.F32(), g.DEntropy.F32(), matrix(g.DHidden), weights(g.DW))
}

func logProbs(a *kernels.LogProbsArgs) *LogProbs[float32] {
	return &LogProbs[float32]{LogP: a.LogP.F32(), Entropy: a.Entropy.F32(), LSE: a.LSE.F32(),
		Hidden: matrix(a.Hidden), W: weights(a.W), PairRows: a.PairRows.I32(), Targets: a.Targets.I32(),
		InvT: a.InvT.F32(), Softcap: float64(a.Softcap)}
}

// LogProbs is kernels.LogProbsArgs.
type LogProbs[T Float] struct {
	LogP, Entropy, LSE []T
	Hidden, W          Matrix[T]
	PairRows, Targets  []int32
	InvT               []T
	Softcap            float64
}

// logits returns softcap(hidden·wᵀ) and the slope of the cap at each.
func logits[T Float](hidden []T, w Matrix[T], softcap float64) (z, slope []float64) {
	hidden = w.input(hidden)
	z, slope = make([]float64, w.Rows), make([]float64, w.Rows)
	for i := range z {
		z[i], slope[i] = dot(hidden, w.Row(i)), 1
		if softcap > 0 {
			t := libm.Tanh(z[i] / softcap)
			z[i], slope[i] = softcap*t, 1-float64(t*t)
		}
	}
	return z, slope
}

// scaled is z·invT, a new slice.
func scaled(z []float64, invT float64) []float64 {
	s := make([]float64, len(z))
	for i, v := range z {
		s[i] = v * invT
	}
	return s
}

// logSumExp is log Σ exp(z), shifted by the largest.
func logSumExp(z []float64) float64 {
	most := math.Inf(-1)
	for _, v := range z {
		most = math.Max(most, v)
	}
	var sum float64
	for _, v := range z {
		sum += libm.Exp(v - most)
	}
	return most + libm.Log(sum)
}

// entropy is −Σ p·log p of softmax(z), in the form logsumexp − Σ p·z.
func entropy(z []float64, lse float64) float64 {
	var mean float64
	for _, v := range z {
		mean += float64(libm.Exp(v-lse) * v)
	}
	return lse - mean
}

// Forward is logp[i] = z[targets[i]] − logsumexp(z) of row pairRows[i], with
// z = softcap(hidden·wᵀ)·invT; and each row's entropy.
func (a *LogProbs[T]) Forward() {
	pair := 0
	for m := range a.Hidden.Rows {
		raw, _ := logits(a.Hidden.Row(m), a.W, a.Softcap)
		z := scaled(raw, float64(a.InvT[m]))
		lse := logSumExp(z)
		a.LSE[m], a.Entropy[m] = T(lse), T(entropy(z, lse))
		for ; pair < len(a.PairRows) && int(a.PairRows[pair]) == m; pair++ {
			a.LogP[pair] = T(z[a.Targets[pair]] - lse)
		}
	}
}

// Backward differentiates Forward. For u = hidden·wᵀ:
// du = (Σᵢ dlogp[i]·(1[yᵢ]−p) − dentropy·p·(log p + H))·invT·slope, dhidden = du·w, dw += duᵀ·hidden.
func (a *LogProbs[T]) Backward(dlogp, dentropy []T, dhidden, dw Matrix[T]) {
	pair, turned := 0, a.W.outputs()
	for m := range a.Hidden.Rows {
		raw, slope := logits(a.Hidden.Row(m), a.W, a.Softcap)
		invT := float64(a.InvT[m])
		z := scaled(raw, invT)
		lse := logSumExp(z)
		h, du := entropy(z, lse), make([]float64, len(z))
		var weight float64 // Σ dlogp of the row's pairs
		for ; pair < len(a.PairRows) && int(a.PairRows[pair]) == m; pair++ {
			weight += float64(dlogp[pair])
			du[a.Targets[pair]] += float64(dlogp[pair])
		}
		for v := range du {
			p := libm.Exp(z[v] - lse)
			du[v] -= float64(weight*p) + float64(float64(dentropy[m])*p*(z[v]-lse+h))
			du[v] *= float64(invT * slope[v])
		}
		a.backwardRow(m, du, turned, dhidden, dw)
	}
}

func (a *LogProbs[T]) backwardRow(m int, du []float64, turned, dhidden, dw Matrix[T]) {
	sum, row := make([]float64, a.Hidden.Cols), du
	if a.W.Rounds {
		row = rounded(du, quant.QuantizeGradients)
	}
	for v, d := range du {
		for c, w := range turned.Row(v) {
			sum[c] += float64(row[v] * float64(w))
		}
		if dw.Present() {
			for c, x := range a.Hidden.Row(m) {
				grow(&dw.Row(v)[c], float64(d*float64(x)))
			}
		}
	}
	if dhidden.Present() {
		for c, v := range sum {
			dhidden.Row(m)[c] = T(v)
		}
	}
}
