package infer

import (
	"fmt"
	"math"

	"graft/infer/paged"
	"graft/weights"
)

// Params say how a request is sampled. Log-probs are always those of logits/Temperature over the
// whole vocabulary (temperature 1 for greedy); everything else only changes the draw.
type Params struct {
	N         int // completions of the prompt; 0 means 1
	MaxTokens int // 0 only with PromptLogProbs: nothing is sampled
	MinTokens int // no stop before that many tokens

	Temperature float64 // 0: greedy, the most probable token
	TopK        int     // 0: off
	TopP        float64 // 0 or 1: off
	MinP        float64 // 0: off

	// The draw of a token is rng.New(Seed, "sample").Uniform(Draw[0], Draw[1], Draw[2]+index,
	// position): step and prompt of a run, number of the first sample, position in the sequence.
	Seed uint64
	Draw [3]uint32

	Stop        []string // end the text where one of them begins
	StopIDs     []int32  // end with one of these tokens, beside the tokenizer's
	IgnoreEOS   bool     // the tokenizer's own stop tokens do not end it
	IncludeStop bool     // the stop string or token shows in the text
	KeepSpecial bool     // special tokens show in the text

	TopLogProbs    int  // most probable tokens to report beside each sampled one
	PromptLogProbs bool // report the prompt's own log-probs too

	LogitBias         map[int32]float32
	PresencePenalty   float64 // off the logits of generated tokens
	FrequencyPenalty  float64 // off them once for each time
	RepetitionPenalty float64 // divides (or multiplies negative) logits of all tokens so far; 0 or 1: off

	Adapter   *weights.Adapter // nil: the base model
	CacheSalt string           // only requests with the same salt share cached prefixes
	Priority  int              // lower runs first
}

// Bounds of a request.
const (
	MaxN           = 1 << 10
	MaxTopLogProbs = 128
	MaxStops       = 64
	MaxStopBytes   = 1 << 12
	MaxLogitBias   = 1 << 14
	minTemperature = 1e-4
	maxTemperature = 100
)

// Request is a prompt, in tokens, with its parameters.
type Request struct {
	Prompt []int32
	Params Params
}

// RequestError is a request that Submit refused: the caller's mistake, not the engine's state.
type RequestError struct {
	Param   string // the field that is wrong, in the words of the OpenAI API: "max_tokens"
	Message string
}

func (e *RequestError) Error() string { return "infer: " + e.Message }

func refuse(param, format string, args ...any) error {
	return &RequestError{Param: param, Message: fmt.Sprintf(format, args...)}
}

func between(param string, v, lo, hi float64) error {
	if !(v >= lo && v <= hi) {
		return refuse(param, "%s is %g, want %g to %g", param, v, lo, hi)
	}
	return nil
}

// withDefaults turns "off" spelled as 0 into numbers.
func (p Params) withDefaults() Params {
	if p.N == 0 {
		p.N = 1
	}
	if p.TopP == 0 {
		p.TopP = 1
	}
	if p.RepetitionPenalty == 0 {
		p.RepetitionPenalty = 1
	}
	return p
}

// check refuses what can not be computed, before anything is allocated for it.
func (e *Engine) check(r *Request) error {
	p, vocab := &r.Params, e.model.Config.Vocab
	if err := checkTokens("prompt", r.Prompt, vocab); err != nil {
		return err
	}
	if len(r.Prompt) == 0 {
		return refuse("prompt", "the prompt is empty: give at least one token (the tokenizer's BOS, if it has one)")
	}
	if p.N < 1 || p.N > MaxN {
		return refuse("n", "n is %d, want 1 to %d", p.N, MaxN)
	}
	if err := p.checkLengths(); err != nil {
		return err
	}
	if err := p.checkNumbers(); err != nil {
		return err
	}
	if err := p.checkTokens(e, vocab); err != nil {
		return err
	}
	return e.checkFit(r)
}

