package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChatRemembersUntilNew(t *testing.T) {
	alone := rltrain(t, "11+12=\n", "chat", "--model", "tiny")
	require.Equal(t, exitDone, alone.code, alone.err)
	answer := strings.TrimSpace(alone.out)
	require.NotEmpty(t, answer)
	twice := rltrain(t, "20+30=\n/new\n11+12=\n/quit\nnever read\n", "chat", "--model", "tiny", "--threads", "1")
	lines := strings.Split(strings.TrimSpace(twice.out), "\n")
	require.Len(t, lines, 2)
	assert.Equal(t, answer, lines[1], "/new forgets what was said")
	drawn := func(seed string) string {
		return rltrain(t, "1+1=\n1+1=\n1+1=\n", "chat", "--model", "tiny", "--temperature", "3", "--seed", seed).out
	}
	assert.Equal(t, drawn("1"), drawn("1"))
	assert.NotEqual(t, drawn("1"), drawn("2"))

	full := rltrain(t, strings.Repeat("1+", 400)+"\n", "chat", "--model", "tiny")
	assert.Equal(t, exitFailed, full.code)
	assert.Contains(t, full.err, "/new")
	assert.Equal(t, exitUsage, rltrain(t, "", "chat", "--model", "tiny", "--top-k", "4").code)
}

func TestEvalCountsPassAtAndWritesAnswers(t *testing.T) {
	data := sums(t, 12)
	answers := filepath.Join(t.TempDir(), "answers.jsonl")
	r := ok(t, "eval", "--model", "tiny", "--dataset", data, "--reward", "exact", "--temperature", "1", "--num-generations", "4", "--pass-at", "1,4",
		"--max-completion-length", "6", "--completions", answers, "--json")
	s := summary(t, r)
	pass := s["pass_at"].(map[string]any)
	assert.InDelta(t, s["accuracy"], pass["1"], 1e-9, "pass@1 is the accuracy")
	assert.Greater(t, pass["4"], pass["1"])
	raw, err := os.ReadFile(answers)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	require.Len(t, lines, 48)
	right := 0.0
	for _, line := range lines {
		var a struct {
			Reward     float64
			Completion string
			IDs        []int32             `json:"completion_ids"`
			Scores     map[string]*float64 `json:"scores"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &a))
		require.NotEmpty(t, a.IDs)
		require.Equal(t, a.Reward, *a.Scores["exact"])
		right += a.Reward
	}
	assert.InDelta(t, s["reward"], right/48, 1e-9)

	// The numbers do not depend on how many answers are computed at once.
	again := summary(t, ok(t, "eval", "--model", "tiny", "--dataset", data, "--reward", "exact", "--temperature", "1", "--num-generations", "4",
		"--max-completion-length", "6", "--max-num-seqs", "3", "--threads", "1", "--json"))
	assert.Equal(t, s["reward"], again["reward"])
	assert.Contains(t, bad(t, "eval", "--model", "tiny", "--dataset", data, "--reward", "exact", "--pass-at", "3"), "--pass-at")
	text := ok(t, "eval", "--model", "tiny", "--dataset", data, "--reward", "exact", "--reward", "0.5*length:at_most=9", "--max-completion-length", "6").out
	assert.Contains(t, text, "accuracy")
	assert.Contains(t, text, "length:at_most=9")
}

func TestDemoResumes(t *testing.T) {
	runs := t.TempDir()
	want := summary(t, ok(t, "--runs", runs, "--max-steps", "3", "--output-dir", filepath.Join(runs, "a"), "--json"))
	dir := filepath.Join(runs, "b")
	cmd, _ := program(t, "--runs", runs, "--max-steps", "3", "--output-dir", dir)
	waitFor(t, filepath.Join(dir, "checkpoint-0"))
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()
	got := summary(t, ok(t, "resume", "--runs", runs, "--json"))
	assert.Equal(t, want["adapter_sha256"], got["adapter_sha256"])
	assert.Equal(t, want["eval_after"], got["eval_after"])
	none := rltrain(t, "", "resume", "--runs", runs)
	assert.Equal(t, exitFailed, none.code)
	assert.Contains(t, none.err, "is unfinished")
}

func TestChatKnowsItsCommands(t *testing.T) {
	r := rltrain(t, "/help\n/tmp/x 1+1=\n", "chat", "--model", "tiny")
	require.Equal(t, exitDone, r.code, r.err)
	assert.Contains(t, r.err, "/help is no command; there are /new and /quit")
	assert.Len(t, strings.Split(strings.TrimRight(r.out, "\n"), "\n"), 1, "a path is a message, a command is none")
}

func TestExportTakesItsFormatFromTheName(t *testing.T) {
	runs := t.TempDir()
	ok(t, "--runs", runs, "--max-steps", "1")
	to := filepath.Join(t.TempDir(), "x.gguf")
	ok(t, "export", "--runs", runs, "--output", to)
	raw, err := os.ReadFile(to)
	require.NoError(t, err)
	assert.Equal(t, "GGUF", string(raw[:4]))
	as := filepath.Join(t.TempDir(), "y.gguf")
	ok(t, "export", "--runs", runs, "--output", as, "--format", "peft")
	assert.FileExists(t, filepath.Join(as, "adapter_config.json"), "what was asked for is stronger")
}

func TestSmallMistakesAreToldInWords(t *testing.T) {
	assert.Contains(t, rltrain(t, "garbage\n", "score", "--model", "tiny").err, "line 1: the line is no JSON (at byte 1")
	assert.Contains(t, rltrain(t, "", "chat", "--model", "owner/name").err, "Graft downloads nothing")
	assert.NotContains(t, rltrain(t, "", "chat", "--model", "models/name.gguf").err, "downloads", "that is a path")
}

func TestRewardTestOfGivenCompletions(t *testing.T) {
	missing := rltrain(t, "", "reward", "test", "--reward", "math", "--completion", "3")
	assert.Equal(t, exitFailed, missing.code)
	assert.Contains(t, missing.err, "--column NAME=VALUE")
	assert.Equal(t, 1, strings.Count(missing.err, "reward math:"))
	assert.NotContains(t, missing.err, "math: reward")
	given := ok(t, "reward", "test", "--reward", "exact", "--completion", "42", "--column", "answer=42")
	assert.Contains(t, given.out, "mean 1")
	data := sums(t, 3)
	assert.NotContains(t, ok(t, "reward", "test", "--reward", "length:at_most=3", "--completion", "hi", "--dataset", data).out, "nothing is learned")
	assert.Contains(t, ok(t, "reward", "test", "--reward", "length:at_most=3", "--dataset", data).out, "nothing is learned")
	assert.Equal(t, exitUsage, rltrain(t, "", "reward", "test", "--reward", "exact", "--completion", "1", "--column", "answer").code)
}
