package rl

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"graft/kernels/libm"
)

// ScheduleOptions choose a learning-rate schedule, named as in transformers. Arguments that the
// chosen schedule does not read must be zero; zero means transformers' default.
type ScheduleOptions struct {
	Type         string  // lr_scheduler_type
	LearningRate float64 // learning_rate: the peak
	WarmupSteps  int     // warmup_steps
	WarmupRatio  float64 // warmup_ratio: of TotalSteps, rounded up; only without WarmupSteps
	TotalSteps   int     // optimizer steps of the whole run
	Args         ScheduleArgs
}

// Schedule is the learning rate as a function of the optimizer step. It is a pure function: a
// checkpoint needs only the step.
type Schedule struct {
	o      ScheduleOptions
	warmup int
	factor func(s *Schedule, step int) float64
}

// scheduleKind is one schedule and the arguments it reads.
type scheduleKind struct {
	name   string
	reads  []string
	factor func(s *Schedule, step int) float64
}

func scheduleKinds() []scheduleKind {
	return []scheduleKind{
		{"linear", nil, (*Schedule).linear},
		{"cosine", []string{"num_cycles"}, (*Schedule).cosine},
		{"cosine_with_restarts", []string{"num_cycles"}, (*Schedule).restarts},
		{"cosine_with_min_lr", []string{"num_cycles", "min_lr", "min_lr_rate"}, (*Schedule).cosineMin},
		{"cosine_warmup_with_min_lr", []string{"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}, (*Schedule).cosineWarmupMin},
		{"polynomial", []string{"power", "lr_end"}, (*Schedule).polynomial},
		{"constant", nil, func(*Schedule, int) float64 { return 1 }},
		{"constant_with_warmup", nil, (*Schedule).constantWarmup},
		{"inverse_sqrt", []string{"timescale"}, (*Schedule).inverseSqrt},
		{"warmup_stable_decay", []string{"num_cycles", "num_decay_steps", "min_lr_ratio", "warmup_type", "decay_type"}, (*Schedule).stable},
	}
}

// ScheduleTypes lists the names that NewSchedule knows.
func ScheduleTypes() []string {
	var out []string
	for _, k := range scheduleKinds() {
		out = append(out, k.name)
	}
	return out
}

// NewSchedule checks the options.
func NewSchedule(o ScheduleOptions) (*Schedule, error) {
	kinds := scheduleKinds()
	at := slices.IndexFunc(kinds, func(k scheduleKind) bool { return k.name == o.Type })
	switch {
	case at < 0:
		return nil, fmt.Errorf("rl: lr_scheduler_type %q is not known; there are %s", o.Type, strings.Join(ScheduleTypes(), ", "))
	case !(o.LearningRate >= 0) || math.IsInf(o.LearningRate, 0):
		return nil, fmt.Errorf("rl: learning_rate is %g", o.LearningRate)
	case o.TotalSteps < 1:
		return nil, fmt.Errorf("rl: a schedule over %d steps", o.TotalSteps)
	case o.WarmupSteps < 0:
		return nil, fmt.Errorf("rl: warmup_steps is %d", o.WarmupSteps)
	case !(o.WarmupRatio >= 0 && o.WarmupRatio <= 1):
		return nil, fmt.Errorf("rl: warmup_ratio is %g, must be in [0, 1]", o.WarmupRatio)
	case o.WarmupRatio > 0 && o.WarmupSteps > 0:
		return nil, fmt.Errorf("rl: warmup_steps %d and warmup_ratio %g are both given; choose one", o.WarmupSteps, o.WarmupRatio)
	}
	s := &Schedule{o: o, warmup: o.WarmupSteps, factor: kinds[at].factor}
	if o.WarmupRatio > 0 {
		s.warmup = int(math.Ceil(float64(o.TotalSteps) * o.WarmupRatio))
	}
	if o.Type == "constant" && s.warmup > 0 {
		return nil, fmt.Errorf("rl: lr_scheduler_type constant has no warmup; choose constant_with_warmup or drop the %d warmup steps", s.warmup)
	}
	if err := o.Args.onlyReads(o.Type, kinds[at].reads); err != nil {
		return nil, err
	}
	return s, s.defaults()
}

// defaults fills in transformers' defaults and checks what one schedule alone needs.
func (s *Schedule) defaults() error {
	a := &s.o.Args
	orElse := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	switch s.o.Type {
	case "cosine", "warmup_stable_decay":
		orElse(&a.NumCycles, 0.5)
	case "cosine_with_restarts":
		orElse(&a.NumCycles, 1)
	case "cosine_with_min_lr", "cosine_warmup_with_min_lr":
		orElse(&a.NumCycles, 0.5)
		if (a.MinLR != 0) == (a.MinLRRate != 0) {
			return fmt.Errorf("rl: lr_scheduler_type %s needs one of min_lr and min_lr_rate", s.o.Type)
		}
		if a.MinLR != 0 && s.o.LearningRate > 0 {
			a.MinLRRate = a.MinLR / s.o.LearningRate
		}
	case "polynomial":
		orElse(&a.Power, 1)
		orElse(&a.LREnd, 1e-7)
		if a.LREnd >= s.o.LearningRate {
			return fmt.Errorf("rl: lr_end %g must be below learning_rate %g", a.LREnd, s.o.LearningRate)
		}
		if s.warmup == s.o.TotalSteps {
			return fmt.Errorf("rl: a polynomial schedule of %d steps, all of them warmup", s.warmup)
		}
	case "inverse_sqrt":
		if orElse(&a.Timescale, float64(s.warmup)); a.Timescale == 0 {
			a.Timescale = 10000
		}
	}
	if s.o.Type == "warmup_stable_decay" {
		if a.NumDecaySteps < 1 {
			return fmt.Errorf("rl: lr_scheduler_type warmup_stable_decay needs num_decay_steps")
		}
		if a.WarmupType == "" {
			a.WarmupType = "linear"
		}
		if a.DecayType == "" {
			a.DecayType = "cosine"
		}
		for _, t := range []string{a.WarmupType, a.DecayType} {
			if !slices.Contains([]string{"linear", "cosine", "1-sqrt"}, t) {
				return fmt.Errorf("rl: warmup_type or decay_type %q; there are linear, cosine, 1-sqrt", t)
			}
		}
	}
	return nil
}

// Rate is the learning rate that optimizer step number step (from 0) uses.
func (s *Schedule) Rate(step int) float64 { return s.o.LearningRate * s.factor(s, step) }

// Warmup is the number of warmup steps.
func (s *Schedule) Warmup() int { return s.warmup }

// rising is the linear warmup's factor, if step lies in it.
func (s *Schedule) rising(step int) (float64, bool) {
	return float64(step) / float64(max(1, s.warmup)), step < s.warmup
}

// progress is how far step lies between warmup and end.
func (s *Schedule) progress(step int) float64 {
	return float64(step-s.warmup) / float64(max(1, s.o.TotalSteps-s.warmup))
}

func (s *Schedule) constantWarmup(step int) float64 {
	if f, ok := s.rising(step); ok {
		return f
	}
	return 1
}

func (s *Schedule) linear(step int) float64 {
	if f, ok := s.rising(step); ok {
		return f
	}
	return max(0, float64(s.o.TotalSteps-step)/float64(max(1, s.o.TotalSteps-s.warmup)))
}

// wave is (1+cos(2π·cycles·p))/2.
func (s *Schedule) wave(p float64) float64 {
	return 0.5 * (1 + libm.Cos(2*math.Pi*s.o.Args.NumCycles*p))
}

func (s *Schedule) cosine(step int) float64 {
	if f, ok := s.rising(step); ok {
		return f
	}
	return max(0, s.wave(s.progress(step)))
}

func (s *Schedule) restarts(step int) float64 {
	if f, ok := s.rising(step); ok {
		return f
	}
	p := s.progress(step)
	if p >= 1 {
		return 0
	}
	return max(0, 0.5*(1+libm.Cos(math.Pi*math.Mod(s.o.Args.NumCycles*p, 1))))
}

func (s *Schedule) cosineMin(step int) float64 {
	if f, ok := s.rising(step); ok {
		return f
	}
	return s.above(s.wave(s.progress(step)), s.o.Args.MinLRRate)
}

// cosineWarmupMin counts steps from 1: its first step is not lost to a rate of 0.
func (s *Schedule) cosineWarmupMin(step int) float64 {
	if step < s.warmup {
		if r := s.o.Args.WarmupLRRate; r != 0 {
			return r + float64((1-r)*float64(step))/float64(max(1, s.warmup-1))
		}
		return float64(step+1) / float64(max(1, s.warmup))
	}
	return s.above(s.wave(s.progress(step+1)), s.o.Args.MinLRRate)
}

// above squeezes a factor in [0, 1] into [floor, 1].
func (s *Schedule) above(f, floor float64) float64 { return max(0, float64(f*(1-floor))+floor) }

func (s *Schedule) polynomial(step int) float64 {
	if f, ok := s.rising(step); ok {
		return f
	}
	end, start := s.o.Args.LREnd, s.o.LearningRate
	if step > s.o.TotalSteps {
		return end / start
	}
	left := 1 - float64(step-s.warmup)/float64(s.o.TotalSteps-s.warmup)
	return (float64((start-end)*libm.Pow(left, s.o.Args.Power)) + end) / start
}

func (s *Schedule) inverseSqrt(step int) float64 {
	if f, ok := s.rising(step); ok {
		return f
	}
	scale := s.o.Args.Timescale
	return 1 / math.Sqrt((float64(step-s.warmup)+scale)/scale)
}

func (s *Schedule) stable(step int) float64 {
	a := &s.o.Args
	decay := s.o.TotalSteps - a.NumDecaySteps // where it begins
	switch {
	case step < s.warmup:
		p := float64(step) / float64(max(1, s.warmup))
		switch a.WarmupType {
		case "cosine":
			p = 0.5 * (1 - libm.Cos(math.Pi*p))
		case "1-sqrt":
			p = 1 - math.Sqrt(1-p)
		}
		return s.above(p, a.MinLRRatio)
	case step < decay:
		return 1
	case step < s.o.TotalSteps:
		p := float64(step-decay) / float64(a.NumDecaySteps)
		switch a.DecayType {
		case "linear":
			p = 1 - p
		case "cosine":
			p = s.wave(p)
		case "1-sqrt":
			p = 1 - math.Sqrt(p)
		}
		return s.above(p, a.MinLRRatio)
	}
	return a.MinLRRatio
}
