package main

import (
	"encoding/json"
	"fmt"
	"graft/tiny"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func summaryFile(t *testing.T, dir string) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	var s map[string]any
	require.NoError(t, json.Unmarshal(raw, &s))
	return s
}

func TestRunLeavesWhatItPromises(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r := ok(t, quick(t, dir)...)
	s := summary(t, r)
	for _, name := range []string{"steps", "tokens_sampled", "tokens_trained", "reward_first", "reward_last", "eval_before", "eval_after", "mismatch_tokens",
		"mismatch_max", "seconds", "sample_seconds", "train_seconds", "reward_seconds", "planned_bytes", "peak_bytes", "arena_planned_bytes", "arena_peak_bytes", "bytes_synced", "adapter_sha256"} {
		assert.Contains(t, s, name)
	}
	assert.EqualValues(t, 4, s["steps"])
	assert.EqualValues(t, 0, s["mismatch_tokens"])
	assert.EqualValues(t, 0, s["bytes_synced"])
	assert.Positive(t, s["tokens_trained"])
	assert.Equal(t, s["arena_planned_bytes"], s["arena_peak_bytes"], "the plan is exact")
	assert.Greater(t, s["arena_planned_bytes"], float64(len(tiny.Model())), "weights and more")
	assert.Greater(t, s["planned_bytes"], s["arena_planned_bytes"], "the process is more than its arena")
	assert.Equal(t, s, summaryFile(t, dir))
	assert.Contains(t, r.err, "mismatch 0/")
	assert.Contains(t, r.err, "95 % interval")
	metrics, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	assert.Contains(t, string(metrics), `"rewards/exact/mean"`, "figures bear the rewards' names")
	for _, name := range []string{"config.yaml", "metrics.jsonl", "events.log", "completions.parquet", "adapter/adapter_config.json", "adapter/adapter_model.safetensors", "checkpoint-4"} {
		assert.True(t, exists(filepath.Join(dir, name)))
	}

	// Rows that were held out can be measured on again, and come to the same.
	raw, err := os.ReadFile(filepath.Join(dir, "eval_rows.json"))
	require.NoError(t, err)
	var origin struct{ Rows []struct{ Row, Line int } }
	require.NoError(t, json.Unmarshal(raw, &origin))
	require.Len(t, origin.Rows, 6)
	assert.Equal(t, origin.Rows[0].Row+1, origin.Rows[0].Line)
	rows := filepath.Join(dir, "eval.jsonl")
	held := summary(t, ok(t, "eval", "--model", "tiny", "--adapter", dir, "--dataset", rows, "--reward", "exact", "--max-completion-length", "6", "--compare-base", "--json"))
	assert.EqualValues(t, 6, held["prompts"])
	assert.Equal(t, s["eval_after"], held["reward"])
	assert.Equal(t, s["eval_before"], held["eval_before"])
	assert.Contains(t, r.err, "--dataset "+rows)

	// What it left can be used, and by default it is.
	runs := filepath.Dir(dir)
	chat := rltrain(t, "11+12=\n", "chat", "--runs", runs)
	require.Equal(t, exitDone, chat.code, chat.err)
	assert.NotEmpty(t, strings.TrimSpace(chat.out))
	list := ok(t, "runs", runs)
	assert.Contains(t, list.out, "done")
	eval := summary(t, ok(t, "eval", "--runs", runs, "--dataset", sums(t, 20), "--reward", "exact", "--max-completion-length", "6", "--compare-base", "--json"))
	assert.Contains(t, eval, "interval")
	assert.Equal(t, s["adapter_sha256"], eval["adapter_sha256"])
	assert.EqualValues(t, 4, eval["adapter_step"])
	assert.Equal(t, filepath.Join(dir, "adapter"), eval["adapter"])
	assert.Equal(t, "tiny", eval["model"])
	assert.Contains(t, []string{"better", "worse", "not told apart"}, eval["verdict"])
	text := strings.Split(strings.TrimSpace(ok(t, "eval", "--runs", runs, "--dataset", sums(t, 20), "--reward", "exact", "--max-completion-length", "6", "--compare-base").out), "\n")
	assert.Equal(t, "model     tiny", text[0])
	assert.Equal(t, fmt.Sprintf("adapter   %s (step 4, sha256 %.12s)", filepath.Join(dir, "adapter"), s["adapter_sha256"]), text[1])
	interval, change := eval["reward_interval"].([]any), eval["interval"].([]any)
	assert.Equal(t, fmt.Sprintf("verdict   reward %.4f, 95 %% interval %.4f to %.4f; base %.4f, change %+.4f, 95 %% interval %+.4f to %+.4f: %s", eval["reward"], interval[0], interval[1],
		eval["eval_before"], eval["difference"], change[0], change[1], eval["verdict"]), text[len(text)-1])
	assert.LessOrEqual(t, interval[0], eval["reward"])
	assert.GreaterOrEqual(t, interval[1], eval["reward"])
	old := ok(t, "eval", "--model", "tiny", "--adapter", filepath.Join(dir, "checkpoint-3"), "--dataset", sums(t, 2), "--reward", "exact", "--max-completion-length", "6").out
	assert.Contains(t, old, "checkpoint-3/adapter (step 3, sha256 ")
	bare := ok(t, "eval", "--model", "tiny", "--dataset", sums(t, 20), "--reward", "exact", "--max-completion-length", "6").out
	assert.Contains(t, bare, "\nadapter   none: the model as it is\n")
	assert.Regexp(t, `\nverdict   reward [0-9.]+, 95 % interval [0-9.]+ to [0-9.]+\n$`, bare)
	for name := range s {
		assert.Contains(t, eval, name, "an evaluation's summary has a run's fields")
	}
	assert.EqualValues(t, 20, eval["prompts"])
	for format, file := range map[string]string{"peft": "adapter_config.json", "gguf": ""} {
		to := filepath.Join(t.TempDir(), "export")
		assert.Contains(t, ok(t, "export", dir, "--output", to, "--format", format).err, "equal bit for bit")
		assert.True(t, exists(filepath.Join(to, file)))
		score := rltrain(t, `{"text":"1+2="}`, "score", "--model", "tiny", "--adapter", to)
		require.Equal(t, exitDone, score.code, score.err)
		assert.Equal(t, rltrain(t, `{"text":"1+2="}`, "score", "--runs", runs).out, score.out, "the export computes the same")
		assert.NotEqual(t, rltrain(t, `{"text":"1+2="}`, "score", "--model", "tiny").out, score.out)
	}
}

