package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/quant"
)

func TestDoctorFindsThisMachineFit(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "a", "b")
	r := ok(t, "doctor", "--runs", runs, "--json")
	var list []finding
	require.NoError(t, json.Unmarshal([]byte(r.out), &list))
	seen := map[string]bool{}
	for _, f := range list {
		seen[f.What] = true
		assert.True(t, f.OK || !f.Needed, "%s: %s", f.What, f.Detail)
	}
	for _, what := range []string{"processor", "kernels", "model", "memory", "runs", "python"} {
		assert.True(t, seen[what], what)
	}
	assert.NoDirExists(t, filepath.Dir(runs), "the doctor leaves nothing behind")
}

func TestDoctorTellsWhatIsWrong(t *testing.T) {
	blocked := file(t, "runs", "a file, not a folder")
	r := rltrain(t, "", "doctor", "--runs", filepath.Join(blocked, "below"))
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.out, "FAIL  runs")
	assert.Contains(t, r.out, "--output-dir")
	assert.Contains(t, r.err, "not fit to train: runs")

	t.Setenv("GRAFT_PYTHON", filepath.Join(t.TempDir(), "no-python"))
	r = rltrain(t, "", "doctor", "--runs", t.TempDir())
	assert.Equal(t, exitDone, r.code, "only py: rewards need Python")
	assert.Contains(t, r.out, "note  python")
	assert.Contains(t, r.out, "GRAFT_PYTHON")
}

// wrong is a backend with one bad bit.
type wrong struct{ kernels.Backend }

func TestDoctorSeesABadBit(t *testing.T) {
	_, err := compareRigs("bits", 1, func(be kernels.Backend) ([]float32, error) {
		out, err := multiply(be, quant.Q4_0, kernels.PrecisionInt8)
		if _, isWrong := be.(wrong); isWrong || be.Name() == "cpu generic x2" {
			out[3] += 1e-3
		}
		return out, err
	})
	if len(isas()) > 1 {
		require.ErrorContains(t, err, "must be equal")
	}
	_, err = compareRigs("values", 1e-4, func(be kernels.Backend) ([]float32, error) {
		out, err := multiply(be, quant.Q4_0, kernels.PrecisionInt8)
		for i := range out {
			if be.Name()[:3] == "cpu" {
				out[i] *= 1.001
			}
		}
		return out, err
	})
	require.ErrorContains(t, err, "the reference says")
}

func TestPlanNeedsNoWeightsAndRefusesWhatDoesNotFit(t *testing.T) {
	for _, command := range []string{"grpo", "dpo", "sft", "use"} {
		r := ok(t, "plan", command, "--model", "tiny", "--json")
		var p struct {
			Items []struct {
				Bytes   int64
				Process bool
			}
			Planned int64 `json:"planned_bytes"`
			Arena   int64 `json:"arena_planned_bytes"`
			Before  int64 `json:"before_bytes"`
			Fits    bool
		}
		require.NoError(t, json.Unmarshal([]byte(r.out), &p))
		sum, arena := int64(0), int64(0)
		for _, i := range p.Items {
			sum += i.Bytes
			if !i.Process {
				arena += i.Bytes
			}
		}
		assert.Equal(t, max(sum, p.Before), p.Planned, "this process, full of tests, may have had more")
		assert.Equal(t, arena, p.Arena)
		assert.Greater(t, p.Planned, p.Arena+20<<20, "the program is counted")
		assert.True(t, p.Fits)
	}
	assert.Contains(t, ok(t, "plan", "--model", "tiny").out, "planned")
	r := rltrain(t, "", "plan", "--model", "tiny", "--memory-limit", "8MiB")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.err, "--memory-limit is 8.00 MiB")
	assert.Contains(t, r.err, "--per-device-train-batch-size", "it says what to change")

	// Where everything does not fit, less is kept for the backward.
	all := ok(t, "plan", "--model", "tiny", "--no-gradient-checkpointing", "--json").out
	less := ok(t, "plan", "--model", "tiny", "--memory-limit", "210MiB", "--json").out
	assert.Contains(t, all, "keeping all layers")
	assert.Contains(t, less, "keeping each layer's input")
}

