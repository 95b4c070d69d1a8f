package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/rl"
	"graft/tiny"
	"graft/weights/gguf"
)

// bad runs a command that must fail with a message, and returns the message.
func bad(t *testing.T, args ...string) string {
	t.Helper()
	r := rltrain(t, "", args...)
	assert.Contains(t, []int{exitFailed, exitUsage}, r.code, "%v\n%s", args, r.err)
	assert.NotContains(t, r.err, "goroutine", "a panic is no message")
	assert.Empty(t, r.out)
	return r.err
}

// binaryFile writes bytes into a folder of the test.
func binaryFile(t *testing.T, name string, raw []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, raw, 0o644))
	return path
}

// noRun checks that a failed run left nothing that looks whole.
func noRun(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"summary.json", "adapter", "model.gguf"} {
		assert.False(t, exists(filepath.Join(dir, name)), name)
	}
}

func TestBadModels(t *testing.T) {
	whole := tiny.Model()
	swap := func(old, new string) []byte {
		require.Len(t, new, len(old))
		require.True(t, bytes.Contains(whole, []byte(old)))
		return bytes.ReplaceAll(whole, []byte(old), []byte(new))
	}
	empty := t.TempDir()
	for name, c := range map[string]struct{ path, want string }{
		"missing":      {filepath.Join(empty, "none.gguf"), "none.gguf does not exist"},
		"empty folder": {empty, "config.json"},
		"not a model":  {file(t, "m.gguf", "hello"), "m.gguf"},
		"cut header":   {binaryFile(t, "m.gguf", whole[:1000]), "m.gguf"},
		"cut weights":  {binaryFile(t, "m.gguf", whole[:len(whole)-5000]), "m.gguf"},
		"architecture": {binaryFile(t, "m.gguf", swap("llama", "lhama")), "lhama"},
		"tensor type":  {binaryFile(t, "m.gguf", badTensorType(t, whole)), "m.gguf"},
		"vocabulary":   {fewerRows(t), "embedding"},
		"hub":          {"hf:owner/name", "does not download"},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		for _, args := range [][]string{
			{"grpo", "--model", c.path, "--dataset", sums(t, 9), "--reward", "exact", "--output-dir", dir},
			{"score", "--model", c.path}, {"chat", "--model", c.path}, {"plan", "--model", c.path},
		} {
			assert.Contains(t, bad(t, args...), c.want, "%s: %v", name, args)
		}
		assert.NoDirExists(t, dir, name)
	}
}

// badTensorType gives the first tensor a type that nobody has defined.
func badTensorType(t *testing.T, whole []byte) []byte {
	t.Helper()
	raw := bytes.Clone(whole)
	name := []byte("blk.0.attn_q.weight")
	at := bytes.Index(raw, name)
	require.Positive(t, at)
	at += len(name)
	dims := int(binary.LittleEndian.Uint32(raw[at:]))
	binary.LittleEndian.PutUint32(raw[at+4+8*dims:], 999)
	return raw
}

// fewerRows gives the embedding fewer rows than the tokenizer has tokens.
func fewerRows(t *testing.T) string {
	t.Helper()
	f, err := tiny.Open()
	require.NoError(t, err)
	var keys []gguf.KV
	for _, k := range f.Keys {
		keys = append(keys, gguf.KV{Key: k, Value: f.KV[k]})
	}
	var tensors []gguf.TensorData
	for i := range f.Tensors {
		src := &f.Tensors[i]
		dims := slices.Clone(src.Dims)
		if src.Name == "token_embd.weight" {
			dims[1] -= 16
		}
		n := src.Format.Bytes(int(dims[0])) * int(src.Elements()/int64(src.Dims[0]))
		if len(dims) > 1 {
			n = src.Format.Bytes(int(dims[0])) * int(dims[1])
		}
		tensors = append(tensors, gguf.TensorData{Name: src.Name, Dims: dims, Format: src.Format, WriteTo: func(w io.Writer) error {
			raw := make([]byte, n)
			if err := f.ReadAt(src, raw, 0); err != nil {
				return err
			}
			_, err := w.Write(raw)
			return err
		}})
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, gguf.WriteFile(path, keys, tensors))
	return path
}

