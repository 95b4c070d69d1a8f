package rewards

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"graft/rewards/mathverify"
)

func parseMath(spec, arguments string) (Func, error) {
	set, err := parseSettings(arguments, []string{"column"}, "last_number")
	if err != nil {
		return nil, err
	}
	last, err := set.toggle("last_number", true)
	if err != nil {
		return nil, err
	}
	gold := goldColumn{spec, set.text("column", "")}
	verifier := mathverify.New()
	return &plain{name: spec, reads: gold.filled, judge: func(s *Sample) (Score, error) {
		want, err := gold.of(s)
		if err != nil {
			return Score{}, err
		}
		right, ok := verifier.Judge(want, s.Completion, last)
		if !ok {
			return Score{}, gold.blank(s)
		}
		return indicator(right), nil
	}}, nil
}

func parseMathVerify(spec, arguments string) (Func, error) {
	set, err := parseSettings(arguments, []string{"column"})
	if err != nil {
		return nil, err
	}
	gold := goldColumn{spec, set.text("column", "")}
	verifier := mathverify.New()
	return &plain{name: spec, reads: gold.present, judge: func(s *Sample) (Score, error) {
		want, err := gold.of(s)
		if err != nil {
			return Score{}, err
		}
		return indicator(verifier.Reference(want, s.Completion)), nil
	}}, nil
}

// accuracy is TRL's accuracy_reward on one text.
func accuracy(verifier *mathverify.Verifier, gold, completion string) Score {
	right, ok := verifier.Anchored(gold, completion)
	if !ok {
		return Score{Skip: true}
	}
	return indicator(right)
}

func parseAccuracy(spec, arguments string) (Func, error) {
	set, err := parseSettings(arguments, []string{"column"})
	if err != nil {
		return nil, err
	}
	gold := goldColumn{spec, set.text("column", "")}
	verifier := mathverify.New()
	return &plain{name: spec, reads: gold.present, judge: func(s *Sample) (Score, error) {
		want, err := gold.of(s)
		if err != nil {
			return Score{}, err
		}
		return accuracy(verifier, want, s.Completion), nil
	}}, nil
}

func parseReasoningAccuracy(spec, arguments string) (Func, error) {
	set, err := parseSettings(arguments, []string{"column"}, "delimiters")
	if err != nil {
		return nil, err
	}
	delimiters := strings.Split(set.text("delimiters", "</think>"), "|")
	for _, d := range delimiters {
		if d == "" {
			return nil, errors.New("a delimiter is empty")
		}
	}
	gold := goldColumn{spec, set.text("column", "")}
	verifier := mathverify.New()
	return &plain{name: spec, reads: gold.present, judge: func(s *Sample) (Score, error) {
		want, err := gold.of(s)
		if err != nil {
			return Score{}, err
		}
		// As TRL: the first of the delimiters that occurs, at its last place.
		for _, d := range delimiters {
			if at := strings.LastIndex(s.Completion, d); at >= 0 {
				return accuracy(verifier, want, s.Completion[at+len(d):]), nil
			}
		}
		return Score{}, nil
	}}, nil
}

// parseCosine makes TRL's get_cosine_scaled_reward (arXiv:2502.03373, figure 3).
func parseCosine(spec, arguments string) (Func, error) {
	keys := []string{"min_value_wrong", "max_value_wrong", "min_value_correct", "max_value_correct"}
	set, err := parseSettings(arguments, []string{"max_len"}, append([]string{"column"}, keys...)...)
	if err != nil {
		return nil, err
	}
	if !set.has("max_len") {
		return nil, errors.New("the length in tokens at which the scale ends is missing")
	}
	limit, err := set.whole("max_len", 0, 1)
	if err != nil {
		return nil, err
	}
	bounds := [4]float64{-1, -0.5, 0.5, 1}
	for i, key := range keys {
		if bounds[i], err = set.number(key, bounds[i]); err != nil {
			return nil, err
		}
	}
	for i := 0; i < 4; i += 2 {
		if bounds[i] > bounds[i+1] {
			return nil, fmt.Errorf("%s=%g is more than %s=%g", keys[i], bounds[i], keys[i+1], bounds[i+1])
		}
	}
	gold := goldColumn{spec, set.text("column", "")}
	verifier := mathverify.New()
	return &plain{name: spec, reads: gold.present, judge: func(s *Sample) (Score, error) {
		want, err := gold.of(s)
		if err != nil {
			return Score{}, err
		}
		verdict := accuracy(verifier, want, s.Completion)
		if verdict.Skip {
			return verdict, nil
		}
		low, high := bounds[1], bounds[0] // a wrong answer is punished less the longer it is
		if verdict.Value == 1 {
			low, high = bounds[2], bounds[3]
		}
		progress := min(float64(len(s.CompletionIDs))/float64(limit), 1)
		// The twelfth digit is where platforms may begin to differ in a cosine.
		cosine := math.Round(math.Cos(math.Pi*progress)*1e12) / 1e12
		return Score{Value: low + float64(0.5*(high-low)*(1+cosine))}, nil
	}}, nil
}
