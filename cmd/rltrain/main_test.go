package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary the program itself: for tests that send signals.
const asProgram = "RLTRAIN_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// result is what a command left.
type result struct {
	code     int
	out, err string
}

// rltrain runs a command within this process.
func rltrain(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(args, strings.NewReader(stdin), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// ok runs a command that must succeed.
func ok(t *testing.T, args ...string) result {
	t.Helper()
	r := rltrain(t, "", args...)
	require.Equal(t, exitDone, r.code, "%v\n%s", args, r.err)
	return r
}

// program starts the program as a process of its own.
func program(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	errs := &bytes.Buffer{}
	cmd.Stderr = errs
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, errs
}

// sums writes a dataset of n additions and returns its path.
func sums(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		x, y := i*37%90+10, i*53%80+10
		fmt.Fprintf(&b, `{"question":"%d+%d=","answer":"%d"}`+"\n", x, y, x+y)
	}
	return file(t, "sums.jsonl", b.String())
}

// file writes a file into a folder of the test.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// summary reads the last line of standard output.
func summary(t *testing.T, r result) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	var s map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &s), r.out+r.err)
	return s
}

// quick are the options of a GRPO run that takes a second.
func quick(t *testing.T, dir string, more ...string) []string {
	return append([]string{"grpo", "--model", "tiny", "--dataset", sums(t, 60), "--reward", "exact", "--max-steps", "4", "--num-generations", "4",
		"--per-device-train-batch-size", "8", "--max-completion-length", "6", "--learning-rate", "1e-3", "--eval-size", "6", "--save-steps", "1",
		"--output-dir", dir, "--json"}, more...)
}