func TestBadAdapters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	ok(t, quick(t, dir, "--max-steps", "1", "--eval-size", "0")...)
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.CopyFS(broken, os.DirFS(filepath.Join(dir, "adapter"))))
	weights := filepath.Join(broken, "adapter_model.safetensors")
	raw, err := os.ReadFile(weights)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(weights, bytes.ReplaceAll(raw, []byte("layers.4."), []byte("layers.7.")), 0o644))
	cut := filepath.Join(t.TempDir(), "cut")
	require.NoError(t, os.CopyFS(cut, os.DirFS(filepath.Join(dir, "adapter"))))
	require.NoError(t, os.WriteFile(filepath.Join(cut, "adapter_model.safetensors"), raw[:len(raw)/2], 0o644))
	for path, want := range map[string]string{
		filepath.Join(t.TempDir(), "none"): "none",
		t.TempDir():                        "no adapter_config.json",
		broken:                             "was made for another model",
		cut:                                "adapter_model.safetensors",
	} {
		assert.Contains(t, bad(t, "score", "--model", "tiny", "--adapter", path), want)
		assert.Contains(t, bad(t, quick(t, filepath.Join(t.TempDir(), "run"), "--adapter", path)...), want)
		to := filepath.Join(t.TempDir(), "export")
		assert.Contains(t, bad(t, "export", "--model", "tiny", "--adapter", path, "--output", to), want)
		assert.NoFileExists(t, to)
	}
	taken := t.TempDir()
	assert.Contains(t, bad(t, "export", dir, "--output", taken), "exists already")
}

func TestBadDatasets(t *testing.T) {
	long := `{"question":"` + strings.Repeat("1+", 400) + `","answer":"1"}`
	for _, c := range []struct{ name, text, want string }{
		{"empty.jsonl", "", "no rows"},
		{"blank.jsonl", "\n\n", "no rows"},
		{"broken.jsonl", `{"question":"1"}` + "\n{\n", "line 2"},
		{"column.jsonl", `{"qestion":"1+1=","answer":"2"}`, "no column"},
		{"type.jsonl", `{"prompt":7.5,"answer":"2"}`, "column \"prompt\""},
		{"roles.jsonl", `{"prompt":[{"rolle":"user","content":"x"}]}`, "role"},
		{"twice.jsonl", `{"question":"1+1=","answer":"2","answer":"3"}`, "line 1: column \"answer\" is given twice"},
		{"half.jsonl", `{"question":"1+1=","answer":"2"}` + "\n" + `{"question":"\ud800","answer":"3"}`, "line 2: column \"question\": \\ud800 is half of a character"},
		{"long.jsonl", long, "tokens, the limit is"},
		{"rows.xyz", "x", "rows.xyz"},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		args := []string{"--model", "tiny", "--dataset", file(t, c.name, c.text), "--reward", "exact", "--max-completion-length", "6"}
		assert.Contains(t, bad(t, append([]string{"grpo", "--eval-size", "0", "--output-dir", dir}, args...)...), c.want, c.name)
		assert.Contains(t, bad(t, append([]string{"eval"}, args...)...), c.want, c.name)
		assert.NoDirExists(t, dir, "%s: nothing was begun", c.name)
	}
	// A column that a reward reads, absent from one row among those to train on, or to measure on: nothing is begun, nothing is left to resume.
	whole := file(t, "whole.jsonl", `{"question":"1+1=","answer":"2"}`+"\n"+`{"question":"1+2=","answer":"3"}`)
	data := file(t, "noanswer.jsonl", `{"question":"1+1=","answer":"2"}`+"\n"+`{"question":"1+2="}`)
	blank := file(t, "blank.jsonl", `{"question":"1+1=","answer":" "}`+"\n"+`{"question":"1+2=","answer":"3"}`)
	for _, c := range []struct {
		reward, want string
		rows         []string
	}{
		{"exact", "noanswer.jsonl:2: reward exact: no column", []string{"--dataset", data, "--eval-size", "0"}},
		{"0.5*math", "noanswer.jsonl:2: reward math: no column", []string{"--dataset", data, "--eval-size", "1"}},
		{"exact", "noanswer.jsonl:2: reward exact: no column", []string{"--dataset", whole, "--eval-dataset", data}},
		{"math", "blank.jsonl:1: reward math: the gold answer is empty", []string{"--dataset", blank, "--eval-size", "0"}},
		{"cosine:6,column=gold", "whole.jsonl:1: reward cosine:6,column=gold: no column gold", []string{"--dataset", whole, "--eval-size", "0"}},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		args := append([]string{"--model", "tiny", "--reward", "length:4", "--reward", c.reward, "--max-completion-length", "6"}, c.rows...)
		assert.Contains(t, bad(t, append([]string{"grpo", "--output-dir", dir}, args...)...), c.want)
		assert.NoDirExists(t, dir)
	}
	assert.Contains(t, bad(t, "eval", "--model", "tiny", "--dataset", data, "--reward", "accuracy", "--max-completion-length", "6"), "noanswer.jsonl:2: reward accuracy: no column")
	// Skipping is said, not silent.
	skip := file(t, "some.jsonl", long+"\n"+strings.Repeat(`{"question":"1+1=","answer":"2"}`+"\n", 3))
	r := ok(t, "grpo", "--model", "tiny", "--dataset", skip, "--reward", "exact", "--long-rows", "skip", "--max-steps", "1", "--eval-size", "0",
		"--max-completion-length", "6", "--num-generations", "2", "--per-device-train-batch-size", "2", "--output-dir", filepath.Join(t.TempDir(), "run"))
	assert.Contains(t, r.err, "1 of 4 rows are skipped")
}

