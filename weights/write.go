package weights

import (
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile writes data aside, syncs it and renames it to path, so that a reader, or a machine that
// loses power, sees the old file or the new one, never a half.
func WriteFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	defer os.Remove(tmp.Name()) // fails after the rename, as it should
	if err := tmp.Chmod(0o644); err != nil && os.PathSeparator == '/' {
		tmp.Close()
		return fmt.Errorf("weights: %w", err)
	}
	if _, err := tmp.Write(data); err != nil {
		tmp.Close()
		return fmt.Errorf("weights: %w", err)
	}
	if err := tmp.Sync(); err != nil {
		tmp.Close()
		return fmt.Errorf("weights: %w", err)
	}
	if err := tmp.Close(); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes renames in a folder durable, where the platform can.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	defer d.Close()
	d.Sync() // some platforms cannot sync folders; there it changes nothing
	return nil
}
