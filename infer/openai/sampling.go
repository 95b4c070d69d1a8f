package openai

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"strconv"

	"graft/infer"
	"graft/infer/paged"
	"graft/model/template"
)

// Bounds of a request, besides those of the engine and the context.
const (
	maxChoices     = 128     // n
	maxPrompts     = 1024    // prompts of one completions request
	maxSequences   = 4096    // prompts times n
	maxLogProbs    = 20      // logprobs, top_logprobs
	maxStops       = 16      // stop strings
	maxStopIDs     = 32      // stop_token_ids
	maxBiases      = 1024    // entries of logit_bias
	maxMessages    = 1 << 14 // of a conversation
	maxSaltBytes   = 256     // cache_salt
	greedyBelow    = 1e-5    // a lower temperature means the most probable token
	minTemperature = 0.01    // between the two, logits would overflow
)

// sampling is what completions and chat have in common.
type sampling struct {
	infer.Params
	maxTokens    int // -1: as much as fits
	stream       bool
	includeUsage bool
	everyUsage   bool // continuous_usage_stats
	returnIDs    bool // return_token_ids
	seeded       bool
}

// readSampling reads the fields that decide how tokens are drawn.
func readSampling(b *body, vocab, maxLen int) sampling {
	s := sampling{maxTokens: -1}
	p := &s.Params
	p.N = int(b.integer("n", 1, 1, maxChoices))
	p.MinTokens = int(b.integer("min_tokens", 0, 0, int64(maxLen)))
	p.Temperature = readTemperature(b)
	p.TopP = b.number("top_p", 1)
	if b.fault == nil && !(p.TopP > 0 && p.TopP <= 1) {
		b.fail("top_p", "top_p is %v, want more than 0 and at most 1", p.TopP)
	}
	p.TopK = max(0, int(b.integer("top_k", 0, -1, math.MaxInt32)))
	p.MinP = b.within("min_p", 0, 0, 1)
	p.PresencePenalty = b.within("presence_penalty", 0, -2, 2)
	p.FrequencyPenalty = b.within("frequency_penalty", 0, -2, 2)
	p.RepetitionPenalty = b.within("repetition_penalty", 1, 0.001, 1000)
	p.Stop = readStop(b)
	p.StopIDs = b.ids("stop_token_ids", maxStopIDs, vocab)
	p.IgnoreEOS = b.flag("ignore_eos", false)
	p.IncludeStop = b.flag("include_stop_str_in_output", false)
	p.KeepSpecial = !b.flag("skip_special_tokens", true)
	p.LogitBias = readBias(b, vocab)
	p.Priority = int(b.integer("priority", 0, math.MinInt32, math.MaxInt32))
	p.CacheSalt = b.text("cache_salt", "")
	if len(p.CacheSalt) > maxSaltBytes {
		b.fail("cache_salt", "cache_salt has %d bytes, at most %d", len(p.CacheSalt), maxSaltBytes)
	}
	s.readSeed(b)
	s.readStream(b)
	s.returnIDs = b.flag("return_token_ids", false)
	s.refuseOthers(b)
	return s
}

// refuseOthers names the fields of vLLM and of the OpenAI API that would change the result and that
// this server does not have, and those that change nothing here.
func (s *sampling) refuseOthers(b *body) {
	if n := b.integer("best_of", int64(s.N), 1, maxChoices); b.fault == nil && int(n) != s.N {
		b.fail("best_of", "best_of %d with n %d is not supported: ask for n completions and choose", n, s.N)
	}
	if s.Temperature == 0 && s.N > 1 {
		b.fail("n", "n is %d with temperature 0: all completions would be the same; use n 1 or a temperature", s.N)
	}
	b.refuse("use_beam_search", "this server samples", false)
	b.refuse("length_penalty", "it belongs to beam search", int64(1), float64(1))
	b.refuse("bad_words", "use logit_bias with -100")
	b.refuse("allowed_token_ids", "use logit_bias")
	b.refuse("prompt_logprobs", "use echo with logprobs on /v1/completions")
	b.refuse("structured_outputs", "output is not constrained to a grammar")
	for _, name := range [...]string{"guided_json", "guided_regex", "guided_choice", "guided_grammar"} {
		b.refuse(name, "output is not constrained to a grammar")
	}
	b.refuse("truncate_prompt_tokens", "a prompt is never shortened silently")
	b.refuse("logits_processors", "logits are not open to requests")
	if format := b.object("response_format"); format != nil {
		if kind := format.text("type", ""); kind != "text" {
			b.fail("response_format", "response_format of type %q is not supported: output is not constrained to a grammar; only \"text\" is", clip(kind))
		}
		b.nested(format)
	}
	b.ignore("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
		"request_id", "spaces_between_special_tokens", "prediction")
}