// A dry run prints the plan that the run has, and neither loads nor leaves anything.
func TestDryRun(t *testing.T) {
	pairs := file(t, "pairs.jsonl", strings.Repeat(`{"question":"10+11=","chosen":"21","rejected":"7"}`+"\n", 8))
	dir := filepath.Join(t.TempDir(), "run")
	for _, args := range [][]string{
		quick(t, dir),
		{"dpo", "--model", "tiny", "--dataset", pairs, "--max-steps", "1", "--eval-size", "2", "--output-dir", dir, "--json"},
		{"sft", "--model", "tiny", "--dataset", sums(t, 20), "--max-steps", "1", "--output-dir", dir, "--json"},
	} {
		dry := ok(t, append(args, "--dry-run")...)
		assert.NoDirExists(t, dir, "%s: nothing was written", args[0])
		plan := summary(t, dry)
		assert.Equal(t, true, plan["fits"])
		assert.Contains(t, dry.err, "nothing was loaded or written")
		assert.Equal(t, plan["arena_planned_bytes"], summary(t, ok(t, args...))["arena_planned_bytes"], args[0])
		assert.Contains(t, bad(t, append(args, "--dry-run")...), "holds a run already", "a new run could not begin there")
		require.NoError(t, os.RemoveAll(dir))
	}
	small := rltrain(t, "", quick(t, dir, "--dry-run", "--memory-limit", "8MiB")...)
	assert.Equal(t, exitFailed, small.code)
	assert.Equal(t, false, summary(t, small)["fits"])
	assert.Contains(t, small.err, "--memory-limit is 8.00 MiB")
	text := ok(t, "sft", "--model", "tiny", "--dataset", sums(t, 20), "--dry-run", "--output-dir", dir)
	assert.Contains(t, text.out, "activations")
	assert.Contains(t, bad(t, quick(t, dir, "--dry-run", "--reward", "exact:gold")...), "no column gold", "what a run would refuse")
	assert.NoDirExists(t, dir)
	ok(t, quick(t, dir)...)
	assert.Contains(t, bad(t, "grpo", "--model", "tiny", "--dataset", pairs, "--reward", "exact", "--resume", dir, "--dry-run"), "--dry-run has no effect with --resume")
}

func TestRewardTestHoldsTheContract(t *testing.T) {
	data := sums(t, 3)
	r := ok(t, "reward", "test", "--reward", "exact", "--dataset", data)
	assert.Contains(t, r.out, "mean 1")
	r = ok(t, "reward", "test", "--reward", "length:at_most=2,unit=words", "--completion", "one two", "--completion", "one two three", "--json")
	assert.Contains(t, r.out, `"scores":[1,0]`)
	assert.Contains(t, ok(t, "reward", "list").out, "exact[:COLUMN]")
	if runtime.GOOS == "windows" {
		return
	}
	script := file(t, "count.py", "def one(completions, **kw):\n    return [1.0]\n")
	r = rltrain(t, "", "reward", "test", "--reward", "py:"+script+":one", "--dataset", data)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.err, "1 scores for 3 samples")
}

func TestRunsOfAnEmptyFolder(t *testing.T) {
	r := rltrain(t, "", "runs", filepath.Join(t.TempDir(), "none"))
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.err, "there is no folder")
	t.Chdir(t.TempDir())
	assert.Contains(t, ok(t, "runs").err, "holds no runs", "nobody named that folder")
	r = ok(t, "runs", t.TempDir())
	assert.Empty(t, r.out)
	assert.Contains(t, r.err, "holds no runs")
	r = rltrain(t, "hi\n", "chat", "--runs", t.TempDir())
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.err, "--model")
}
