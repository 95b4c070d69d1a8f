package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be its own children, as the program is.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == measureCommand:
		exit(measure(os.Args[2], os.Stdout))
	case len(os.Args) == 2 && os.Args[1] == spinCommand:
		exit(spin(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// fakeLlama answers as llama-bench does.
const fakeLlama = `#!/bin/sh
echo '[{"n_prompt": 0, "n_gen": 32, "samples_ns": [320000000]}]'
`

// The whole command on the embedded model under the real one's name, with scripts for peers: children,
// turns, the busy neighbour, both precisions, the table and the line.
func TestRunWhole(t *testing.T) {
	p := fakePython(t, answers)
	require.NoError(t, os.MkdirAll(filepath.Dir(p.tool(llamaBench)), 0o755))
	for _, tool := range []string{llamaBench, llamaBatched} {
		require.NoError(t, os.WriteFile(p.tool(tool), []byte(fakeLlama), 0o755))
	}
	require.NoError(t, os.WriteFile(p.pythonStamp(), []byte(pythonStampText()), 0o644))
	models := t.TempDir()
	raw, err := os.ReadFile(filepath.Join("..", "tiny", "tiny.gguf"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(models, smollm2), raw, 0o644))

	opt, err := parse([]string{"--json", "--only", "beside.*decode|2 prompts|GRPO step, 1 prompt x 8", "--models", models, "--peers", p.folder, "--precision", "f32,int8"}, io.Discard)
	require.NoError(t, err)
	var out, talk bytes.Buffer
	require.NoError(t, run(t.Context(), opt, &out, &talk))

	var rep report
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")), "one line on stdout")
	require.NoError(t, json.Unmarshal(out.Bytes(), &rep))
	lines := map[string]result{}
	for _, r := range rep.Rows {
		assert.Positive(t, r.Ours.Median, r.Name)
		assert.Contains(t, talk.String(), r.Name)
		lines[r.Precision+" "+r.Name] = r
	}
	require.Len(t, lines, 3*2+1, "three rows in each precision, and the mix of both")
	busy := lines["int8 beside a busy process: SmolLM2-135M, decode 1 row"]
	require.NotNil(t, busy.Ours.Kept)
	require.NotNil(t, busy.Theirs)
	assert.Equal(t, []float64{100, 100, 100}, busy.Theirs.Values)
	assert.InDelta(t, 1, *busy.Theirs.Kept, 1e-9, "the script does not slow down")
	require.NotNil(t, busy.Goals[0].Met)
	lora := lines["f32 SmolLM2-135M LoRA r16 step, 2 prompts x 8 samples"]
	require.NotNil(t, lora.Theirs)
	assert.Equal(t, "PEFT bfloat16", lora.Theirs.Who)
	assert.Len(t, lora.Theirs.Values, 3)
	require.NotNil(t, lora.Memory)
	second := lines["f32 "+stepName]
	require.NotNil(t, second.Theirs)
	assert.Equal(t, secondName, second.Theirs.Who)
	assert.Len(t, second.Ours.Sampling, 3)
}
