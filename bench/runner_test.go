package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/kernels"
)

// fakePython is a peers folder whose Python is a shell script.
func fakePython(t *testing.T, script string) *peers {
	if _, err := exec.LookPath("sh"); err != nil || runtime.GOOS == "windows" {
		t.Skip("no shell script can stand for Python here")
	}
	p := &peers{folder: t.TempDir(), threads: 1}
	require.NoError(t, os.MkdirAll(filepath.Dir(p.python()), 0o755))
	require.NoError(t, os.WriteFile(p.python(), []byte("#!/bin/sh\n"+script), 0o755))
	return p
}

// answers does a step for every line; bfloat16 is twice as fast as float32.
const answers = `
seconds=2
case "$3" in *bfloat16*) seconds=1;; esac
while read line; do
  echo "$line" >&2
  echo "talk of a library"
  echo "{\"seconds\": $seconds, \"tokens\": 64, \"cpu_seconds\": 1.5}"
done
`

func TestPythonRunsInItsBetterPrecision(t *testing.T) {
	p := fakePython(t, answers)
	r := &row{Kind: kindLoRA, Rows: 16, Groups: 16, Prompt: 64, New: 128, Against: peftName}
	got, err := p.pythonRunner(t.Context(), r, "model.gguf", io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "PEFT bfloat16", got.name())
	assert.Equal(t, map[string]float64{"float32": 32, "bfloat16": 64}, got.tried())
	s, err := got.run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, sample{timing: timing{Seconds: 1, Tokens: 64}, used: 1500 * time.Millisecond}, s)
	peak, err := got.close()
	require.NoError(t, err)
	assert.Positive(t, peak)
	lines := strings.Split(strings.TrimSpace(got.(*script).talk.String()), "\n")
	require.Len(t, lines, 4, "two small steps, a warm one and a timed one")
	assert.Contains(t, lines[1], `"groups":4`)
	assert.Contains(t, lines[1], `"rows":4`)
	assert.Contains(t, lines[3], `"rows":16`)
}

// A precision that the processor only emulates must not cost the whole evening.
func TestPythonGivesUpOnSlowPrecision(t *testing.T) {
	p := fakePython(t, answers)
	s, rate, err := p.try(t.Context(), &row{Rows: 4, Groups: 4, Against: peftName}, "model.gguf", "float32", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, 32.0, rate)
	s.close()
	p = fakePython(t, "exec sleep 60\n")
	begin := time.Now()
	s, rate, err = p.try(t.Context(), &row{Rows: 4, Groups: 4, Against: peftName}, "model.gguf", "bfloat16", 50*time.Millisecond)
	require.NoError(t, err)
	assert.Nil(t, s)
	assert.Zero(t, rate)
	assert.Less(t, time.Since(begin), 50*time.Second, "it did not wait for the end")
}

func TestPythonThatFailsShowsItsLastWords(t *testing.T) {
	p := fakePython(t, "echo 'ModuleNotFoundError: peft' >&2; exit 1\n")
	_, err := p.pythonRunner(t.Context(), &row{Rows: 4, Groups: 4, Against: peftName}, "model.gguf", io.Discard)
	assert.ErrorContains(t, err, "ModuleNotFoundError: peft")
	assert.ErrorContains(t, err, "PEFT in float32")
}

func TestReadStepPassesOverTalk(t *testing.T) {
	out := bufio.NewReader(strings.NewReader("{\"loss\": 1}\n[1]\nnoise\n{\"seconds\": 2, \"tokens\": 3, \"cpu_seconds\": 1}\n"))
	got, err := readStep(out)
	require.NoError(t, err)
	assert.Equal(t, timing{Seconds: 2, Tokens: 3}, got.timing)
	_, err = readStep(out)
	assert.ErrorIs(t, err, io.EOF)
}

// The neighbour takes processor time for as long as its input is open, then ends.
func TestSpinEndsWithItsInput(t *testing.T) {
	in, stop := io.Pipe()
	up, says := io.Pipe()
	ended := make(chan error)
	go func() { ended <- spin(in, says) }()
	_, err := io.ReadFull(up, make([]byte, 1))
	require.NoError(t, err)
	select {
	case <-ended:
		t.Fatal("it rests although its input is open")
	case <-time.After(20 * time.Millisecond):
	}
	stop.Close()
	assert.NoError(t, <-ended)
}

func TestFirstByte(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh to time")
	}
	took, err := firstByte(exec.CommandContext(t.Context(), sh, "-c", "read line; sleep 0.2; echo $line; sleep 0.01"), "hello\n")
	require.NoError(t, err)
	assert.GreaterOrEqual(t, took, 200*time.Millisecond)
	_, err = firstByte(exec.CommandContext(t.Context(), sh, "-c", "echo no model >&2; exit 1"), "hello\n")
	assert.ErrorContains(t, err, "no model")
	_, err = firstByte(exec.CommandContext(t.Context(), sh, "-c", "true"), "hello\n")
	assert.ErrorIs(t, err, io.EOF, "a program that answers nothing was not measured")
}

func TestProcessesReadTheirOutput(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh to run")
	}
	p := &processes{who: "x", command: func(ctx context.Context) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, sh, "-c", "echo talk; echo '{\"seconds\": 2, \"tokens\": 3}'"), nil
	}, read: func(out []byte) (got timing, err error) { return got, lastJSON(out, &got) }}
	got, err := p.run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, timing{Seconds: 2, Tokens: 3}, got.timing)
	assert.Positive(t, got.peak)
	var answer timing
	assert.ErrorContains(t, lastJSON([]byte("talk\nmore talk\n"), &answer), "more talk")
}

// Both variants of each split agree up to rounding (runSplit refuses others), on any number of threads.
func TestSplitVariantsAgree(t *testing.T) {
	for _, threads := range []int{1, 3} {
		v, err := attentionVariants(160, threads)
		require.NoError(t, err)
		v.exact()
		v.inexact()
		assert.Less(t, v.difference(), 1e-5)
		v.close()
	}
	v, err := productVariants(2, 3, kernels.PrecisionF32)
	require.NoError(t, err)
	v.exact()
	v.inexact()
	assert.Less(t, v.difference(), 1e-4)
	assert.Positive(t, v.difference(), "the sums were cut: were they the same bits, nothing was compared")
	v.close()
}

func TestSplitMeasures(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, measure(`{"row":{"kind":"split","split":"positions","rows":1,"prompt":64},"threads":2,"rounds":1}`, &out))
	var got splitRates
	require.NoError(t, lastJSON(out.Bytes(), &got))
	require.Len(t, got.Exact, 1)
	require.Len(t, got.Inexact, 1)
	assert.Positive(t, got.Exact[0])
	assert.Positive(t, got.Inexact[0])
}
