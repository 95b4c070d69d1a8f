package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPlanBoundsTheProcess: what the kernel says the process had resident is within the plan, and the
// plan is not a wild guess.
func TestPlanBoundsTheProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the constants were measured on linux")
	}
	if raced {
		t.Skip("the race detector's shadow memory is not the program's")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	data, dir := sums(t, 200), t.TempDir()
	many := sums(t, 50_000) // reading them takes more than training on them
	train := []string{"--model", "tiny", "--dataset", data, "--max-steps", "3", "--per-device-train-batch-size", "32", "--eval-size", "8", "--json"}
	for _, c := range []struct {
		name  string
		args  []string
		share float64 // of the plan that is at least used
	}{
		{"demo", []string{"--max-steps", "3", "--json"}, 0.6},
		{"grpo", append([]string{"grpo", "--reward", "exact", "--max-completion-length", "16"}, train...), 0.4},
		{"sft", append([]string{"sft"}, train...), 0.5},
		{"sft, many rows", []string{"sft", "--model", "tiny", "--dataset", many, "--max-steps", "3", "--eval-size", "8", "--json"}, 0.5},
		{"sft --full", append([]string{"sft", "--full"}, train...), 0.5},
		{"eval", []string{"eval", "--model", "tiny", "--dataset", data, "--reward", "exact", "--max-completion-length", "16", "--json"}, 0.5},
	} {
		if c.name != "eval" {
			c.args = append(c.args, "--output-dir", filepath.Join(dir, c.name))
		}
		cmd := exec.CommandContext(t.Context(), self, c.args...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.NoError(t, cmd.Run(), "%s: %s", c.name, &errs)
		var s struct {
			Planned int64 `json:"planned_bytes"`
			Peak    int64 `json:"peak_bytes"`
			Arena   int64 `json:"arena_peak_bytes"`
		}
		lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
		require.NoError(t, json.Unmarshal(lines[len(lines)-1], &s), c.name)
		t.Logf("%s: %d MiB planned, %d MiB resident, %d MiB of them arena", c.name, s.Planned>>20, s.Peak>>20, s.Arena>>20)
		assert.LessOrEqual(t, s.Peak, s.Planned, "%s: the plan is a bound", c.name)
		assert.Greater(t, float64(s.Peak), c.share*float64(s.Planned), "%s: and not a silly one", c.name)
	}
}