func TestBadRewards(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Python is found differently there")
	}
	script := file(t, "r.py", `
import os, sys, time
def crash(completions, **kw): os._exit(3)
def garbage(completions, **kw): return "no numbers"
def count(completions, **kw): return [1.0]
def nan(completions, **kw): return [float("nan")] * len(completions)
def forever(completions, **kw):
    while True: time.sleep(1)
def raises(completions, **kw): raise ValueError("what a row")
`)
	for function, want := range map[string]string{
		"crash": "crash", "garbage": "garbage", "count": "1 scores for", "nan": "NaN", "forever": "not scored within", "raises": "what a row", "absent": "absent",
	} {
		dir := filepath.Join(t.TempDir(), "run")
		msg := bad(t, quick(t, dir, "--eval-size", "0", "--reward", "py:"+script+":"+function, "--reward-timeout", "400ms")...)
		assert.Contains(t, strings.ToLower(msg), strings.ToLower(want), function)
		assert.Contains(t, msg, "py:"+script+":"+function, "the message names the reward")
		noRun(t, dir)
		if function == "absent" {
			assert.NoDirExists(t, dir, "known before anything is begun")
		}
	}
	assert.Contains(t, bad(t, quick(t, filepath.Join(t.TempDir(), "run"), "--reward", "py:nowhere.py:f")...), "nowhere.py")
	assert.Contains(t, bad(t, quick(t, filepath.Join(t.TempDir(), "run"), "--reward", "exec:no-such-program-here")...), "no-such-program-here")
}

// A reward that applies to nothing is no error, as in TRL, but it is said.
func TestRewardThatNeverAppliesIsTold(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Python is found differently there")
	}
	script := file(t, "none.py", "def f(completions, **kw): return [None] * len(completions)\n")
	r := ok(t, "grpo", "--model", "tiny", "--dataset", sums(t, 8), "--reward", "py:"+script+":f", "--max-steps", "1", "--num-generations", "2",
		"--per-device-train-batch-size", "4", "--max-completion-length", "6", "--eval-size", "0", "--output-dir", filepath.Join(t.TempDir(), "run"))
	assert.Contains(t, r.err, "no reward applied to any completion")
}

func TestRunThatAFixedRewardLetsGoOn(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Python is found differently there")
	}
	const good = "def f(completions, **kw): return [float(len(str(c))) for c in completions]\n"
	script := file(t, "r.py", "calls = 0\ndef f(completions, **kw):\n    global calls\n    calls += 1\n    if calls > 2: raise ValueError('third time')\n    return [float(len(str(c))) for c in completions]\n")
	dir := filepath.Join(t.TempDir(), "run")
	data := sums(t, 30)
	args := func(dir string) []string {
		return []string{"grpo", "--model", "tiny", "--dataset", data, "--reward", "py:" + script + ":f", "--eval-size", "0", "--max-steps", "4", "--save-steps", "1",
			"--num-generations", "4", "--per-device-train-batch-size", "8", "--max-completion-length", "6", "--output-dir", dir, "--json"}
	}
	msg := bad(t, args(dir)...)
	assert.Contains(t, msg, "step 3")
	assert.Contains(t, msg, "rltrain resume "+dir)
	require.NoError(t, os.WriteFile(script, []byte(good), 0o644))
	got := summary(t, ok(t, "resume", dir, "--json"))
	want := summary(t, ok(t, args(filepath.Join(t.TempDir(), "whole"))...))
	assert.Equal(t, want["adapter_sha256"], got["adapter_sha256"], "the failed step left no trace")
}

