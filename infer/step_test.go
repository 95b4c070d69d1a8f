package infer

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/kernels/cpu"
	"graft/weights"
)

// TestStepAllocatesNothing once a step of its kind has been computed.
func TestStepAllocatesNothing(t *testing.T) {
	l := newLab(t, "llama-tied", 2)
	l.m.Arena = weights.NewArena(cpu.New(cpu.Options{Threads: 2}), 0)
	t.Cleanup(func() { l.m.Backend().Close() })
	e := l.manual(t, Options{MaxSeqs: 8, NoPrefixCache: true})
	var streams []*Stream
	for i := range 6 {
		s, err := e.Submit(context.Background(), Request{Prompt: prompt(uint64(i), 8), Params: Params{MaxTokens: 110, Temperature: 1, TopP: 0.9, Adapter: []*weights.Adapter{nil, l.a}[i%2]}})
		require.NoError(t, err)
		streams = append(streams, s)
	}
	step := func() {
		e.step()
		e.publish()
		for _, s := range streams {
			if ev, ok := s.Next(context.Background()); !ok || !ev.HasToken {
				t.Fatal("no token")
			}
		}
	}
	e.turn()
	for range 10 {
		for _, s := range streams {
			s.Next(context.Background())
		}
		e.step()
	}
	for _, s := range streams {
		s.Next(context.Background())
	}
	assert.Zero(t, testing.AllocsPerRun(60, step))
}

// BenchmarkDecode is a step of many sequences of a model so small that the engine's own work shows.
func BenchmarkDecode(b *testing.B) {
	l := newLab(b, "llama-tied", 1)
	e := l.manual(b, Options{MaxSeqs: 32})
	submit := func() *Stream {
		s, err := e.Submit(context.Background(), Request{Prompt: prompt(1, 8), Params: Params{N: 32, MaxTokens: 100, Temperature: 1, IgnoreEOS: true}})
		require.NoError(b, err)
		return s
	}
	s, tokens := submit(), 0
	for b.Loop() {
		if len(e.requests) == 0 {
			s = submit()
		}
		e.turn()
		for len(s.events) > 0 {
			s.Next(context.Background())
			tokens++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(tokens), "ns/token")
}
