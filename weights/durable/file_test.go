package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func names(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestFailedWriteLeavesTheOldFileAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	put := func(text string, err error) error {
		return WriteFile(path, func(w io.Writer) error {
			_, e := io.WriteString(w, text)
			return errors.Join(e, err)
		})
	}
	require.NoError(t, put("old", nil))
	broken := errors.New("broken")
	require.ErrorIs(t, put("half of the n", broken), broken)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(raw))
	require.Equal(t, []string{"file"}, names(t, dir))
	require.NoError(t, put("new", nil))
	raw, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(raw))
	require.Equal(t, []string{"file"}, names(t, dir))
}

func TestWriteFileNeedsAFolder(t *testing.T) {
	require.ErrorIs(t, WriteFile(filepath.Join(t.TempDir(), "none", "file"), func(io.Writer) error { return nil }), os.ErrNotExist)
}

// A folder in the way fails the rename, after everything was written.
func TestFailedRenameLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.MkdirAll(filepath.Join(path, "full"), 0o777))
	require.Error(t, WriteFile(path, func(io.Writer) error { return nil }))
	require.Equal(t, []string{"file"}, names(t, dir))
}
