package infer

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/weights"
)

// manual is an engine whose loop the test turns by hand.
func (l *lab) manual(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := newEngine(l.m, nil, l.options(o))
	require.NoError(t, err)
	t.Cleanup(func() {
		for q := range e.requests {
			e.end(q, FinishError, ErrClosed)
		}
		require.NoError(t, e.sched.Check())
		require.Zero(t, e.pool.Used())
		e.free()
	})
	return e
}

// turn is one round of the loop.
func (e *Engine) turn() {
	var inbox mail
	if e.mail.empty() || e.collect(&inbox) {
		e.serve(&inbox)
		e.step()
		e.publish()
	}
}

// TestCancelAtEveryStage closes one of two requests after every possible number of steps: its pages
// are free after the next step, and the other one does not notice.
func TestCancelAtEveryStage(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	other := Request{Prompt: prompt(2, 20), Params: Params{MaxTokens: 12, Temperature: 1}}
	e := l.engine(t, nil, Options{})
	want, err := e.Generate(context.Background(), []Request{other})
	require.NoError(t, err)
	for stage := range 14 {
		for _, o := range []Options{{MaxBatchedTokens: 16, MaxSeqs: 4}, {MaxBatchedTokens: 16, MaxSeqs: 1}, {MaxBatchedTokens: 9, MaxSeqs: 4, Pages: 5}} {
			e := l.manual(t, o)
			gone, err := e.Submit(context.Background(), Request{Prompt: prompt(1, 50), Params: Params{N: 3, MaxTokens: 10, Temperature: 1, PromptLogProbs: stage%2 == 0}})
			require.NoError(t, err)
			stays, err := e.Submit(context.Background(), other)
			require.NoError(t, err)
			for range stage {
				e.turn()
			}
			gone.Close()
			e.turn()
			_, there := e.requests[gone.req]
			require.False(t, there)
			require.NoError(t, e.sched.Check())
			for _, s := range gone.req.seqs {
				require.True(t, s.over)
				require.Empty(t, s.Table)
			}
			for len(e.requests) > 0 {
				e.turn()
				require.NoError(t, e.sched.Check())
			}
			got, err := stays.Collect(context.Background())
			require.NoError(t, err)
			require.Equal(t, want[0].Tokens, got[0].Tokens)
			require.Equal(t, bits(want[0].LogP), bits(got[0].LogP))
			ended, err := gone.Collect(context.Background())
			require.NoError(t, err)
			for _, c := range ended {
				require.Contains(t, []FinishReason{FinishAbort, FinishLength}, c.Finish)
				if stage < 4 {
					require.Equal(t, FinishAbort, c.Finish)
				}
			}
		}
	}
}

// TestEndsAreCountedBeforeTheyAreTold: whoever has read the end of a request finds all of it in the
// figures, though the loop has not come round.
func TestEndsAreCountedBeforeTheyAreTold(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	e := l.manual(t, Options{NoPrefixCache: true})
	var want Stats
	for _, p := range []Params{
		{MaxTokens: 3, Temperature: 1},
		{N: 3, MaxTokens: 2, Temperature: 1},
		{PromptLogProbs: true}, // no token
	} {
		s, err := e.Submit(context.Background(), Request{Prompt: prompt(1, 20), Params: p})
		require.NoError(t, err)
		inbox := mail{}
		require.True(t, e.collect(&inbox))
		e.serve(&inbox)
		for len(e.requests) > 0 {
			e.step() // and nothing after it
		}
		got, err := s.Collect(context.Background())
		require.NoError(t, err)
		want.PromptTokens += 20
		want.Truncated += uint64(len(got))
		for _, c := range got {
			want.GeneratedTokens += uint64(len(c.Tokens))
		}
		st := e.Stats()
		require.Equal(t, want, Stats{PromptTokens: st.PromptTokens, Truncated: st.Truncated, GeneratedTokens: st.GeneratedTokens, Running: st.Running, PagesUsed: st.PagesUsed})
		require.Equal(t, e.totals.Steps, st.Steps)
	}
}

func TestStreamsUnderLoad(t *testing.T) {
	l := newLab(t, "llama-tied", 2)
	e := l.engine(t, nil, Options{Pages: 12, MaxSeqs: 6, MaxBatchedTokens: 12})
	req := func(i int) Request {
		return Request{Prompt: prompt(uint64(i%3), 10+i), Params: Params{N: 1 + i%3, MaxTokens: 4 + i, Temperature: 1, Adapter: []*weights.Adapter{nil, l.a}[i%2]}}
	}
	var want [16][]Completion
	for i := range want {
		var err error
		want[i], err = e.Generate(context.Background(), []Request{req(i)})
		require.NoError(t, err)
	}
	var wg sync.WaitGroup
	for i := range want {
		wg.Go(func() {
			s, err := e.Submit(context.Background(), req(i))
			if !assert.NoError(t, err) {
				return
			}
			if i%4 == 3 { // a client that leaves in the middle
				s.Next(context.Background())
				s.Close()
				s.Close()
				return
			}
			got, err := s.Collect(context.Background())
			assert.NoError(t, err)
			for j := range got {
				assert.Equal(t, want[i][j].Tokens, got[j].Tokens)
			}
		})
		wg.Go(func() { assert.NoError(t, e.Exclusive(context.Background(), func() error { return e.sched.Check() })) })
		wg.Go(func() { _ = e.Stats() })
	}
	wg.Wait()
	require.NoError(t, e.Drain(context.Background()))
}