func TestResultDoesNotDependOnThreadsMemoryOrBatchWidth(t *testing.T) {
	hash := func(more ...string) any {
		dir := filepath.Join(t.TempDir(), "run")
		return summary(t, ok(t, quick(t, dir, append([]string{"--eval-size", "0"}, more...)...)...))["adapter_sha256"]
	}
	want := hash("--threads", "1")
	assert.Equal(t, want, hash("--threads", "3"))
	assert.Equal(t, want, hash("--max-num-seqs", "2"))
	assert.Equal(t, want, hash("--gradient-checkpointing"))
	assert.NotEqual(t, want, hash("--seed", "7"))
}

// waitFor polls until a path exists.
func waitFor(t *testing.T, path string) {
	t.Helper()
	for range 3000 {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s did not appear", path)
}

func TestKilledAndInterruptedRunsEndAsUnkilledOnes(t *testing.T) {
	args := func(dir string) []string { return quick(t, dir, "--max-steps", "12") }
	whole := filepath.Join(t.TempDir(), "whole")
	want := summary(t, ok(t, args(whole)...))

	killed := filepath.Join(t.TempDir(), "killed")
	cmd, _ := program(t, args(killed)...)
	waitFor(t, filepath.Join(killed, "checkpoint-2"))
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()
	require.NoFileExists(t, filepath.Join(killed, "summary.json"), "a killed run does not look whole")
	assert.Contains(t, ok(t, "runs", filepath.Dir(killed)).out, "resume")
	// Another value of an option that decides the result is refused.
	other := rltrain(t, "", "resume", killed, "--learning-rate", "5e-3")
	assert.Equal(t, exitFailed, other.code)
	assert.Contains(t, other.err, "learning_rate: 0.001 in the checkpoint, 0.005 now")
	got := summary(t, ok(t, "resume", killed, "--json", "--threads", "1"))
	for _, name := range []string{"adapter_sha256", "steps", "tokens_sampled", "tokens_trained", "reward_first", "reward_last", "eval_before", "eval_after"} {
		assert.Equal(t, want[name], got[name], name)
	}
	// A script that resumes whatever it killed finds a run that is done, and its summary.
	again := ok(t, "resume", killed, "--json")
	assert.Contains(t, again.err, "is done")
	assert.Equal(t, got, summary(t, again))

	// Killed before its first checkpoint: nothing but the configuration and empty logs is there.
	early := filepath.Join(t.TempDir(), "early")
	require.NoError(t, os.MkdirAll(early, 0o777))
	config, err := os.ReadFile(filepath.Join(whole, "config.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(early, "config.yaml"), config, 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(early, "metrics.jsonl"), nil, 0o666))
	begun := ok(t, "resume", early, "--json")
	assert.Contains(t, begun.err, "begins again")
	assert.Equal(t, want["adapter_sha256"], summary(t, begun)["adapter_sha256"])

	if runtime.GOOS == "windows" {
		return // no signal can be sent to a process there; Ctrl-C reaches it by the console alone
	}
	stopped := filepath.Join(t.TempDir(), "stopped")
	cmd, errs := program(t, args(stopped)...)
	waitFor(t, filepath.Join(stopped, "checkpoint-1"))
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	err = cmd.Wait()
	require.Error(t, err)
	assert.Equal(t, exitStopped, cmd.ProcessState.ExitCode(), errs.String())
	assert.Contains(t, errs.String(), "rltrain resume "+stopped)
	assert.Equal(t, want["adapter_sha256"], summary(t, ok(t, "grpo", "--resume", stopped, "--json"))["adapter_sha256"])
}

func TestOneSignalEndsWhatComesBeforeTheFirstStep(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Python is found differently there")
	}
	waits := filepath.Join(t.TempDir(), "waits")
	script := file(t, "r.py", fmt.Sprintf("import time\nopen(%q, 'w').close()\ntime.sleep(1e5)\ndef f(completions, **kw): return [0.0] * len(completions)\n", waits))
	dir := filepath.Join(t.TempDir(), "run")
	cmd, errs := program(t, quick(t, dir, "--reward", "py:"+script+":f")...)
	waitFor(t, waits)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	assert.Equal(t, exitFailed, cmd.ProcessState.ExitCode(), errs.String())
	assert.Contains(t, errs.String(), "stopped by the signal")
	assert.NoDirExists(t, dir, "nothing was begun")

	// While it measures, the folder is there: resuming begins again.
	waits = filepath.Join(t.TempDir(), "waits")
	script = file(t, "r.py", fmt.Sprintf("import time\ndef f(completions, **kw):\n    open(%q, 'w').close()\n    time.sleep(1e5)\n", waits))
	cmd, errs = program(t, quick(t, dir, "--reward", "py:"+script+":f", "--reward-timeout", "0")...)
	waitFor(t, waits)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	assert.Equal(t, exitStopped, cmd.ProcessState.ExitCode(), errs.String())
	require.NoError(t, os.WriteFile(script, []byte("def f(completions, **kw): return [float(len(str(c))) for c in completions]\n"), 0o644))
	assert.Contains(t, ok(t, "resume", dir).err, "begins again")
}

func TestDamagedCheckpointIsPassedOver(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	want := summary(t, ok(t, quick(t, dir)...))
	require.NoError(t, os.Remove(filepath.Join(dir, "summary.json")))
	file := filepath.Join(dir, "checkpoint-4", "optimizer.bin")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	raw[len(raw)/2] ^= 1
	require.NoError(t, os.WriteFile(file, raw, 0o644))
	r := ok(t, "resume", dir, "--json")
	assert.Contains(t, r.err, "checkpoint-4")
	assert.Contains(t, r.err, "resumed at step 3")
	assert.Equal(t, want["adapter_sha256"], summary(t, r)["adapter_sha256"])
}

func TestSeveralStepsOnOneBatchResumeToo(t *testing.T) {
	more := []string{"--num-iterations", "2", "--steps-per-generation", "2", "--beta", "0.02", "--max-steps", "8", "--save-steps", "3"}
	want := summary(t, ok(t, quick(t, filepath.Join(t.TempDir(), "whole"), more...)...))
	assert.EqualValues(t, 0, want["mismatch_tokens"])
	dir := filepath.Join(t.TempDir(), "run")
	ok(t, quick(t, dir, more...)...)
	require.NoError(t, os.Remove(filepath.Join(dir, "summary.json")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "checkpoint-8")))
	r := ok(t, "resume", dir, "--json")
	assert.Contains(t, r.err, "resumed at step 4", "a checkpoint waits until its batch is used up")
	assert.Equal(t, want["adapter_sha256"], summary(t, r)["adapter_sha256"])
}

// pairs writes a dataset of n preferences over sums and returns its path.
func pairs(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"question":"%d+%d=","chosen":"%d","rejected":"%d"}`+"\n", 10+i, 20+i, 30+2*i, 29+2*i)
	}
	return file(t, "pairs.jsonl", b.String())
}

// A policy that goes on from an adapter is held to that adapter, as in TRL: at the first step both
// are the same, so the loss is ln 2 and no pair has a margin.
func TestPreferencesGoOnFromAnAdapter(t *testing.T) {
	root := t.TempDir()
	first, data := filepath.Join(root, "first"), pairs(t, 24)
	args := func(dir string, more ...string) []string {
		return append([]string{"dpo", "--model", "tiny", "--dataset", data, "--max-steps", "6", "--per-device-train-batch-size", "4", "--learning-rate", "1e-3",
			"--eval-size", "0", "--save-steps", "1", "--save-total-limit", "0", "--output-dir", dir, "--json"}, more...)
	}
	ok(t, args(first)...)
	assert.NoFileExists(t, filepath.Join(first, "reference", "adapter_config.json"), "a new adapter is held to the model")
	moved := filepath.Join(root, "moved")
	require.NoError(t, os.CopyFS(moved, os.DirFS(filepath.Join(first, "adapter"))))

	second := filepath.Join(root, "second")
	r := ok(t, args(second, "--adapter", moved)...)
	assert.Contains(t, r.err, "the adapter as it was")
	want := summary(t, r)
	raw, err := os.ReadFile(filepath.Join(second, "metrics.jsonl"))
	require.NoError(t, err)
	var steps []map[string]float64
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		var s map[string]float64
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		steps = append(steps, s)
	}
	assert.InDelta(t, 0.6931472, steps[0]["loss"], 1e-6)
	assert.Zero(t, steps[0]["rewards/margins"])
	assert.NotZero(t, steps[1]["rewards/margins"])

	// A run that is resumed is held to the same: neither to its checkpoint nor to what now lies where
	// the adapter was.
	require.NoError(t, os.Remove(filepath.Join(second, "summary.json")))
	for i := 4; i <= 6; i++ {
		require.NoError(t, os.RemoveAll(filepath.Join(second, fmt.Sprintf("checkpoint-%d", i))))
	}
	require.NoError(t, os.CopyFS(filepath.Join(root, "other"), os.DirFS(filepath.Join(first, "checkpoint-1", "adapter"))))
	require.NoError(t, os.RemoveAll(moved))
	require.NoError(t, os.Rename(filepath.Join(root, "other"), moved))
	again := ok(t, "resume", second, "--json")
	assert.Contains(t, again.err, "resumed at step 3")
	assert.Equal(t, want["adapter_sha256"], summary(t, again)["adapter_sha256"])
}

func TestTuningOnRows(t *testing.T) {
	var pairs strings.Builder
	for i := range 30 {
		pairs.WriteString(`{"prompt":[{"role":"user","content":"` + string(rune('1'+i%8)) + `+1="}],"chosen":[{"role":"assistant","content":"` +
			string(rune('2'+i%8)) + `"}],"rejected":[{"role":"assistant","content":"0"}]}` + "\n")
	}
	for _, c := range []struct {
		command, data string
		more          []string
	}{
		{"sft", sums(t, 40), nil},
		{"sft", sums(t, 40), []string{"--full"}},
		{"dpo", file(t, "pairs.jsonl", pairs.String()), nil},
		{"dpo", file(t, "pairs.jsonl", pairs.String()), []string{"--full", "--gradient-accumulation-steps", "2"}},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		args := append([]string{c.command, "--model", "tiny", "--dataset", c.data, "--max-steps", "5", "--save-steps", "2", "--per-device-train-batch-size", "4",
			"--learning-rate", "1e-4", "--eval-size", "8", "--output-dir", dir, "--json"}, c.more...)
		want := summary(t, ok(t, args...))
		assert.Equal(t, want["arena_planned_bytes"], want["arena_peak_bytes"], "%s %v: the plan is exact", c.command, c.more)
		require.NoError(t, os.Remove(filepath.Join(dir, "summary.json")))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "checkpoint-5")))
		got := summary(t, ok(t, "resume", dir, "--json"))
		assert.Equal(t, want["adapter_sha256"], got["adapter_sha256"], "%s %v resumes exactly", c.command, c.more)
		if c.command == "sft" {
			assert.Less(t, want["eval_after"], want["eval_before"], "the loss on held-out rows falls")
		}
		if c.more != nil {
			r := rltrain(t, "1+1=\n", "chat", "--model", filepath.Join(dir, "model.gguf"))
			assert.Equal(t, exitDone, r.code, r.err)
		}
	}
}

func TestDemoRunsShort(t *testing.T) {
	runs := t.TempDir()
	s := summary(t, ok(t, "--runs", runs, "--max-steps", "2", "--json"))
	assert.EqualValues(t, 2, s["steps"])
	assert.EqualValues(t, 0, s["mismatch_tokens"])
	assert.Equal(t, s["arena_planned_bytes"], s["arena_peak_bytes"])
	// What it says to type next works, on its model and adapter.
	chat := rltrain(t, "37+58=\n", "chat", "--runs", runs)
	require.Equal(t, exitDone, chat.code, chat.err)
	require.NotEmpty(t, strings.TrimSpace(chat.out))
	require.Contains(t, ok(t, "runs", runs).out, "tiny")
	dir := filepath.Join(t.TempDir(), "adapter")
	ok(t, "export", "--runs", runs, "--output", dir)
	require.FileExists(t, filepath.Join(dir, "adapter_config.json"))
}
