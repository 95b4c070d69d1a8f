package rewards

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fake is a Func that gives what it is told to.
type fake struct {
	name   string
	score  func(ctx context.Context, samples []Sample) ([]Score, error)
	closed int
}

func (f *fake) Name() string { return f.name }
func (f *fake) Score(ctx context.Context, samples []Sample) ([]Score, error) {
	return f.score(ctx, samples)
}
func (f *fake) Close() error { f.closed++; return nil }

func gives(name string, scores ...Score) *fake {
	return &fake{name: name, score: func(context.Context, []Sample) ([]Score, error) { return scores, nil }}
}

func three() []Sample {
	return []Sample{{Step: 4, Group: 1}, {Step: 4, Group: 1, Index: 1}, {Step: 4, Group: 2}}
}

func TestRunAddsWeightedScoresAndLeavesOutSkips(t *testing.T) {
	skip := Score{Skip: true, Value: 99}
	result, err := Run(context.Background(), []Weighted{
		{gives("a", Score{Value: 1}, skip, skip), 0.5},
		{gives("b", Score{Value: -2}, Score{Value: 3}, skip), 2},
	}, three(), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []float64{0.5*1 + 2*-2, 6, 0}, result.Total)
	assert.Equal(t, []bool{true, true, false}, result.Scored)
	assert.Equal(t, []string{"a", "b"}, result.Names)
	assert.Equal(t, []float64{0.5, 2}, result.Weights)
	assert.Equal(t, skip, result.Scores[0][1], "what a function said is kept as it was")
}

func TestRunRefusesBreaches(t *testing.T) {
	one := Score{Value: 1}
	for _, c := range []struct {
		f    *fake
		kind Kind
		says []string
	}{
		{gives("one value", one), KindCount, []string{"reward one value", "1 scores for 3 samples", "step 4", "exactly one"}},
		{gives("none"), KindCount, []string{"0 scores for 3 samples"}},
		{gives("more", one, one, one, one), KindCount, []string{"4 scores for 3 samples"}},
		{gives("nan", one, one, Score{Value: math.NaN()}), KindNotFinite, []string{"step 4 group 2 sample 0", "NaN"}},
		{gives("inf", one, Score{Value: math.Inf(1)}, one), KindNotFinite, []string{"step 4 group 1 sample 1", "+Inf"}},
	} {
		result, err := Run(context.Background(), []Weighted{{gives("fine", one, one, one), 1}, {c.f, 1}}, three(), 0)
		var own *Error
		require.ErrorAs(t, err, &own, c.f.name)
		assert.Equal(t, c.kind, own.Kind)
		assert.Equal(t, c.f.name, own.Reward)
		assert.Empty(t, result.Total, "no partial result")
		for _, s := range c.says {
			assert.Contains(t, err.Error(), s)
		}
	}
	huge := gives("huge", Score{Value: math.MaxFloat64}, one, one)
	_, err := Run(context.Background(), []Weighted{{huge, 2}}, three(), 0)
	assert.ErrorContains(t, err, "weighted sum is +Inf")
	_, err = Run(context.Background(), []Weighted{{huge, math.NaN()}}, three(), 0)
	assert.ErrorContains(t, err, "weight of huge is NaN")
	_, err = Run(context.Background(), nil, three(), 0)
	assert.ErrorContains(t, err, "no reward function")
	_, err = Run(context.Background(), []Weighted{{&fake{name: "broken", score: func(context.Context, []Sample) ([]Score, error) {
		return nil, errors.New("disk full")
	}}, 1}}, three(), 0)
	assert.EqualError(t, err, "reward broken: disk full")
}

func TestRunTellsDeadlineFromCancel(t *testing.T) {
	waits := &fake{name: "waits", score: func(ctx context.Context, _ []Sample) ([]Score, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	_, err := Run(context.Background(), []Weighted{{waits, 1}}, three(), time.Millisecond)
	var own *Error
	require.ErrorAs(t, err, &own)
	assert.Equal(t, KindTimeout, own.Kind)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "3 samples of step 4 not scored within 1ms")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Run(ctx, []Weighted{{waits, 1}}, three(), time.Minute)
	assert.ErrorIs(t, err, context.Canceled)
	assert.False(t, errors.As(err, &own) && own.Kind == KindTimeout, "a cancelled run is no slow reward")
}

func TestRunCallsRewardsAtTheSameTime(t *testing.T) {
	first, second := make(chan struct{}), make(chan struct{})
	meet := func(mine, other chan struct{}) func(context.Context, []Sample) ([]Score, error) {
		return func(ctx context.Context, s []Sample) ([]Score, error) {
			close(mine)
			select {
			case <-other:
				return make([]Score, len(s)), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	_, err := Run(context.Background(), []Weighted{
		{&fake{name: "a", score: meet(first, second)}, 1}, {&fake{name: "b", score: meet(second, first)}, 1},
	}, three(), time.Minute)
	assert.NoError(t, err)
}

func TestRunOfNothingCallsNothing(t *testing.T) {
	result, err := Run(context.Background(), []Weighted{{&fake{name: "untouched"}, 1}}, nil, 0)
	require.NoError(t, err)
	assert.Empty(t, result.Total)
}

func TestReportSeesWhatTrainingWouldMiss(t *testing.T) {
	one := Score{Value: 1}
	r := Test(context.Background(), gives("flat", one, one, one), three())
	assert.True(t, r.OK())
	assert.True(t, r.Deterministic)
	require.Len(t, r.Warnings, 1)
	assert.Contains(t, r.Warnings[0], "all 3 scores are 1")

	r = Test(context.Background(), gives("skips", Score{Skip: true}, Score{Skip: true}, Score{Skip: true}), three())
	assert.Equal(t, 3, r.Skipped)
	assert.Contains(t, r.Warnings[0], "all 3 samples were skipped")

	r = Test(context.Background(), gives("good", one, Score{Value: 3}, Score{Skip: true}), three())
	assert.Empty(t, r.Warnings)
	assert.Equal(t, []float64{1, 3, 2, 1}, []float64{r.Min, r.Max, r.Mean, r.Std})

	calls := 0.0
	r = Test(context.Background(), &fake{name: "drifts", score: func(context.Context, []Sample) ([]Score, error) {
		calls++
		return []Score{one, {Value: calls}, {}}, nil
	}}, three())
	assert.False(t, r.Deterministic)
	require.Len(t, r.Warnings, 1)
	assert.Contains(t, r.Warnings[0], "group 1 sample 1 scored 1, then 2")

	r = Test(context.Background(), gives("short", one), three())
	assert.False(t, r.OK())
	assert.ErrorContains(t, r.Err, "1 scores for 3 samples")
	assert.Error(t, Test(context.Background(), gives("none"), nil).Err)
}