func TestCloseEndsRequests(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	used := l.m.Arena.Used()
	e, err := New(l.m, nil, l.options(Options{MaxSeqs: 1}))
	require.NoError(t, err)
	opt := l.options(Options{MaxSeqs: 1})
	assert.Equal(t, used+PlanBytes(&l.m.Config, opt, 0), l.m.Arena.Used(), "the plan is exact")
	opt.RankCols = 0
	assert.Equal(t, used+PlanBytes(&l.m.Config, opt, max(l.a.MaxCols(), l.b.MaxCols())), l.m.Arena.Used())
	var streams []*Stream
	for range 3 {
		s, err := e.Submit(context.Background(), Request{Prompt: prompt(1, 50), Params: Params{MaxTokens: 70, Temperature: 1}})
		require.NoError(t, err)
		streams = append(streams, s)
	}
	require.NoError(t, e.Close())
	failed := 0
	for _, s := range streams {
		if _, err := s.Collect(context.Background()); errors.Is(err, ErrClosed) {
			failed++
		}
	}
	assert.Positive(t, failed)
	assert.Equal(t, used, l.m.Arena.Used(), "everything is given back")
	_, err = e.Submit(context.Background(), Request{Prompt: prompt(1, 5), Params: Params{MaxTokens: 1}})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, e.Exclusive(context.Background(), func() error { return nil }), ErrClosed)
	require.NoError(t, e.Close())
}

func TestWaitingLimit(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	e := l.manual(t, Options{MaxSeqs: 1, MaxWaiting: 2})
	req := Request{Prompt: prompt(1, 5), Params: Params{MaxTokens: 3}}
	for range 2 {
		_, err := e.Submit(context.Background(), req)
		require.NoError(t, err)
	}
	_, err := e.Submit(context.Background(), req)
	require.ErrorIs(t, err, ErrBusy)
	e.turn() // one runs, one waits
	_, err = e.Submit(context.Background(), req)
	require.NoError(t, err)
	_, err = e.Submit(context.Background(), req)
	require.ErrorIs(t, err, ErrBusy)
}

// TestExclusiveWaitsNoLongerThanItsContext while another holds the device.
func TestExclusiveContext(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	e := l.engine(t, nil, Options{})
	err := e.Exclusive(context.Background(), func() error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.ErrorIs(t, e.Exclusive(ctx, func() error { t.Error("ran"); return nil }), context.Canceled)
		return errors.New("its own")
	})
	require.EqualError(t, err, "its own")
	require.Panics(t, func() { _ = e.Exclusive(context.Background(), func() error { panic("f") }) })
	_, err = e.Generate(context.Background(), []Request{{Prompt: prompt(1, 5), Params: Params{MaxTokens: 2}}})
	require.NoError(t, err, "the loop goes on")
}

// TestTrainingTakesPages: Take reclaims pages of running sequences, which are computed again; pages
// that are not given back are an error, not a standstill.
func TestTrainingTakesPages(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	req := Request{Prompt: prompt(1, 30), Params: Params{MaxTokens: 30, Temperature: 1}}
	ref := l.engine(t, nil, Options{})
	want, err := ref.Generate(context.Background(), []Request{req})
	require.NoError(t, err)

	e := l.manual(t, Options{Pages: 6})
	s, err := e.Submit(context.Background(), req)
	require.NoError(t, err)
	for range 8 {
		e.turn()
	}
	require.Len(t, e.sched.Running(), 1)
	pages, err := e.Pool().Take(6)
	require.NoError(t, err)
	require.NoError(t, e.sched.Check())
	_, err = e.Pool().Take(1)
	require.ErrorContains(t, err, "6 of them are taken")
	e.Pool().Give(pages)
	for len(e.requests) > 0 {
		e.turn()
	}
	got, err := s.Collect(context.Background())
	require.NoError(t, err)
	require.Equal(t, want[0].Tokens, got[0].Tokens)
	require.Equal(t, bits(want[0].LogP), bits(got[0].LogP))

	pages, err = e.Pool().Take(5)
	require.NoError(t, err)
	s, err = e.Submit(context.Background(), req)
	require.NoError(t, err)
	e.turn()
	_, err = s.Collect(context.Background())
	require.ErrorContains(t, err, "5 of 6 are taken by training")
	e.Pool().Give(pages)
}

// TestClosedBeforeItBegan: a context may end while Submit is under way.
func TestClosedBeforeItBegan(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	e := l.manual(t, Options{})
	r := Request{Prompt: prompt(1, 5), Params: Params{MaxTokens: 3}.withDefaults()}
	q := e.newRequest(&r)
	q.stream.Close()
	e.turn()
	e.mail.add = append(e.mail.add, q)
	e.turn()
	got, err := q.stream.Collect(context.Background())
	require.NoError(t, err)
	require.Equal(t, FinishAbort, got[0].Finish)
	require.Empty(t, got[0].Tokens)
}

// TestContextCancels, without anyone reading the stream.
func TestContextCancels(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	e := l.engine(t, nil, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	s, err := e.Submit(ctx, Request{Prompt: prompt(1, 5), Params: Params{MaxTokens: 100, Temperature: 1}})
	require.NoError(t, err)
	s.Next(ctx)
	cancel()
	got, err := s.Collect(context.Background())
	require.NoError(t, err)
	require.Contains(t, []FinishReason{FinishAbort, FinishLength}, got[0].Finish)
	_, err = e.Generate(ctx, []Request{{Prompt: prompt(1, 5), Params: Params{MaxTokens: 100}}})
	require.ErrorIs(t, err, context.Canceled)
}
