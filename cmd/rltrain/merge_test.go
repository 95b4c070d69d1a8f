package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/weights/gguf"
)

// A merged model computes what the model with its adapter computes, up to the rounding of how it is
// stored, and it is one file.
func TestMergedModelIsTheTunedOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	ok(t, quick(t, dir, "--eval-size", "0", "--learning-rate", "5e-3", "--precision", "f32")...)
	scores := func(args ...string) []*float64 {
		r := rltrain(t, `{"text":"<|user|>37+58=<|end|><|assistant|>95<|end|>"}`, append([]string{"score", "--precision", "f32"}, args...)...)
		require.Equal(t, exitDone, r.code, r.err)
		var s struct{ LogProbs []*float64 }
		require.NoError(t, json.Unmarshal([]byte(r.out), &s))
		return s.LogProbs
	}
	apart := func(a, b []*float64) (most float64) {
		for i := 1; i < len(a); i++ {
			most = max(most, math.Abs(*a[i]-*b[i]))
		}
		return most
	}
	tuned, bare := scores("--model", "tiny", "--adapter", dir), scores("--model", "tiny")
	moved := apart(bare, tuned)
	require.Greater(t, moved, 0.02, "the adapter does something")
	for how, most := range map[string]float64{"wide": 0.02, "f16": 0.02, "f32": 1e-3, "base": moved / 2} {
		to := filepath.Join(t.TempDir(), "merged.gguf")
		r := ok(t, "export", dir, "--format", "merged-gguf", "--merged-weights", how, "--output", to)
		assert.Contains(t, r.err, "read back; its")
		assert.Equal(t, to+"\n", r.out)
		assert.Less(t, apart(scores("--model", to), tuned), most, how)
		f, err := gguf.Open(to)
		require.NoError(t, err)
		defer f.Close()
		entries, err := os.ReadDir(filepath.Dir(to))
		require.NoError(t, err)
		assert.Len(t, entries, 1, "nothing is left aside")
	}
	assert.Contains(t, bad(t, "export", dir, "--output", filepath.Join(t.TempDir(), "x"), "--merged-weights", "f32"), "--merged-weights has no effect but with --format merged-gguf")
	folder := filepath.Join("..", "..", "tests", "testdata", "golden-hf", "models", "llama-tied")
	tuning := filepath.Join(t.TempDir(), "folder")
	if r := rltrain(t, "", "sft", "--model", folder, "--dataset", file(t, "rows.jsonl", `{"text":"a b c"}`+"\n"), "--max-steps", "1", "--eval-size", "0", "--output-dir", tuning); r.code == exitDone {
		assert.Contains(t, bad(t, "export", tuning, "--format", "merged-gguf", "--output", filepath.Join(t.TempDir(), "m.gguf")), "merging needs a GGUF model")
	}
}

// What merging costs is told apart from what a contract costs: stored as F32 it costs nothing, whatever
// the adapter was trained under.
func TestMergeOfAnInt8AdapterCostsNoMoreThanStoring(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	ok(t, quick(t, dir, "--eval-size", "0", "--precision", "int8", "--learning-rate", "5e-3")...)
	to := filepath.Join(t.TempDir(), "merged.gguf")
	merge := []string{"export", dir, "--format", "merged-gguf", "--merged-weights", "f32", "--output", to}
	r := ok(t, merge...)
	said := strings.Join(strings.Fields(r.err), " ")
	assert.Contains(t, said, "read back; its log-probs are 0.0000", "to four digits")
	assert.Contains(t, said, "was trained under precision int8 and computes under f32 here", "who takes the file should know")
	require.NoError(t, os.Remove(to))
	assert.Contains(t, bad(t, append(merge, "--precision", "int8")...), "--precision int8 has no effect with --format merged-gguf")
}

func TestAMergeThatLosesTheAdapterIsRefused(t *testing.T) {
	assert.False(t, lost(0.001, 0), "an adapter that does nothing is not lost")
	assert.False(t, lost(0.1, 0.3))
	assert.True(t, lost(0.2, 0.3))
	assert.True(t, lost(0.03, 0.03), "the merged model is the base")
	assert.True(t, lost(math.NaN(), 1))
}
