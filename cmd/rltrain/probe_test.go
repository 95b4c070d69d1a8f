package main

import (
	"context"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/cmd/internal/launch"
	"graft/infer"
	"graft/kernels/quant"
	"graft/rl"
	"graft/weights"
)

// TestProbeSeesASamplerThatIgnoresTheAdapter makes the adapter's product vanish: then the sampler's
// log-probs do not follow its parameters, which is what the probe is for.
func TestProbeSeesASamplerThatIgnoresTheAdapter(t *testing.T) {
	be := launch.NewBackend(1)
	defer be.Close()
	source, err := launch.Open(launch.Request{Model: launch.Tiny})
	require.NoError(t, err)
	defer source.Files.Close()
	loaded, err := source.Load(be, 0, false)
	require.NoError(t, err)
	defer loaded.Close()
	ad, err := loaded.Model.NewAdapter(launch.AdapterID, weights.AdapterConfig{R: 4, Alpha: 8, TargetModules: []string{"all-linear"}}, 1, true)
	require.NoError(t, err)
	e, err := infer.New(loaded.Model, source.Files.Tokenizer, infer.Options{MaxModelLen: 64, Pages: 16, Threads: 1, RankCols: ad.MaxCols()})
	require.NoError(t, err)
	defer e.Close()
	r := &reinforcement{train: []rl.Prompt{{IDs: []int32{1, 2, 3}}}, training: &training{c: &console{talk: newTalk(io.Discard)}, adapter: ad,
		session: &session{source: source, backend: be, loaded: loaded, engine: e}}}
	before := loaded.Model.HashAdapter(ad)
	require.NoError(t, r.probe(context.Background()))
	assert.Equal(t, before, loaded.Model.HashAdapter(ad), "the probe leaves no trace")
	assert.EqualValues(t, 3, ad.Version, "but the count of changes: nothing cached in between is valid")

	// The export's check is the same comparison between two adapters.
	n, err := sameLogProbs(context.Background(), r.session, ad, ad)
	require.NoError(t, err)
	assert.Equal(t, checkLength-1, n)
	other, err := loaded.Model.NewAdapter(launch.AdapterID+1, weights.AdapterConfig{R: 4, Alpha: 8, TargetModules: []string{"q_proj"}}, 1, true)
	require.NoError(t, err)
	b := other.Pairs()[0].B
	require.NoError(t, e.Exclusive(context.Background(), func() error {
		raw := make([]byte, b.Format.Bytes(b.Out*b.In))
		quant.Encode(raw, quant.F32, slices.Repeat([]float32{1e-3}, b.Out*b.In))
		be.Pack(b, 0, raw)
		return be.Sync()
	}))
	_, err = sameLogProbs(context.Background(), r.session, ad, other)
	require.ErrorContains(t, err, "the export is not the same")

	for _, p := range ad.Pairs() {
		p.Scale = 0
	}
	require.ErrorContains(t, r.probe(context.Background()), "does not follow the adapter")
}
