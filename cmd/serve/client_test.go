package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The official OpenAI client gets what it expects, with a key and without.
func TestOpenAIClient(t *testing.T) {
	python := os.Getenv("GRAFT_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import openai").Run(); err != nil {
		t.Skipf("%s has no openai package: pip install openai, or name another Python in GRAFT_PYTHON", python)
	}
	for _, key := range []string{"", "sesame"} {
		t.Setenv("GRAFT_API_KEY", key)
		if key == "" {
			os.Unsetenv("GRAFT_API_KEY")
		}
		p := start(t, "--model", "tiny")
		out, err := exec.Command(python, filepath.Join("..", "..", "examples", "openai_client.py"), p.url+"/v1").CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "\nok")
		p.stop(t)
	}
}
