package launch

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/kernels/ref"
	"graft/model"
	"graft/weights"
)

// adapterUnder writes an adapter of the embedded model that was trained under a contract; with
// "" nobody knows under which.
func adapterUnder(t *testing.T, contract string) string {
	t.Helper()
	source, err := Open(Request{Model: Tiny, Precision: contract})
	require.NoError(t, err)
	defer source.Files.Close()
	loaded, err := source.Load(ref.New(), 0, false)
	require.NoError(t, err)
	defer loaded.Close()
	ad, err := loaded.Model.NewAdapter(1, weights.AdapterConfig{R: 1, Alpha: 1, TargetModules: []string{"q_proj"}}, 1, false)
	require.NoError(t, err)
	if contract == "" {
		ad.Config.Precision = nil
	}
	dir := filepath.Join(t.TempDir(), "trained-"+contract)
	require.NoError(t, loaded.Model.SavePEFT(ad, dir))
	return dir
}

func TestContractIsTheAdaptersUnlessAskedFor(t *testing.T) {
	f32, int8, silent := adapterUnder(t, "f32"), adapterUnder(t, "int8"), adapterUnder(t, "")
	float := model.Options{Format: new(quant.F16)}
	for _, c := range []struct {
		name, asked string
		use         Use
		adapters    []string
		o           model.Options
		want        string // contract
		fails       string
		warns       string
	}{
		{name: "training by default", use: Training, want: Training.Precision().String()},
		{name: "answering by default", use: Answering, asked: "auto", want: Answering.Precision().String()},
		{name: "scoring by default", use: Scoring, want: "f32"},
		{name: "asked for", use: Scoring, asked: "int8", want: "int8"},
		{name: "the adapter's", use: Scoring, adapters: []string{int8}, want: "int8"},
		{name: "the other adapter's", use: Training, asked: "auto", adapters: []string{f32}, want: "f32"},
		{name: "a silent adapter", use: Scoring, adapters: []string{silent}, want: "f32"},
		{name: "silent ones follow", use: Answering, adapters: []string{silent, int8}, want: "int8"},
		{name: "as the adapter", use: Training, asked: "int8", adapters: []string{int8}, want: "int8"},
		{name: "training goes on otherwise", use: Training, asked: "f32", adapters: []string{int8}, fails: "trained under int8, and goes on only under that; leave --precision out"},
		{name: "training goes on otherwise, too", use: Training, asked: "int8", adapters: []string{f32}, fails: "trained under f32"},
		{name: "use under another", use: Answering, asked: "f32", adapters: []string{int8}, want: "f32", warns: "trained-int8 was trained under precision int8 and computes under f32 here"},
		{name: "two kinds", use: Answering, adapters: []string{f32, int8}, fails: "trained-f32 under f32, " + int8 + " under int8"},
		{name: "two kinds, settled", use: Answering, asked: "int8", adapters: []string{f32, int8}, want: "int8", warns: "trained-f32 was trained under precision f32"},
		{name: "no name", use: Answering, asked: "bf16", fails: "want auto, f32 or int8"},
		{name: "nothing quantized", use: Training, o: float, want: "f32"},
		{name: "nothing quantized, asked", use: Training, asked: "int8", o: float, fails: "--precision int8 has no effect on tiny"},
		{name: "nothing quantized, f32", use: Training, asked: "f32", o: float, want: "f32"},
		{name: "nothing quantized, the adapter's", use: Answering, adapters: []string{int8}, o: float, want: "f32", warns: "under f32 here, since no matrix of tiny is quantized"},
		{name: "nothing quantized, training goes on", use: Training, asked: "f32", adapters: []string{int8}, o: float, want: "f32", warns: "since no matrix"},
		{name: "trained base", use: Training, o: model.Options{Trained: true}, want: "f32"},
	} {
		source, err := Open(Request{Model: Tiny, Options: c.o})
		require.NoError(t, err)
		err = source.Settle(c.asked, c.use, c.adapters...)
		if c.fails != "" {
			var refused *PrecisionError
			require.ErrorAs(t, err, &refused, c.name)
			assert.Contains(t, err.Error(), c.fails, c.name)
		} else {
			require.NoError(t, err, c.name)
			assert.Equal(t, c.want, source.Files.Precision().String(), c.name)
		}
		if c.warns == "" {
			assert.Empty(t, source.Warnings, c.name)
		} else if assert.Len(t, source.Warnings, 1, c.name) {
			assert.Contains(t, source.Warnings[0], c.warns, c.name)
		}
		source.Files.Close()
	}
}

func TestRequestReachesTheWeights(t *testing.T) {
	for _, p := range []kernels.Precision{kernels.PrecisionF32, kernels.PrecisionInt8} {
		source, err := Open(Request{Model: Tiny, Precision: p.String()})
		require.NoError(t, err)
		loaded, err := source.Load(ref.New(), 0, false)
		require.NoError(t, err)
		assert.Equal(t, p, loaded.Model.Precision)
		assert.Equal(t, p, loaded.Model.Head.W.Precision)
		assert.Equal(t, p, loaded.Model.Linears[0].W.Precision)
		var plan Plan
		require.NoError(t, plan.AddWeights(source, ref.New(), model.Options{}))
		assert.Contains(t, plan.Items[0].What, "precision "+p.String())
		loaded.Close()
		source.Files.Close()
	}
}