func readTemperature(b *body) float64 {
	t := b.within("temperature", 1, 0, 2)
	switch {
	case t < greedyBelow:
		return 0
	case t < minTemperature:
		b.fail("temperature", "temperature is %v, want 0 (greedy) or %v to 2", t, minTemperature)
	}
	return t
}

func readStop(b *body) []string {
	v, ok := b.value("stop")
	if !ok {
		return nil
	}
	if s, isText := v.(string); isText {
		v = []any{s}
	}
	list, ok := v.([]any)
	if !ok {
		b.wrongType("stop", v, "a string or an array of strings")
		return nil
	}
	if len(list) > maxStops {
		b.fail("stop", "stop has %d strings, at most %d", len(list), maxStops)
		return nil
	}
	stops := make([]string, 0, len(list))
	for i, v := range list {
		s, ok := v.(string)
		if !ok {
			b.wrongType("stop["+strconv.Itoa(i)+"]", v, "a string")
			return nil
		}
		if s == "" || len(s) > infer.MaxStopBytes {
			b.fail("stop", "stop[%d] has %d bytes, want 1 to %d", i, len(s), infer.MaxStopBytes)
			return nil
		}
		stops = append(stops, s)
	}
	return stops
}

// readBias reads {"token id": bias}.
func readBias(b *body, vocab int) map[int32]float32 {
	v, ok := b.value("logit_bias")
	if !ok {
		return nil
	}
	m, ok := v.(*template.Map)
	if !ok {
		b.wrongType("logit_bias", v, "an object of token ids and numbers")
		return nil
	}
	if m.Len() > maxBiases {
		b.fail("logit_bias", "logit_bias has %d entries, at most %d", m.Len(), maxBiases)
		return nil
	}
	out := make(map[int32]float32, m.Len())
	for _, key := range m.Keys() {
		id, err := strconv.ParseUint(key, 10, 31)
		if err != nil || id >= uint64(vocab) {
			b.fail("logit_bias", "logit_bias: %q is not a token id below %d", clip(key), vocab)
			return nil
		}
		v, _ := m.Get(key)
		bias := b.finite("logit_bias", v)
		if bias < -100 || bias > 100 {
			b.fail("logit_bias", "logit_bias of token %s is %v, want -100 to 100", key, bias)
			return nil
		}
		out[int32(id)] = float32(bias)
	}
	return out
}

// readSeed takes the seed of the request, or one from the system.
func (s *sampling) readSeed(b *body) {
	if _, s.seeded = b.value("seed"); s.seeded {
		s.Seed = uint64(b.integer("seed", 0, math.MinInt64, math.MaxInt64))
		return
	}
	s.Seed = randomSeed()
}

func randomSeed() uint64 {
	var buf [8]byte
	rand.Read(buf[:])
	return binary.LittleEndian.Uint64(buf[:])
}

func (s *sampling) readStream(b *body) {
	s.stream = b.flag("stream", false)
	options := b.object("stream_options")
	if options == nil {
		return
	}
	if !s.stream && b.fault == nil {
		b.fail("stream_options", "stream_options is only allowed with stream true")
	}
	s.includeUsage = options.flag("include_usage", false)
	s.everyUsage = options.flag("continuous_usage_stats", false) && s.includeUsage
	options.ignore("include_obfuscation")
	b.nested(options)
}

// nested ends the reading of an object within b.
func (b *body) nested(inner *body) { b.keep(inner.done()) }

// settleLength fixes max_tokens now that the prompt's length is known: the rest of the context, or of
// the pages, when the request left it open.
func (s *sampling) settleLength(prompt int, field string, o infer.Options) *Fault {
	room := min(o.MaxModelLen, o.Pages*paged.PageSize) - prompt
	if s.maxTokens < 0 {
		if room < 1 {
			return tooLong(field, prompt, 1, prompt+room)
		}
		s.MaxTokens = room
	} else if s.MaxTokens = s.maxTokens; s.MaxTokens > room {
		return tooLong(field, prompt, s.MaxTokens, prompt+room)
	}
	if s.MinTokens > s.MaxTokens {
		return invalid("min_tokens", "min_tokens is %d, more than max_tokens %d", s.MinTokens, s.MaxTokens)
	}
	return nil
}

func tooLong(field string, prompt, more, most int) *Fault {
	f := invalid(field, "This model's maximum context length is %d tokens. The prompt has %d and %d more may be generated: shorten the prompt or lower max_tokens.", most, prompt, more)
	f.Code = "context_length_exceeded"
	return f
}
