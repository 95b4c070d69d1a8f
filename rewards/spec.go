package rewards

import (
	"fmt"
	"graft/spelling"
	"math"
	"sort"
	"strconv"
	"strings"
)

// ParseAll parses specs of the form SPEC or WEIGHT*SPEC ("0.5*length:at_most=200"): the
// weight stands in front, since behind the colon every character belongs to the reward.
// Without a weight it is 1. On error the rewards already made are closed.
func ParseAll(specs []string) ([]Weighted, error) {
	var all []Weighted
	fail := func(err error) ([]Weighted, error) {
		if closing := Close(all); closing != nil {
			err = fmt.Errorf("%w (and closing the other rewards: %w)", err, closing)
		}
		return nil, err
	}
	seen := map[string]bool{}
	for _, spec := range specs {
		weight, rest, err := splitWeight(spec)
		if err != nil {
			return fail(err)
		}
		f, err := Parse(rest)
		if err != nil {
			return fail(err)
		}
		all = append(all, Weighted{Func: f, Weight: weight})
		if seen[f.Name()] {
			return fail(fmt.Errorf("reward %s is given twice; give it once with the sum of the weights", f.Name()))
		}
		seen[f.Name()] = true
	}
	return all, nil
}

// splitWeight takes "0.5*" off the front of a spec.
func splitWeight(spec string) (float64, string, error) {
	spec = strings.TrimSpace(spec)
	name, _, _ := strings.Cut(spec, ":")
	front, rest, found := strings.Cut(name, "*")
	if !found {
		return 1, spec, nil
	}
	weight, err := strconv.ParseFloat(strings.TrimSpace(front), 64)
	if err != nil || math.IsNaN(weight) || math.IsInf(weight, 0) {
		if _, swapped := strconv.ParseFloat(strings.TrimSpace(rest), 64); swapped == nil {
			return 0, "", fmt.Errorf("reward %q: the weight stands in front: %s*%s", spec, strings.TrimSpace(rest), strings.TrimSpace(front))
		}
		return 0, "", fmt.Errorf("reward %q: weight %q is not a finite number; write 0.5*%s", spec, front, rest)
	}
	return weight, strings.TrimSpace(spec[strings.Index(spec, "*")+1:]), nil
}

// Parse makes a reward from "name" or "name:arguments"; Describe lists what exists. The
// child of a py: or exec: reward starts with the first batch, or with Prepare.
func Parse(spec string) (Func, error) {
	spec = strings.TrimSpace(spec)
	name, arguments, _ := strings.Cut(spec, ":")
	var names []string
	for _, b := range builtins() {
		if b.Name == name {
			f, err := b.parse(spec, arguments)
			if err != nil {
				return nil, fmt.Errorf("reward %q: %w; syntax: %s", spec, err, b.Syntax)
			}
			return f, nil
		}
		names = append(names, b.Name)
	}
	hint := ""
	if near, ok := nearest(name, names); ok {
		hint = fmt.Sprintf(" (did you mean %s?)", near)
	}
	if strings.HasSuffix(name, ".py") {
		hint = fmt.Sprintf(" (did you mean py:%s?)", spec)
	}
	if name == "" {
		return nil, fmt.Errorf("reward %q has no name; there are: %s", spec, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("no reward is called %q%s; there are: %s", name, hint, strings.Join(names, ", "))
}

// settings are the arguments of a built-in: values separated by commas, the first ones
// by position, the others key=value.
type settings struct {
	values map[string]string
}

// parseSettings reads arguments. positional names the keys that may be given without
// "key=", in their order; others are the keys that need it.
func parseSettings(arguments string, positional []string, others ...string) (settings, error) {
	s := settings{values: map[string]string{}}
	if strings.TrimSpace(arguments) == "" {
		return s, nil
	}
	known := append(append([]string(nil), positional...), others...)
	named := false
	for at, field := range strings.Split(arguments, ",") {
		key, value, found := strings.Cut(field, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !found {
			if named || at >= len(positional) {
				return s, fmt.Errorf("argument %q has no key; write key=value", field)
			}
			key, value = positional[at], key
		} else {
			named = true
		}
		ok := false
		for _, k := range known {
			ok = ok || k == key
		}
		if !ok {
			hint := ""
			if near, found := nearest(key, known); found {
				hint = fmt.Sprintf(" (did you mean %s?)", near)
			}
			return s, fmt.Errorf("unknown argument %q%s; there are: %s", key, hint, strings.Join(known, ", "))
		}
		if _, twice := s.values[key]; twice {
			return s, fmt.Errorf("argument %q is given twice", key)
		}
		if value == "" {
			return s, fmt.Errorf("argument %q is empty", key)
		}
		s.values[key] = value
	}
	return s, nil
}

func (s settings) text(key, fallback string) string {
	if v, ok := s.values[key]; ok {
		return v
	}
	return fallback
}

func (s settings) has(key string) bool { _, ok := s.values[key]; return ok }

// whole is an integer in [low, math.MaxInt32].
func (s settings) whole(key string, fallback, low int) (int, error) {
	v, ok := s.values[key]
	if !ok {
		return fallback, nil
	}
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || int(n) < low {
		return 0, fmt.Errorf("%s=%q: give a whole number of at least %d", key, v, low)
	}
	return int(n), nil
}

func (s settings) number(key string, fallback float64) (float64, error) {
	v, ok := s.values[key]
	if !ok {
		return fallback, nil
	}
	x, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%s=%q: give a finite number", key, v)
	}
	return x, nil
}

func (s settings) toggle(key string, fallback bool) (bool, error) {
	switch v := s.text(key, ""); v {
	case "":
		return fallback, nil
	case "on", "true", "yes":
		return true, nil
	case "off", "false", "no":
		return false, nil
	default:
		return false, fmt.Errorf("%s=%q: give on or off", key, v)
	}
}

func (s settings) choice(key, fallback string, choices ...string) (string, error) {
	v := s.text(key, fallback)
	for _, c := range choices {
		if v == c {
			return v, nil
		}
	}
	return "", fmt.Errorf("%s=%q: give one of %s", key, v, strings.Join(choices, ", "))
}

// nearest is the closest of names by edit distance, if it is close enough to be a slip.
func nearest(name string, names []string) (string, bool) {
	if len(name) > 64 {
		return "", false
	}
	sorted := append([]string(nil), names...)
	sort.Strings(sorted)
	best, least := "", 3
	for _, candidate := range sorted {
		if d := spelling.Distance(strings.ToLower(name), candidate); d < least && d < len(candidate) {
			best, least = candidate, d
		}
	}
	return best, best != ""
}