// checkFit compares the request with what the engine was made for.
func (e *Engine) checkFit(r *Request) error {
	p, total := &r.Params, len(r.Prompt)+r.Params.MaxTokens
	if total > e.opt.MaxModelLen {
		return refuse("max_tokens", "%d prompt tokens and max_tokens %d are %d, more than the maximum model length of %d; shorten the prompt, lower max_tokens, or raise --max-model-len",
			len(r.Prompt), p.MaxTokens, total, e.opt.MaxModelLen)
	}
	if need := paged.PagesFor(max(len(r.Prompt), total-1)); need > e.opt.Pages {
		return refuse("max_tokens", "%d prompt tokens and max_tokens %d need %d pages of keys and values, but there are %d; shorten the request or give the cache more memory",
			len(r.Prompt), p.MaxTokens, need, e.opt.Pages)
	}
	if p.Adapter == nil {
		return nil
	}
	if cols := p.Adapter.MaxCols(); cols > e.opt.RankCols {
		return refuse("model", "the adapter's rank takes %d columns, but the engine was planned for %d", cols, e.opt.RankCols)
	}
	return nil
}

func checkTokens(param string, ids []int32, vocab int) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return refuse(param, "%s token %d is %d, out of the vocabulary of %d", param, i, id, vocab)
		}
	}
	return nil
}

func (p *Params) checkLengths() error {
	switch {
	case p.MaxTokens < 0 || p.MaxTokens > math.MaxInt32:
		return refuse("max_tokens", "max_tokens is %d, want 1 or more", p.MaxTokens)
	case p.MaxTokens == 0 && !p.PromptLogProbs:
		return refuse("max_tokens", "max_tokens is 0: nothing to compute (0 is for log-probs of the prompt alone)")
	case p.MinTokens < 0 || p.MinTokens > p.MaxTokens:
		return refuse("min_tokens", "min_tokens is %d, want 0 to max_tokens %d", p.MinTokens, p.MaxTokens)
	case p.TopK < 0 || p.TopK > math.MaxInt32:
		return refuse("top_k", "top_k is %d, want 0 (off) or more", p.TopK)
	case p.TopLogProbs < 0 || p.TopLogProbs > MaxTopLogProbs:
		return refuse("top_logprobs", "top_logprobs is %d, want 0 to %d", p.TopLogProbs, MaxTopLogProbs)
	}
	return nil
}

func (p *Params) checkNumbers() error {
	if p.Temperature != 0 && !(p.Temperature >= minTemperature && p.Temperature <= maxTemperature) {
		return refuse("temperature", "temperature is %g, want 0 (greedy) or %g to %d", p.Temperature, minTemperature, maxTemperature)
	}
	if !(p.TopP > 0 && p.TopP <= 1) || float32(p.TopP) == 0 {
		return refuse("top_p", "top_p is %g, want more than 0 and at most 1", p.TopP)
	}
	if !(p.RepetitionPenalty >= 1e-3 && p.RepetitionPenalty <= 1e3) {
		return refuse("repetition_penalty", "repetition_penalty is %g, want more than 0 (1: off), within 0.001 to 1000", p.RepetitionPenalty)
	}
	for _, err := range [...]error{
		between("min_p", p.MinP, 0, 1),
		between("presence_penalty", p.PresencePenalty, -2, 2),
		between("frequency_penalty", p.FrequencyPenalty, -2, 2),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Params) checkTokens(e *Engine, vocab int) error {
	if len(p.Stop) > MaxStops || len(p.StopIDs) > MaxStops {
		return refuse("stop", "%d stop strings and %d stop tokens, at most %d each", len(p.Stop), len(p.StopIDs), MaxStops)
	}
	for _, s := range p.Stop {
		if s == "" || len(s) > MaxStopBytes {
			return refuse("stop", "a stop string of %d bytes, want 1 to %d", len(s), MaxStopBytes)
		}
	}
	if len(p.Stop) > 0 && e.tok == nil {
		return refuse("stop", "stop strings need a tokenizer, and this model has none; use stop_token_ids")
	}
	if err := checkTokens("stop_token_ids", p.StopIDs, vocab); err != nil {
		return err
	}
	if len(p.LogitBias) > MaxLogitBias {
		return refuse("logit_bias", "%d logit biases, at most %d", len(p.LogitBias), MaxLogitBias)
	}
	for id, v := range p.LogitBias {
		if id < 0 || int(id) >= vocab {
			return refuse("logit_bias", "logit_bias of token %d, out of the vocabulary of %d", id, vocab)
		}
		if !(v >= -100 && v <= 100) {
			return refuse("logit_bias", "logit_bias of token %d is %g, want -100 to 100", id, v)
		}
	}
	return nil
}

// invT is 1/temperature as every log-prob of the request uses it.
func (p *Params) invT() float32 {
	if p.Temperature == 0 {
		return 1
	}
	return float32(1 / p.Temperature)
}
