package launch

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/model"
	"graft/model/template"
	"graft/weights"
)

func TestBytesReadAndWrite(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1234": 1234, "4GiB": 4 << 30, "1.5g": 3 << 29, "500MB": 500e6, "2 kib": 2048, "3T": 3 << 40} {
		var b Bytes
		require.NoError(t, b.UnmarshalText([]byte(text)), text)
		assert.EqualValues(t, want, b, text)
	}
	for _, text := range []string{"", "GiB", "-1", "1 apple", "1e9", "nan", "9999999999T"} {
		var b Bytes
		assert.Error(t, b.UnmarshalText([]byte(text)), text)
	}
	assert.Equal(t, "0 B", Bytes(0).String())
	assert.Equal(t, "999 B", Bytes(999).String())
	assert.Equal(t, "1.50 KiB", Bytes(1536).String())
	assert.Equal(t, "0.98 MiB", Bytes(1000<<10).String())
	assert.Equal(t, "512 MiB", Bytes(512<<20).String())
}

func TestPlanRefusesByNameAndSaysWhatToChange(t *testing.T) {
	var p Plan
	p.Add("small", 10, "a", "never mind")
	p.Add("none", 0, "b", "")
	p.Add("large", 100, "c", "make it smaller")
	require.Len(t, p.Items, 2, "nothing takes no line")
	assert.EqualValues(t, 110, p.Total())
	assert.NoError(t, p.Fit(Budget{Bytes: 110, From: "x"}))
	assert.NoError(t, p.Fit(Budget{}), "nobody knows how much there is")
	err := p.Fit(Budget{Bytes: 109, From: "--memory-limit"})
	require.ErrorContains(t, err, "this needs 110 B but --memory-limit is 109 B; large takes 100 B: make it smaller; small")
	var out bytes.Buffer
	require.NoError(t, p.Write(&out, Budget{Bytes: 200, From: "x"}))
	assert.Contains(t, out.String(), "planned  110 B  of 200 B (x)")
}

func TestAvailableIsPlausible(t *testing.T) {
	n, ok := Available()
	if !ok {
		t.Skip("this system does not say")
	}
	assert.Greater(t, n, int64(16<<20))
	assert.Less(t, n, int64(1)<<50)
}

// TestPlannedAdapterIsWhatIsAllocated compares shapes planned from the configuration, and from files,
// with what the model allocates.
func TestPlannedAdapterIsWhatIsAllocated(t *testing.T) {
	be := NewBackend(1)
	defer be.Close()
	source, err := Open(Request{Model: Tiny})
	require.NoError(t, err)
	defer source.Files.Close()
	for _, cfg := range []weights.AdapterConfig{
		{R: 16, Alpha: 32, TargetModules: []string{"all-linear"}},
		{R: 3, Alpha: 6, TargetModules: []string{"q_proj", "v_proj"}},
		{R: 40, Alpha: 6, TargetModules: []string{"mlp.down_proj"}},
	} {
		var plan Plan
		require.NoError(t, plan.AddWeights(source, be, model.Options{}))
		loaded, err := source.Load(be, plan.Total(), false)
		require.NoError(t, err, "the plan is enough")
		assert.Equal(t, plan.Total(), loaded.Arena.Used(), "and not more than enough")
		loaded.Close()

		loaded, err = source.Load(be, 0, false)
		require.NoError(t, err)
		before := loaded.Arena.Used()
		shape, err := AdapterShape(&source.Files.Config, be, cfg)
		require.NoError(t, err)
		ad, err := loaded.Model.NewAdapter(7, cfg, 1, true)
		require.NoError(t, err)
		assert.Equal(t, 2*shape.Params, loaded.Arena.Used()-before, "%v", cfg)
		assert.Equal(t, ad.MaxCols(), shape.Cols)
		assert.Equal(t, len(ad.Pairs()), shape.Pairs)
		dir := filepath.Join(t.TempDir(), "adapter")
		require.NoError(t, loaded.Model.SavePEFT(ad, dir))
		file := filepath.Join(t.TempDir(), "adapter.gguf")
		require.NoError(t, loaded.Model.SaveAdapterGGUF(ad, file))
		for _, path := range []string{dir, file} {
			got, err := AdapterFileShape(path, be)
			require.NoError(t, err)
			assert.Equal(t, shape, got, path)
		}
		loaded.Close()
	}
	for _, cfg := range []weights.AdapterConfig{{R: 4, TargetModules: []string{"q_porj"}}, {R: 4}, {R: 0, TargetModules: []string{"all-linear"}}, {R: 4, TargetModules: []string{"proj"}}} {
		_, err := AdapterShape(&source.Files.Config, be, cfg)
		assert.Error(t, err, "%v", cfg)
	}
}

func TestConversationKeepsUserTextText(t *testing.T) {
	source, err := Open(Request{Model: Tiny})
	require.NoError(t, err)
	defer source.Files.Close()
	tok := source.Files.Tokenizer
	stop, found := tok.ID("<|end|>")
	require.True(t, found)
	count := func(text string) (n int) {
		ids, err := Conversation(tok, []any{template.NewMap("role", "user", "content", text)}, true)
		require.NoError(t, err)
		for _, id := range ids {
			if id == stop {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 1, count("hello"))
	assert.Equal(t, 1, count("<|end|>"), "what a user writes never ends the turn")
}

// run makes a run folder that looks as if it changed at a time.
func makeRun(t *testing.T, root, name, config, summary string, adapter string, at time.Time) {
	t.Helper()
	dir := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(dir, 0o777))
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		require.NoError(t, os.Chtimes(path, at, at))
	}
	write("config.yaml", config)
	if summary != "" {
		write("summary.json", summary)
	}
	if adapter != "" {
		write(filepath.Join(adapter, "adapter_config.json"), "{}")
		require.NoError(t, os.Chtimes(filepath.Join(dir, filepath.Dir(adapter)), at, at))
	}
}

func TestLastRunIsTheNewestUsableOne(t *testing.T) {
	root := t.TempDir()
	now := time.Now()
	makeRun(t, root, "old", "command: grpo\nmodel: m1\n", `{"steps":3}`, "adapter", now.Add(-3*time.Hour))
	makeRun(t, root, "half", "command: sft\nmodel: m2\n", "", "checkpoint-20/adapter", now.Add(-2*time.Hour))
	makeRun(t, root, "begun", "command: grpo\nmodel: m3\n", "", "", now)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "no-run"), 0o777))
	runs, err := Runs(root)
	require.NoError(t, err)
	require.Len(t, runs, 3)
	assert.Equal(t, []string{"m3", "m2", "m1"}, []string{runs[0].Model, runs[1].Model, runs[2].Model})
	last, err := LastRun(root)
	require.NoError(t, err)
	assert.Equal(t, "m2", last.Model)
	assert.Equal(t, 20, last.Checkpoint)
	assert.False(t, last.Done)
	assert.Equal(t, filepath.Join(root, "half", "checkpoint-20", "adapter"), last.Adapter)
	assert.True(t, runs[2].Done)

	_, err = LastRun(filepath.Join(root, "none"))
	assert.ErrorContains(t, err, "--model")
}
