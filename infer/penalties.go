package infer

import (
	"encoding/binary"
	"math"
	"slices"

	"graft/kernels"
)

func (p *Params) biased() bool {
	return len(p.LogitBias) > 0 || p.PresencePenalty != 0 || p.FrequencyPenalty != 0 || p.RepetitionPenalty != 1
}

// penalties is what is added to raw logits before the draw, in vLLM's order: logit_bias, then the
// repetition penalty (Keskar et al. 2019, on prompt and completion) on the biased logit, then
// frequency and presence penalties (OpenAI, on the completion). logits reads raw logits.
func (q *sequence) penalties(logits func(ids []int32) []float32) []kernels.TokenBias {
	p := &q.req.params
	count := map[int32]int{} // how often a token was generated; 0: it only has a bias or is in the prompt
	for id := range p.LogitBias {
		count[id] = 0
	}
	var seen map[int32]bool
	if p.RepetitionPenalty != 1 {
		seen = map[int32]bool{}
		for _, id := range q.Tokens {
			seen[id] = true
			count[id] = 0
		}
	}
	for _, id := range q.Tokens[q.PromptLen:] {
		count[id]++
	}
	ids := make([]int32, 0, len(count))
	for id := range count {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var raw []float32
	if seen != nil {
		raw = logits(ids)
	}
	q.bias = q.bias[:0]
	for i, id := range ids {
		bias := float64(p.LogitBias[id])
		if seen[id] {
			if z := float64(raw[i]) + bias; z > 0 {
				bias += z/p.RepetitionPenalty - z
			} else {
				bias += z*p.RepetitionPenalty - z
			}
		}
		if n := count[id]; n > 0 {
			bias -= float64(p.FrequencyPenalty*float64(n)) + p.PresencePenalty
		}
		if bias != 0 {
			q.bias = append(q.bias, kernels.TokenBias{ID: id, Value: float32(bias)})
		}
	}
	return q.bias
}

func float32FromBytes(b []byte) float32 { return math.Float32frombits(binary.NativeEndian.Uint32(b)) }
