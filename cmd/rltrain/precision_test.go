package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scoreOf is the line that score answers with.
func scoreOf(t *testing.T, args ...string) string {
	t.Helper()
	r := rltrain(t, `{"text":"12+30="}`, append([]string{"score"}, args...)...)
	require.Equal(t, exitDone, r.code, r.err)
	return r.out
}

func TestRunKeepsItsContract(t *testing.T) {
	runs := t.TempDir()
	dir := filepath.Join(runs, "run")
	r := ok(t, quick(t, dir, "--precision", "int8")...)
	s := summary(t, r)
	assert.Equal(t, "int8", s["precision"])
	assert.EqualValues(t, 0, s["mismatch_tokens"], "sampler and trainer keep one contract")
	assert.Positive(t, s["tokens_trained"])
	assert.Contains(t, r.err, "precision int8\nrun: ")
	config, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(config), "\nprecision: int8\n")
	var state map[string]any
	raw, err := os.ReadFile(filepath.Join(dir, "checkpoint-4", "state.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &state))
	assert.Equal(t, "int8", state["precision"])

	other := summary(t, ok(t, quick(t, filepath.Join(t.TempDir(), "f32"), "--precision", "f32")...))
	assert.Equal(t, "f32", other["precision"])
	assert.EqualValues(t, 0, other["mismatch_tokens"])
	assert.NotEqual(t, other["adapter_sha256"], s["adapter_sha256"], "the contracts compute differently")

	// Whoever uses the adapter computes as its training did, unless told otherwise.
	adapter := filepath.Join(dir, "adapter")
	own := scoreOf(t, "--model", "tiny", "--adapter", adapter)
	assert.Equal(t, own, scoreOf(t, "--model", "tiny", "--adapter", dir, "--precision", "int8"))
	assert.Equal(t, own, scoreOf(t, "--runs", runs))
	against := rltrain(t, `{"text":"12+30="}`, "score", "--model", "tiny", "--adapter", adapter, "--precision", "f32")
	require.Equal(t, exitDone, against.code, against.err)
	assert.NotEqual(t, own, against.out)
	assert.Contains(t, against.err, "warning: "+adapter+" was trained under precision int8 and computes under f32 here")
	assert.Equal(t, scoreOf(t, "--model", "tiny"), scoreOf(t, "--model", "tiny", "--precision", "f32"), "without an adapter score is an instrument")
	eval := summary(t, ok(t, "eval", "--model", "tiny", "--adapter", adapter, "--dataset", sums(t, 4), "--reward", "exact", "--max-completion-length", "6", "--json"))
	assert.Equal(t, "int8", eval["precision"])
	for _, format := range []string{"peft", "gguf"} {
		to := filepath.Join(t.TempDir(), "export."+format)
		ok(t, "export", dir, "--output", to, "--format", format)
		assert.Equal(t, own, scoreOf(t, "--model", "tiny", "--adapter", to), "the %s export remembers the contract", format)
	}

	// Training from it goes on under the same contract or not at all.
	refused := rltrain(t, "", quick(t, filepath.Join(t.TempDir(), "on"), "--adapter", adapter, "--precision", "f32")...)
	assert.Equal(t, exitUsage, refused.code)
	assert.Contains(t, refused.err, "was trained under int8, and goes on only under that; leave --precision out")
	on := summary(t, ok(t, quick(t, filepath.Join(t.TempDir(), "on"), "--adapter", adapter, "--max-steps", "2")...))
	assert.Equal(t, "int8", on["precision"])
}

func TestResumeKeepsTheContract(t *testing.T) {
	for _, contract := range []string{"int8", "auto"} {
		dir := filepath.Join(t.TempDir(), "run")
		want := summary(t, ok(t, quick(t, dir, "--precision", contract)...))
		stop := func() {
			require.NoError(t, os.Remove(filepath.Join(dir, "summary.json")))
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "checkpoint-4")))
		}
		stop()
		was := want["precision"].(string)
		config, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
		require.NoError(t, err)
		assert.Contains(t, string(config), "\nprecision: "+was+"\n", "what auto came to")
		other := map[string]string{"f32": "int8", "int8": "f32"}[was]
		r := rltrain(t, "", "resume", dir, "--precision", other)
		assert.Equal(t, exitUsage, r.code)
		assert.Contains(t, r.err, "--precision "+other+": ")
		assert.Contains(t, r.err, "was trained under "+was)
		got := summary(t, ok(t, "resume", dir, "--json"))
		assert.Equal(t, was, got["precision"])
		assert.Equal(t, want["adapter_sha256"], got["adapter_sha256"])
		stop()
		assert.Equal(t, want["adapter_sha256"], summary(t, ok(t, "resume", dir, "--precision", "auto", "--json"))["adapter_sha256"])
	}
}

func TestTuningKeepsOneContract(t *testing.T) {
	data := sums(t, 24)
	for _, contract := range []string{"f32", "int8"} {
		s := summary(t, ok(t, "sft", "--model", "tiny", "--dataset", data, "--max-steps", "2", "--eval-size", "4", "--precision", contract, "--output-dir", filepath.Join(t.TempDir(), "run"), "--json"))
		assert.Equal(t, contract, s["precision"])
	}
	r := rltrain(t, "", quick(t, filepath.Join(t.TempDir(), "run"), "--full", "--precision", "int8")...)
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.err, "--precision int8 has no effect with --full")
}

func TestPlanSaysTheContract(t *testing.T) {
	assert.Contains(t, ok(t, "plan", "--model", "tiny", "--precision", "int8").out, "precision int8")
	var plan map[string]any
	require.NoError(t, json.Unmarshal([]byte(ok(t, "plan", "use", "--model", "tiny", "--json").out), &plan))
	assert.Equal(t, "int8", plan["precision"], "the default on a quantized model")
	t.Setenv("GRAFT_PRECISION", "f32")
	assert.Contains(t, ok(t, "plan", "--model", "tiny").out, "precision f32")
	assert.Contains(t, bad(t, "plan", "--model", "tiny", "--precision", "int4"), "precision")
}
