package rewards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// plain is a reward that is a pure function of one sample.
type plain struct {
	name  string
	judge func(s *Sample) (Score, error)
	reads func(s *Sample) error // whether the row has what judge reads of it; nil: it reads nothing
}

func (p *plain) Name() string { return p.name }
func (p *plain) Close() error { return nil }

func (p *plain) needs(s *Sample) error {
	if p.reads == nil {
		return nil
	}
	return p.reads(s)
}

func (p *plain) Score(ctx context.Context, samples []Sample) ([]Score, error) {
	scores := make([]Score, len(samples))
	for i := range samples {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var err error
		if scores[i], err = p.judge(&samples[i]); err != nil {
			return nil, err
		}
	}
	return scores, nil
}

// indicator is 1 for true and 0 for false.
func indicator(ok bool) Score {
	if ok {
		return Score{Value: 1}
	}
	return Score{}
}

// measure is the length of a completion in a unit.
func measure(unit string) func(s *Sample) int {
	switch unit {
	case "chars":
		return func(s *Sample) int { return utf8.RuneCountInString(s.Completion) }
	case "words":
		return func(s *Sample) int { return len(strings.Fields(s.Completion)) }
	default:
		return func(s *Sample) int { return len(s.CompletionIDs) }
	}
}

func parseLength(spec, arguments string) (Func, error) {
	set, err := parseSettings(arguments, []string{"target"}, "at_most", "at_least", "unit")
	if err != nil {
		return nil, err
	}
	unit, err := set.choice("unit", "tokens", "tokens", "chars", "words")
	if err != nil {
		return nil, err
	}
	length := measure(unit)
	target, err1 := set.whole("target", 0, 1)
	most, err2 := set.whole("at_most", math.MaxInt, 0)
	least, err3 := set.whole("at_least", 0, 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	bounded := set.has("at_most") || set.has("at_least")
	switch {
	case set.has("target") == bounded:
		return nil, errors.New("give either a target or at_most, at_least or both")
	case bounded && least > most:
		return nil, fmt.Errorf("at_least=%d is more than at_most=%d: no length would do", least, most)
	case bounded:
		return &plain{name: spec, judge: func(s *Sample) (Score, error) {
			n := length(s)
			return indicator(least <= n && n <= most), nil
		}}, nil
	}
	return &plain{name: spec, judge: func(s *Sample) (Score, error) {
		off := math.Abs(float64(length(s) - target))
		return Score{Value: max(0, 1-off/float64(target))}, nil
	}}, nil
}

// parseSoftOverlong makes the soft overlong punishment of DAPO (https://arxiv.org/abs/2503.14476,
// equation 13), as TRL's get_soft_overlong_punishment.
func parseSoftOverlong(spec, arguments string) (Func, error) {
	set, err := parseSettings(arguments, []string{"max_completion_len", "soft_punish_cache"})
	if err != nil {
		return nil, err
	}
	if !set.has("max_completion_len") {
		return nil, errors.New("the length limit in tokens is missing")
	}
	limit, err1 := set.whole("max_completion_len", 0, 1)
	cache, err2 := set.whole("soft_punish_cache", 0, 0)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if cache > limit {
		return nil, fmt.Errorf("soft_punish_cache=%d is more than max_completion_len=%d", cache, limit)
	}
	return &plain{name: spec, judge: func(s *Sample) (Score, error) {
		n, free := len(s.CompletionIDs), limit-cache
		switch {
		case n <= free:
			return Score{}, nil
		case n <= limit:
			return Score{Value: float64(free-n) / float64(cache)}, nil
		}
		return Score{Value: -1}, nil
	}}, nil
}

// parseRepetition makes TRL's get_repetition_penalty_reward (arXiv:2502.03373, appendix B.2)
// over token ids.
func parseRepetition(spec, arguments string) (Func, error) {
	set, err := parseSettings(arguments, []string{"ngram_size", "max_penalty"})
	if err != nil {
		return nil, err
	}
	size, err1 := set.whole("ngram_size", 3, 1)
	penalty, err2 := set.number("max_penalty", -1)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if penalty > 0 {
		return nil, fmt.Errorf("max_penalty=%g would reward repetition; give a number of at most 0", penalty)
	}
	return &plain{name: spec, judge: func(s *Sample) (Score, error) {
		total := len(s.CompletionIDs) - size + 1
		if total <= 0 {
			return Score{}, nil
		}
		return Score{Value: (1 - float64(distinct(s.CompletionIDs, size))/float64(total)) * penalty}, nil
	}}, nil
}

// distinct counts the different runs of size ids.
func distinct(ids []int32, size int) int {
	seen := map[string]struct{}{}
	bytes := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		bytes = append(bytes, byte(id), byte(id>>8), byte(id>>16), byte(id>>24))
	}
	for i := 0; i+size <= len(ids); i++ {
		seen[string(bytes[4*i:4*(i+size)])] = struct{}{}
	}
	return len(seen)
}
