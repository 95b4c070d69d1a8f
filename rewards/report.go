package rewards

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Report is what Test observed about a reward.
type Report struct {
	Name          string
	Samples       int
	First, Second time.Duration // of the two passes over the same samples; First includes the start of a child
	Scores        []Score       // [N] of the first pass; nil when Err
	Skipped       int
	Min, Max      float64 // over the samples that were not skipped
	Mean, Std     float64 // population standard deviation
	Deterministic bool    // both passes gave the same bits
	Warnings      []string
	Err           error // breach of the contract, in either pass
}

// OK reports whether the reward kept the contract. Warnings do not count.
func (r Report) OK() bool { return r.Err == nil }

// Test scores samples twice with f and reports timings, values, breaches of the contract,
// and what would make training useless without breaking it: equal scores everywhere,
// everything skipped, different scores for the same samples.
func Test(ctx context.Context, f Func, samples []Sample) Report {
	r := Report{Name: f.Name(), Samples: len(samples)}
	if len(samples) == 0 {
		r.Err = fmt.Errorf("reward %s: no samples to test with; give at least one", f.Name())
		return r
	}
	begin := time.Now()
	r.Scores, r.Err = score(ctx, f, samples, 0)
	r.First = time.Since(begin)
	if r.Err != nil {
		r.Scores = nil
		return r
	}
	begin = time.Now()
	again, err := score(ctx, f, samples, 0)
	r.Second = time.Since(begin)
	r.describe()
	if err != nil {
		r.Err = fmt.Errorf("second pass over the same samples: %w", err)
		return r
	}
	r.compare(samples, again)
	return r
}

// describe fills in the statistics of the first pass and its warnings.
func (r *Report) describe() {
	var sum float64
	scored := 0
	for _, s := range r.Scores {
		if s.Skip {
			r.Skipped++
			continue
		}
		if scored == 0 {
			r.Min, r.Max = s.Value, s.Value
		}
		scored++
		r.Min, r.Max = min(r.Min, s.Value), max(r.Max, s.Value)
		sum += s.Value
	}
	if scored == 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf(
			"all %d samples were skipped: training on this reward alone learns nothing", r.Samples))
		return
	}
	r.Mean = sum / float64(scored)
	var squares float64
	for _, s := range r.Scores {
		if !s.Skip {
			d := s.Value - r.Mean
			squares += float64(d * d)
		}
	}
	r.Std = math.Sqrt(squares / float64(scored))
	if scored > 1 && r.Min == r.Max {
		r.Warnings = append(r.Warnings, fmt.Sprintf(
			"all %d scores are %g: with no variance in a group its advantages are zero and nothing is learned", scored, r.Min))
	}
}

// compare sets Deterministic and names the first sample whose score changed.
func (r *Report) compare(samples []Sample, again []Score) {
	for i, s := range r.Scores {
		if s.Skip != again[i].Skip || !s.Skip && math.Float64bits(s.Value) != math.Float64bits(again[i].Value) {
			r.Warnings = append(r.Warnings, fmt.Sprintf(
				"not deterministic: step %d group %d sample %d scored %s, then %s; a resumed run will differ",
				samples[i].Step, samples[i].Group, samples[i].Index, s, again[i]))
			return
		}
	}
	r.Deterministic = true
}

// String is the value, or "skip".
func (s Score) String() string {
	if s.Skip {
		return "skip"
	}
	return fmt.Sprintf("%g", s.Value)
}
