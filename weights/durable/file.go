// Package durable replaces files so that a reader, or a machine that loses power, finds the old file
// or the new one, never a half. It knows nothing of what is in them and holds no state.
package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// WriteFile lets fill write a file aside, syncs it, and renames it to path. After an error path is
// as it was and nothing is left beside it.
func WriteFile(path string, fill func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = errors.Join(f.Chmod(0o644), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		return SyncDir(filepath.Dir(path))
	}
	if e := os.Remove(f.Name()); !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}

// SyncDir makes renames in dir survive a power cut. Windows cannot sync a folder, and keeps renames
// by itself.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
