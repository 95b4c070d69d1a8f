package rl

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// ScheduleArgs are lr_scheduler_kwargs.
type ScheduleArgs struct {
	NumCycles     float64 // num_cycles: cosine 0.5, cosine_with_restarts 1
	MinLR         float64 // min_lr
	MinLRRate     float64 // min_lr_rate: of LearningRate
	WarmupLRRate  float64 // warmup_lr_rate: where cosine_warmup_with_min_lr begins
	Power         float64 // power: polynomial, 1
	LREnd         float64 // lr_end: polynomial, 1e-7
	Timescale     float64 // timescale: inverse_sqrt, warmup steps or 10000
	NumDecaySteps int     // num_decay_steps: warmup_stable_decay
	MinLRRatio    float64 // min_lr_ratio: warmup_stable_decay
	WarmupType    string  // warmup_type: linear (default), cosine, 1-sqrt
	DecayType     string  // decay_type: cosine (default), linear, 1-sqrt
}

// scheduleArg is one argument by its name in transformers; value is a *float64, *int or *string.
type scheduleArg struct {
	name  string
	value any
}

func (a *ScheduleArgs) all() []scheduleArg {
	return []scheduleArg{
		{"num_cycles", &a.NumCycles}, {"min_lr", &a.MinLR}, {"min_lr_rate", &a.MinLRRate}, {"warmup_lr_rate", &a.WarmupLRRate},
		{"power", &a.Power}, {"lr_end", &a.LREnd}, {"timescale", &a.Timescale}, {"num_decay_steps", &a.NumDecaySteps},
		{"min_lr_ratio", &a.MinLRRatio}, {"warmup_type", &a.WarmupType}, {"decay_type", &a.DecayType},
	}
}

// isSet tells whether the argument has another value than the zero that stands for its default.
func (a scheduleArg) isSet() bool {
	switch v := a.value.(type) {
	case *float64:
		return *v != 0
	case *int:
		return *v != 0
	default:
		return *v.(*string) != ""
	}
}

// ParseScheduleArgs reads lr_scheduler_kwargs as transformers takes them: a JSON object, as
// {"num_cycles": 2}. No text: no arguments. An argument that is 0 or empty is refused, because that
// stands for its default here.
func ParseScheduleArgs(text string) (ScheduleArgs, error) {
	var a ScheduleArgs
	if text == "" {
		return a, nil
	}
	fail := func(format string, args ...any) (ScheduleArgs, error) {
		return ScheduleArgs{}, fmt.Errorf("rl: lr_scheduler_kwargs: "+format, args...)
	}
	if err := CheckJSON([]byte(text)); err != nil {
		return fail("%w; want a JSON object, as {\"num_cycles\": 2}", err)
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &given); err != nil || given == nil {
		return fail("%.40s is no JSON object, as {\"num_cycles\": 2}", text)
	}
	known := a.all()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		raw := given[name]
		at := slices.IndexFunc(known, func(k scheduleArg) bool { return k.name == name })
		if at < 0 {
			var names []string
			for _, k := range known {
				names = append(names, k.name)
			}
			hint := ""
			if near, ok := nearest(name, names); ok {
				hint = fmt.Sprintf("; did you mean %q?", near)
			}
			return fail("there is no %q; there are %s%s", name, strings.Join(names, ", "), hint)
		}
		if err := json.Unmarshal(raw, known[at].value); err != nil || string(raw) == "null" {
			kind := map[bool]string{true: "a text", false: "a number"}[strings.HasSuffix(name, "_type")]
			if name == "num_decay_steps" {
				kind = "a whole number"
			}
			return fail("%s is %.40s, want %s", name, raw, kind)
		}
		if !known[at].isSet() && name != "min_lr_ratio" { // 0 by default
			return fail("%s is %s, which stands for the default; leave it out, or give another value", name, raw)
		}
	}
	return a, nil
}

// onlyReads refuses arguments that would change nothing.
func (a ScheduleArgs) onlyReads(kind string, reads []string) error {
	for _, arg := range a.all() {
		if arg.isSet() && !slices.Contains(reads, arg.name) {
			return fmt.Errorf("rl: lr_scheduler_type %s does not read %s", kind, arg.name)
		}
		v := 0.0
		switch n := arg.value.(type) {
		case *float64:
			v = *n
		case *int:
			v = float64(*n)
		}
		if !(v >= 0) || math.IsInf(v, 0) {
			return fmt.Errorf("rl: lr_scheduler_kwargs hold %s %g; every number there must be finite and not negative", arg.name, v)
		}
	}
	return nil
}
