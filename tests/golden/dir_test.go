// Package golden compares Graft with reference numbers made by other libraries: transformers, PEFT,
// TRL, llama.cpp. GRAFT_GOLDEN names another folder of the same layout as tests/testdata.
package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/cpu"
	"graft/model"
	"graft/weights"
)

// dir finds a part of the golden data, "golden-hf/models": below GRAFT_GOLDEN, which may also be
// that folder's parent's content itself ("models"), or below tests/testdata.
func dir(t testing.TB, part string) string {
	t.Helper()
	root := os.Getenv("GRAFT_GOLDEN")
	if root == "" {
		root = filepath.Join("..", "testdata")
	}
	for _, p := range []string{filepath.Join(root, part), filepath.Join(root, filepath.Base(part))} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	if os.Getenv("GRAFT_GOLDEN") != "" {
		t.Skipf("%s has no %s", root, part)
	}
	t.Fatalf("golden data %s is missing below %s", part, root)
	return ""
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, v), path)
}

// backend is the product's own.
func backend(t testing.TB) kernels.Backend {
	b := cpu.New(cpu.Options{})
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// load opens and loads a model.
func load(t testing.TB, b kernels.Backend, path string, o model.Options) *model.Model {
	t.Helper()
	files, err := model.Open(path, o)
	require.NoError(t, err)
	defer files.Close()
	arena := weights.NewArena(b, 0)
	t.Cleanup(arena.Close)
	m, err := files.Load(arena)
	require.NoError(t, err)
	return m
}
