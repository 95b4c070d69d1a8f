package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestARunUnderWayIsToldFromAStoppedOne(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be sent an interrupt there")
	}
	runs := t.TempDir()
	dir := filepath.Join(runs, "run")
	cmd, said := program(t, quick(t, dir, "--max-steps", "100000", "--eval-size", "0", "--lr-scheduler-type", "constant")...)
	waitFor(t, filepath.Join(dir, "checkpoint-2"))
	assert.Regexp(t, `running, step [1-9]`, ok(t, "runs", runs).out)
	for _, args := range [][]string{{"resume", dir}, {"resume", "--runs", runs}} {
		r := rltrain(t, "", args...)
		assert.NotEqual(t, exitDone, r.code)
		assert.Contains(t, r.err, "under way in another process")
		assert.NotContains(t, r.err, "unavailable", "the system's words help nobody")
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, exitStopped, cmd.ProcessState.ExitCode(), said.String())
	assert.Contains(t, said.String(), "stops after this step and saves a checkpoint; the same again aborts")
	assert.Contains(t, ok(t, "runs", runs).out, "resume")
	assert.NotContains(t, ok(t, "runs", runs).out, "running")
}

func TestResumeFindsTheFolderBehindOptions(t *testing.T) {
	for _, args := range [][]string{{"d", "--max-steps", "3"}, {"--max-steps", "3", "d"}, {"--max-steps=3", "--json", "d"}, {"--no-full", "d", "--json"}, {"--json", "--output_dir", "e", "d"}} {
		dir, rest := folder(dashes(args))
		assert.Equal(t, "d", dir, "%v", args)
		assert.Len(t, rest, len(args)-1)
		assert.NotContains(t, rest, "d")
	}
	dir, _ := folder([]string{"--max-steps", "3"})
	assert.Empty(t, dir)

	runs := t.TempDir()
	ok(t, quick(t, filepath.Join(runs, "whole"), "--max-steps", "2", "--lr-scheduler-type", "constant")...)
	require.NoError(t, os.Remove(filepath.Join(runs, "whole", "summary.json")))
	s := summary(t, ok(t, "resume", "--max-steps", "3", "--json", filepath.Join(runs, "whole")))
	assert.EqualValues(t, 3, s["steps"])

	// A run that made steps and lost its checkpoints cannot go on: the newest that can is taken.
	gone := filepath.Join(runs, "gone")
	ok(t, quick(t, gone, "--max-steps", "2")...)
	require.NoError(t, os.Remove(filepath.Join(gone, "summary.json")))
	for _, name := range []string{"checkpoint-0", "checkpoint-1", "checkpoint-2"} {
		require.NoError(t, os.RemoveAll(filepath.Join(gone, name)))
	}
	assert.Contains(t, ok(t, "runs", runs).out, "checkpoints are gone")
	assert.Contains(t, rltrain(t, "", "resume", "--runs", runs).err, "is unfinished", "there is none left")
}
