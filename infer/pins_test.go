package infer

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// update changes an adapter in place, as a training step does.
func (l *lab) update(t *testing.T, e *Engine, seed uint64) {
	t.Helper()
	require.NoError(t, e.PrepareUpdate(l.a))
	l.shake(l.a, seed)
	l.a.Version++
	e.changed()
}

// TestRequestsKeepTheirVersion: a request that runs while the adapter changes, twice, ends as if
// nothing had happened; one that waited takes the new version.
func TestRequestsKeepTheirVersion(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	req := Request{Prompt: prompt(1, 40), Params: Params{N: 2, MaxTokens: 20, Temperature: 1, Adapter: l.a}}
	fresh := func() []Completion {
		e := l.engine(t, nil, Options{})
		got, err := e.Generate(context.Background(), []Request{req})
		require.NoError(t, err)
		return got
	}
	want := fresh()
	e := l.manual(t, Options{MaxSeqs: 2, MaxBatchedTokens: 16, Pages: 6}) // both siblings at once do not fit
	used := l.m.Arena.Used()
	first, err := e.Submit(context.Background(), req)
	require.NoError(t, err)
	second, err := e.Submit(context.Background(), req)
	require.NoError(t, err)
	e.turn()
	l.update(t, e, 77) // in the prompt
	for range 6 {
		e.turn()
	}
	l.update(t, e, 78) // while decoding; nobody runs on version 2
	require.Len(t, e.pins.spares, 1)
	for len(e.requests) > 0 {
		e.turn()
		require.NoError(t, e.sched.Check())
	}
	require.Empty(t, e.pins.spares)
	require.EqualValues(t, 4*l.a.Params().Cols, e.totals.BytesCopied, "one copy, for the requests that ran on version 1")
	require.Equal(t, used, l.m.Arena.Used(), "the copies are gone")
	got, err := first.Collect(context.Background())
	require.NoError(t, err)
	same(t, want, got)
	assert.EqualValues(t, 1, got[0].Version)
	got, err = second.Collect(context.Background())
	require.NoError(t, err)
	assert.EqualValues(t, 3, got[0].Version)
	same(t, fresh(), got)
	assert.NotEqual(t, want[0].Tokens, got[0].Tokens)
}

// TestPrefixesDieWithTheVersion, also when the version was not counted, or an ID is used again.
func TestPrefixesDieWithTheVersion(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	e := l.manual(t, Options{})
	run := func(p Params) Completion {
		p.MaxTokens, p.Temperature = 3, 1
		s, err := e.Submit(context.Background(), Request{Prompt: prompt(1, 50), Params: p})
		require.NoError(t, err)
		for e.turn(); len(e.requests) > 0; e.turn() {
		}
		got, err := s.Collect(context.Background())
		require.NoError(t, err)
		return got[0]
	}
	assert.Equal(t, 0, run(Params{Adapter: l.a}).CachedTokens)
	assert.Equal(t, 48, run(Params{Adapter: l.a}).CachedTokens)
	assert.Equal(t, 0, run(Params{Adapter: l.a, CacheSalt: "tenant"}).CachedTokens)
	assert.Equal(t, 0, run(Params{Adapter: l.b}).CachedTokens)
	assert.Equal(t, 0, run(Params{}).CachedTokens)
	assert.Equal(t, 48, run(Params{}).CachedTokens)
	assert.Equal(t, 0, run(Params{PromptLogProbs: true}).CachedTokens)

	require.NoError(t, e.PrepareUpdate(l.a))
	l.shake(l.a, 5) // and the version is not counted
	e.changed()
	assert.Equal(t, 0, run(Params{Adapter: l.a}).CachedTokens)
	l.a.Version++
	assert.Equal(t, 0, run(Params{Adapter: l.a}).CachedTokens, "counted, but not announced")
	assert.Equal(t, 48, run(Params{Adapter: l.b}).CachedTokens, "another adapter's are alive")

	twin := l.adapter(t, l.b.ID, 8)
	assert.Equal(t, 0, run(Params{Adapter: twin}).CachedTokens)
	assert.Equal(t, 0, run(Params{Adapter: l.b}).CachedTokens)

	require.NoError(t, e.PrepareUpdate(nil))
	assert.Equal(t, 0, run(Params{}).CachedTokens)
	l.m.Version++
	assert.Equal(t, 0, run(Params{}).CachedTokens)
	require.NoError(t, e.sched.Check())
}

// TestUnannouncedChangeIsAnError, for the requests that it would have damaged.
func TestUnannouncedChangeIsAnError(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	e := l.manual(t, Options{MaxSeqs: 1})
	req := Request{Prompt: prompt(1, 10), Params: Params{MaxTokens: 5, Adapter: l.a}}
	runs, err := e.Submit(context.Background(), req)
	require.NoError(t, err)
	waits, err := e.Submit(context.Background(), req)
	require.NoError(t, err)
	e.turn()
	require.ErrorContains(t, func() error { return e.PrepareUpdate(nil) }(), "drain")
	l.a.Version++
	e.changed()
	_, err = runs.Collect(context.Background())
	require.ErrorContains(t, err, "PrepareUpdate")
	for len(e.requests) > 0 {
		e.turn()
	}
	got, err := waits.Collect(context.Background())
	require.NoError(t, err)
	assert.EqualValues(t, 2, got[0].Version)
}

// TestRetire frees an adapter with its last request.
func TestRetire(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	e := l.engine(t, nil, Options{})
	before := l.m.Arena.Used()
	ad := l.adapter(t, 9, 8)
	s, err := e.Submit(context.Background(), Request{Prompt: prompt(1, 10), Params: Params{MaxTokens: 100, Temperature: 1, Adapter: ad}})
	require.NoError(t, err)
	require.NoError(t, e.Retire(context.Background(), ad))
	got, err := s.Collect(context.Background())
	require.NoError(t, err)
	require.Len(t, got[0].Tokens, 100)
	require.NoError(t, e.Drain(context.Background()))
	require.Equal(t, before, l.m.Arena.Used())
	ad = l.adapter(t, 10, 8)
	require.NoError(t, e.Retire(context.Background(), ad))
	require.Equal(t, before, l.m.Arena.Used())
}
