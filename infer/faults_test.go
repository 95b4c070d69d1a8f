package infer

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/model"
	"graft/weights"
)

// faulty fails when told to.
type faulty struct {
	kernels.Backend
	broken bool
}

func (f *faulty) Sync() error {
	if err := f.Backend.Sync(); err != nil || !f.broken {
		return err
	}
	return errors.New("the device is on fire")
}

func TestDeviceErrorEndsRequestsInFlight(t *testing.T) {
	f := &faulty{}
	l := newLab(t, "llama-tied", 1)
	f.Backend = l.m.Backend()
	l.m.Arena = weights.NewArena(f, 0)
	e := l.manual(t, Options{MaxSeqs: 2})
	var streams []*Stream
	for i := range 3 {
		s, err := e.Submit(context.Background(), Request{Prompt: prompt(uint64(i), 8), Params: Params{MaxTokens: 4}})
		require.NoError(t, err)
		streams = append(streams, s)
	}
	e.turn()
	f.broken = true
	e.turn()
	f.broken = false
	for len(e.requests) > 0 {
		e.turn()
	}
	for i, s := range streams {
		got, err := s.Collect(context.Background())
		if i < 2 {
			require.ErrorContains(t, err, "on fire")
			require.Equal(t, FinishError, got[0].Finish)
		} else {
			require.NoError(t, err, "it was waiting")
		}
	}
}

// TestBrokenAdapterHurtsItselfOnly: NaN in one request's weights ends that request; batch-mates, and
// those who get its pages later, do not notice.
func TestBrokenAdapterHurtsItselfOnly(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	good := Request{Prompt: prompt(1, 20), Params: Params{MaxTokens: 9, Temperature: 1, Adapter: l.a}}
	e := l.engine(t, nil, Options{Pages: 5})
	want, err := e.Generate(context.Background(), []Request{good})
	require.NoError(t, err)
	for i, v := 0, l.b.Params().F32(); i < len(v); i++ {
		v[i] = float32(nan())
	}
	bad := Request{Prompt: prompt(2, 40), Params: Params{MaxTokens: 5, Temperature: 1, Adapter: l.b}}
	for range 3 {
		s1, err := e.Submit(context.Background(), bad)
		require.NoError(t, err)
		s2, err := e.Submit(context.Background(), good)
		require.NoError(t, err)
		_, err = s1.Collect(context.Background())
		require.ErrorContains(t, err, "not finite")
		got, err := s2.Collect(context.Background())
		require.NoError(t, err)
		require.Equal(t, want[0].Tokens, got[0].Tokens)
		require.Equal(t, bits(want[0].LogP), bits(got[0].LogP))
	}
	_, _, err = e.Score(context.Background(), bad.Prompt, l.b, 1)
	require.ErrorContains(t, err, "diverged")
	_, err = e.Generate(context.Background(), []Request{{Prompt: good.Prompt, Params: Params{MaxTokens: 2, MinTokens: 1, StopIDs: everyToken(), Temperature: 1}}})
	var refused *RequestError
	require.ErrorAs(t, err, &refused)
}

// TestBrokenRowHurtsItselfOnly: of two sequences in one product, the one whose logits are no numbers
// ends; the other goes on.
func TestBrokenRowHurtsItselfOnly(t *testing.T) {
	l := newLab(t, "llama-untied", 1)
	good := Request{Prompt: []int32{20, 21, 22}, Params: Params{MaxTokens: 1, Temperature: 1}}
	e := l.manual(t, Options{})
	want, err := e.Submit(context.Background(), good)
	require.NoError(t, err)
	e.turn()
	rows := model.Floats(l.m.Backend(), l.m.Embed.W)[:16*l.m.Config.Dim]
	for i := range l.m.Config.Dim {
		rows[7*l.m.Config.Dim+i] = float32(nan()) // the embedding of token 7
	}
	raw := make([]byte, l.m.Embed.W.Format.Bytes(len(rows)))
	quant.Encode(raw, l.m.Embed.W.Format, rows)
	l.m.Backend().Pack(l.m.Embed.W, 0, raw)
	require.NoError(t, e.PrepareUpdate(nil))
	bad, err := e.Submit(context.Background(), Request{Prompt: []int32{20, 7, 22}, Params: Params{MaxTokens: 1, Temperature: 1}})
	require.NoError(t, err)
	stays, err := e.Submit(context.Background(), good)
	require.NoError(t, err)
	e.turn()
	_, err = bad.Collect(context.Background())
	require.ErrorContains(t, err, "not finite")
	a, err := want.Collect(context.Background())
	require.NoError(t, err)
	b, err := stays.Collect(context.Background())
	require.NoError(t, err)
	require.Equal(t, a[0].Tokens, b[0].Tokens)
	require.Equal(t, bits(a[0].LogP), bits(b[0].LogP))
}

func nan() float64 { var zero float64; return zero / zero }

func everyToken() []int32 {
	out := make([]int32, 300)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}