// Training that diverges says what to change: resuming would only repeat it.
func TestDivergedTrainingNamesARemedy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	for _, args := range [][]string{
		quick(t, dir, "--eval-size", "0", "--learning-rate", "1e30", "--max-grad-norm", "0"),
		{"sft", "--model", "tiny", "--dataset", sums(t, 20), "--eval-size", "0", "--max-steps", "4", "--learning-rate", "1e30", "--max-grad-norm", "0", "--output-dir", dir + "s"},
	} {
		msg := bad(t, args...)
		assert.Contains(t, msg, "step 2: ")
		assert.Contains(t, msg, "begin again with a lower --learning-rate (now 1e+30) or --max-grad-norm (now off; 1 is usual)")
		assert.Contains(t, msg, "--adapter "+dir)
		assert.NotContains(t, msg, "rltrain resume")
	}
}

func TestFullDiskNamesARemedy(t *testing.T) {
	full := fmt.Errorf("rl: checkpoint: %w", &fs.PathError{Op: "write", Path: filepath.Join("runs", "x", "optimizer.bin"), Err: syscall.ENOSPC})
	assert.Equal(t, "\nthe disk is full: free space where "+filepath.Join("runs", "x")+" lies, or name another place", spaceText(full, ""))
	assert.Equal(t, "\nthe disk is full: free space where it was to be written, or name another place", spaceText(syscall.ENOSPC, ""))
	assert.Empty(t, spaceText(fs.ErrPermission, "more"))

	dir := filepath.Join(t.TempDir(), "run")
	log, err := rl.OpenRunLog(rl.RunLogOptions{Dir: dir})
	require.NoError(t, err)
	defer log.Close()
	under := &training{log: log, sizes: sizes{lengths: []int{1 << 20}}}
	text := spaceText(full, under.room())
	assert.Contains(t, text, "each checkpoint of "+dir+" takes 12.0 MiB more. Then go on with: ", "a parameter and two moments of four bytes")
	assert.Contains(t, text, " resume "+dir)

	device, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		return // only Linux has a disk that is always full
	}
	defer device.Close()
	var said strings.Builder
	assert.Equal(t, exitFailed, run([]string{"tokenize", "--model", "tiny"}, strings.NewReader(`{"text":"a"}`), device, &said))
	assert.Contains(t, said.String(), "the disk is full: free space where /dev lies")
}

func TestBadFolders(t *testing.T) {
	blocked := file(t, "blocked", "a file")
	msg := bad(t, quick(t, filepath.Join(blocked, "run"))...)
	assert.Contains(t, msg, "--output-dir")
	dir := filepath.Join(t.TempDir(), "run")
	ok(t, quick(t, dir, "--max-steps", "1", "--eval-size", "0")...)
	assert.Contains(t, bad(t, quick(t, dir)...), "holds a run already")
	require.NoError(t, os.Remove(filepath.Join(dir, "summary.json")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "checkpoint-0")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "checkpoint-1")))
	assert.Contains(t, bad(t, "resume", dir), "no checkpoint")
	assert.Contains(t, bad(t, "export", dir, "--output", filepath.Join(blocked, "x")), "blocked")
}

func TestTooLittleMemoryIsRefusedBeforeLoading(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	msg := bad(t, quick(t, dir, "--memory-limit", "5MiB")...)
	assert.Contains(t, msg, "--memory-limit is 5.00 MiB")
	assert.Contains(t, msg, "activations")
	assert.NoDirExists(t, dir)
	assert.Contains(t, bad(t, "score", "--model", "tiny", "--memory-limit", "1MiB"), "--memory-limit is 1.00 MiB")
}
