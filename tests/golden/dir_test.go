// Package golden compares Graft with reference numbers made by other libraries: transformers, PEFT,
// TRL, llama.cpp. GRAFT_GOLDEN names another folder of the same layout as tests/testdata.
package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
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

// folders lists the subfolders of a part that hold a file of the given name, in order.
func folders(t testing.TB, part, file string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir(t, part), "*", file))
	require.NoError(t, err)
	var out []string
	for _, f := range found {
		out = append(out, filepath.Base(filepath.Dir(f)))
	}
	require.NotEmpty(t, out, "%s holds nothing with %s", part, file)
	return out
}

// unsupported tells whether a checkpoint is of a family that Graft does not know; any other failure
// to open it is a failure.
func unsupported(path string) bool {
	_, err := model.Open(path, model.Options{})
	return err != nil && strings.Contains(err.Error(), "is not one Graft knows")
}

// TestGoldenFolder fails when GRAFT_GOLDEN names a folder that holds none of the goldens: every
// other test would skip, and all would look well.
func TestGoldenFolder(t *testing.T) {
	root := os.Getenv("GRAFT_GOLDEN")
	if root == "" {
		return
	}
	for _, part := range []string{"golden-hf", "golden-gguf", "golden-real", "models", "lora", "e2e"} {
		if _, err := os.Stat(filepath.Join(root, part)); err == nil {
			return
		}
	}
	t.Fatalf("GRAFT_GOLDEN=%s holds no golden-hf, golden-gguf or golden-real", root)
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
