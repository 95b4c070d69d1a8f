package rewards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Result is what Run found out about a batch of N samples with K rewards.
type Result struct {
	Names   []string        // [K]
	Weights []float64       // [K]
	Scores  [][]Score       // [K, N] before weighting
	Elapsed []time.Duration // [K]
	Total   []float64       // [N] Σₖ weightₖ·scoreₖ over the rewards that did not skip; 0 where not Scored
	Scored  []bool          // [N] false: every reward skipped the sample, which then takes no part in the advantage
}

// Run scores samples with every reward, all rewards at once, and adds up the weighted
// total. Each reward has deadline for the batch; 0 means none but ctx's. The first
// breach of the contract, in the order of funcs, is returned as an *Error and no result is.
func Run(ctx context.Context, funcs []Weighted, samples []Sample, deadline time.Duration) (Result, error) {
	result := Result{
		Scores:  make([][]Score, len(funcs)),
		Elapsed: make([]time.Duration, len(funcs)),
		Total:   make([]float64, len(samples)),
		Scored:  make([]bool, len(samples)),
	}
	if len(funcs) == 0 {
		return Result{}, errors.New("rewards: no reward function given; name at least one, for example math")
	}
	for _, f := range funcs {
		if math.IsNaN(f.Weight) || math.IsInf(f.Weight, 0) {
			return Result{}, fmt.Errorf("rewards: weight of %s is %v; give a finite number", f.Func.Name(), f.Weight)
		}
		result.Names = append(result.Names, f.Func.Name())
		result.Weights = append(result.Weights, f.Weight)
	}

	failures := make([]error, len(funcs))
	var all sync.WaitGroup
	for k, f := range funcs {
		all.Go(func() {
			begin := time.Now()
			result.Scores[k], failures[k] = score(ctx, f.Func, samples, deadline)
			result.Elapsed[k] = time.Since(begin)
		})
	}
	all.Wait()
	for _, err := range failures {
		if err != nil {
			return Result{}, err
		}
	}

	// The sum runs in the order of funcs, so it is the same bits whichever reward ended first.
	for k, f := range funcs {
		for i, s := range result.Scores[k] {
			if s.Skip {
				continue
			}
			result.Scored[i] = true
			result.Total[i] += float64(f.Weight * s.Value)
		}
	}
	for i, total := range result.Total {
		if math.IsNaN(total) || math.IsInf(total, 0) {
			return Result{}, &Error{Reward: "total", Kind: KindNotFinite, Sample: &samples[i],
				Detail: fmt.Sprintf("the weighted sum is %v although every score is finite", total),
				Remedy: "use smaller weights or scores"}
		}
	}
	return result, nil
}

// score calls one reward and holds it to the contract.
func score(ctx context.Context, f Func, samples []Sample, deadline time.Duration) ([]Score, error) {
	if len(samples) == 0 {
		return []Score{}, nil
	}
	call := ctx
	if deadline > 0 {
		var cancel context.CancelFunc
		call, cancel = context.WithTimeout(ctx, deadline)
		defer cancel()
	}
	scores, err := f.Score(call, samples)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("reward %s: %w", f.Name(), context.Cause(ctx))
	case err != nil && errors.Is(call.Err(), context.DeadlineExceeded):
		return nil, &Error{Reward: f.Name(), Kind: KindTimeout, Err: context.DeadlineExceeded,
			Detail: fmt.Sprintf("%d samples of step %d not scored within %v", len(samples), samples[0].Step, deadline),
			Remedy: "make the reward faster, or raise the reward timeout"}
	case err != nil:
		var own *Error
		if errors.As(err, &own) {
			return nil, err
		}
		return nil, fmt.Errorf("reward %s: %w", f.Name(), err)
	}
	return scores, verify(f.Name(), samples, scores)
}

// verify checks the contract: one score per sample, each finite or skipped.
func verify(name string, samples []Sample, scores []Score) error {
	if len(scores) != len(samples) {
		return &Error{Reward: name, Kind: KindCount,
			Detail: fmt.Sprintf("%d scores for %d samples (step %d)", len(scores), len(samples), stepOf(samples)),
			Remedy: "return exactly one score per completion, null or None for one that does not apply"}
	}
	for i, s := range scores {
		if !s.Skip && (math.IsNaN(s.Value) || math.IsInf(s.Value, 0)) {
			return &Error{Reward: name, Kind: KindNotFinite, Sample: &samples[i],
				Detail: fmt.Sprintf("score is %v", s.Value),
				Remedy: "return a finite number, or null or None for a sample that does not apply"}
		}
	}
	return nil
}

func stepOf(samples []Sample) int {
	if len(samples) == 0 {
		return 0
	}
	return samples[0].Step
}

// starter is a Func that can be made ready before the first batch.
type starter interface {
	Start(ctx context.Context) error
}

// Prepare starts the children of py: and exec: rewards, so that a missing file, function
// or program is known before a model is loaded and slow imports do not count against the
// deadline of the first batch. Rewards that are plain Go need nothing.
func Prepare(ctx context.Context, funcs []Weighted) error {
	for _, f := range funcs {
		if s, ok := f.Func.(starter); ok {
			if err := s.Start(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// reader is a Func that knows which columns it reads.
type reader interface {
	needs(s *Sample) error
}

// Check tells whether the row that s came from has the columns that the built-in rewards among funcs read, as an
// *Error without a Sample. It needs no completion, so that a run can refuse rows before it begins. What a py: or exec:
// reward reads is known to it alone.
func Check(funcs []Weighted, s *Sample) error {
	for _, f := range funcs {
		r, ok := f.Func.(reader)
		if !ok {
			continue
		}
		err := r.needs(s)
		var broken *Error
		if errors.As(err, &broken) {
			broken.Sample = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close closes every reward and returns all their errors.
func Close(funcs []Weighted) error {
	var failures []error
	for _, f := range funcs {
		failures = append(failures, f.Func.Close())
	}
	return errors.Join(failures...)
}
