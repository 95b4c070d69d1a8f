package rl

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"graft/weights"
	"graft/weights/durable"
)

// CheckpointState is everything of a run besides parameters and moments. Randomness is counter-based,
// so seed (among the options), step and cursor are the whole of its state.
type CheckpointState struct {
	Step    int               `json:"step"`    // optimizer steps done
	Version uint64            `json:"version"` // of what is trained
	Cursor  Cursor            `json:"cursor"`
	Counter map[string]Number `json:"counters"` // running figures: tokens sampled, seconds, means
	Log     LogOffsets        `json:"log"`      // where the run's files stood
	Options map[string]string `json:"options"`  // those that decide the result, as text
	Base    string            `json:"base_model"`
	Layout  string            `json:"layout"` // the backend whose order of bytes the moments have
	// Precision is the contract of every forward; "": from before there was a choice, which is f32.
	Precision string            `json:"precision,omitempty"`
	Extra     map[string]string `json:"extra,omitempty"`
}

// CheckpointPart is one file or folder of a checkpoint; Write makes it at the path given.
type CheckpointPart struct {
	Name  string
	Write func(path string) error
}

const (
	checkpointPrefix   = "checkpoint-"
	checkpointState    = "state.json"
	checkpointManifest = "manifest.json"
	checkpointFormat   = 2
	unsealedFormat     = 1 // the same, without a digest of the manifest
	maxManifest        = 16 << 20
)

// manifest lists every file of a checkpoint. It is written last: a folder without one, or with one
// that its files do not fit, was never finished.
type manifest struct {
	Format int                     `json:"format"`
	Step   int                     `json:"step"`
	Files  map[string]manifestFile `json:"files"`
	// SHA256 is of the manifest without it, so that damage to the manifest is not taken for damage to
	// the files it lists.
	SHA256 string `json:"sha256,omitempty"`
}

// text is the manifest as it is written.
func (m manifest) text() ([]byte, error) {
	raw, err := json.MarshalIndent(m, "", "  ")
	return append(raw, '\n'), err
}

// sealed is the manifest with its digest.
func (m manifest) sealed() (manifest, error) {
	m.SHA256 = ""
	raw, err := m.text()
	sum := sha256.Sum256(raw)
	m.SHA256 = hex.EncodeToString(sum[:])
	return m, err
}

// readManifest reads a manifest and verifies it against its own digest: it must be, byte for byte,
// what its content is written as.
func readManifest(path string) (manifest, error) {
	var m manifest
	raw, err := readBounded(filepath.Join(path, checkpointManifest), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("rl: %s is no finished checkpoint: it has no %s", path, checkpointManifest)
	}
	if err != nil {
		return m, fmt.Errorf("rl: %w", err)
	}
	damaged := func(why string) error {
		return fmt.Errorf("rl: %s: %s itself does not verify (%s): it was damaged or edited, and what it says of the other files cannot be trusted; resume from an older checkpoint", path, checkpointManifest, why)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, damaged(err.Error())
	}
	if m.Format == unsealedFormat && m.SHA256 == "" {
		return m, nil
	}
	want, err := m.sealed()
	if err != nil {
		return m, damaged(err.Error())
	}
	text, err := want.text()
	switch {
	case err != nil:
		return m, damaged(err.Error())
	case want.SHA256 != m.SHA256:
		return m, damaged(fmt.Sprintf("its sha256 is %.12s…, it says %.12s…", want.SHA256, m.SHA256))
	case !bytes.Equal(raw, text):
		return m, damaged("it is not written as this program writes it")
	case m.Format != checkpointFormat:
		return m, fmt.Errorf("rl: %s has checkpoint format %d, this program reads %d and %d", path, m.Format, unsealedFormat, checkpointFormat)
	}
	return m, nil
}

type manifestFile struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// SaveCheckpoint writes checkpoint-N into a run's folder: aside first, every file synced, and then
// renamed, so that a folder of that name is whole.
func SaveCheckpoint(dir string, s CheckpointState, parts ...CheckpointPart) (path string, err error) {
	path = filepath.Join(dir, checkpointPrefix+strconv.Itoa(s.Step))
	if err := sweep(dir); err != nil {
		return "", fmt.Errorf("rl: %w", err)
	}
	tmp, err := os.MkdirTemp(dir, "."+checkpointPrefix+"*.tmp")
	if err != nil {
		return "", fmt.Errorf("rl: checkpoint: %w", err)
	}
	defer os.RemoveAll(tmp) // gone after the rename
	if err := writeCheckpoint(tmp, s, parts); err != nil {
		return "", fmt.Errorf("rl: %s: %w", path, err)
	}
	// A run that was resumed before this step, or a torn folder, may have left the name behind.
	old := tmp + ".tmp"
	if err := os.Rename(path, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("rl: checkpoint: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return "", fmt.Errorf("rl: checkpoint: %w", err)
	}
	if err := durable.SyncDir(dir); err != nil {
		return "", err
	}
	return path, os.RemoveAll(old)
}

func writeCheckpoint(tmp string, s CheckpointState, parts []CheckpointPart) error {
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	for _, p := range parts {
		if err := p.Write(filepath.Join(tmp, p.Name)); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, checkpointState), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	m := manifest{Format: checkpointFormat, Step: s.Step, Files: map[string]manifestFile{}}
	folders := []string{}
	err = filepath.WalkDir(tmp, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			folders = append(folders, p)
			return nil
		}
		f, err := os.OpenFile(p, os.O_RDWR, 0) // Windows syncs only what may be written
		if err != nil {
			return err
		}
		entry, err := digest(f)
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
		rel, err := filepath.Rel(tmp, p)
		m.Files[filepath.ToSlash(rel)] = entry
		return err
	})
	if err != nil {
		return err
	}
	if m, err = m.sealed(); err != nil {
		return err
	}
	if raw, err = m.text(); err != nil {
		return err
	}
	if err := weights.WriteFile(filepath.Join(tmp, checkpointManifest), raw); err != nil {
		return err
	}
	for _, f := range folders {
		if err := durable.SyncDir(f); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what killed writers left aside. Only the run that owns the folder writes here.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+checkpointPrefix) && strings.HasSuffix(e.Name(), ".tmp") {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func digest(r io.Reader) (manifestFile, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return manifestFile{Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// Checkpoint is a finished checkpoint whose files were all verified.
type Checkpoint struct {
	Path  string
	State CheckpointState
}

// OpenCheckpoint reads a checkpoint and verifies every file against the manifest.
func OpenCheckpoint(path string) (*Checkpoint, error) {
	m, err := readManifest(path)
	if err != nil {
		return nil, err
	}
	if _, ok := m.Files[checkpointState]; !ok {
		return nil, fmt.Errorf("rl: %s: the manifest lacks %s", path, checkpointState)
	}
	for name, want := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, fmt.Errorf("rl: %s: the manifest names %q, outside of the checkpoint", path, name)
		}
		if err := verify(filepath.Join(path, filepath.FromSlash(name)), want); err != nil {
			return nil, fmt.Errorf("rl: %s: %s: %w", path, name, err)
		}
	}
	c := &Checkpoint{Path: path}
	raw, err := readBounded(filepath.Join(path, checkpointState), maxManifest)
	if err != nil {
		return nil, fmt.Errorf("rl: %w", err)
	}
	if err := json.Unmarshal(raw, &c.State); err != nil {
		return nil, fmt.Errorf("rl: %s: %s: %w", path, checkpointState, err)
	}
	if c.State.Step != m.Step {
		return nil, fmt.Errorf("rl: %s: state of step %d in a checkpoint of step %d", path, c.State.Step, m.Step)
	}
	return c, nil
}

func verify(path string, want manifestFile) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := digest(f)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%d bytes with sha256 %.12s…, the manifest says %d with %.12s…: the file is damaged", got.Bytes, got.SHA256, want.Bytes, want.SHA256)
	}
	return nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return raw, err
}

// steps lists the checkpoints' steps of a run's folder, newest first, whole or not.
func steps(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("rl: %w", err)
	}
	var out []int
	for _, e := range entries {
		if n, err := strconv.Atoi(strings.TrimPrefix(e.Name(), checkpointPrefix)); err == nil && e.IsDir() && n >= 0 && e.Name() == checkpointPrefix+strconv.Itoa(n) {
			out = append(out, n)
		}
	}
	sort.Sort(sort.Reverse(sort.IntSlice(out)))
	return out, nil
}

// ErrNoCheckpoint says that a folder holds no checkpoint at all, not even a damaged one.
var ErrNoCheckpoint = errors.New("no checkpoint to resume from")

// LatestCheckpoint opens the newest whole checkpoint of a run's folder, or the checkpoint itself if
// dir is one. Damaged or unfinished ones that are newer are passed over and told.
func LatestCheckpoint(dir string) (c *Checkpoint, passed []error, err error) {
	if _, err := os.Stat(filepath.Join(dir, checkpointManifest)); err == nil {
		c, err := OpenCheckpoint(dir)
		return c, nil, err
	}
	found, err := steps(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range found {
		c, err := OpenCheckpoint(filepath.Join(dir, checkpointPrefix+strconv.Itoa(n)))
		if err == nil {
			return c, passed, nil
		}
		passed = append(passed, err)
	}
	if passed != nil {
		return nil, passed, fmt.Errorf("rl: %s has no whole checkpoint: %w", dir, errors.Join(passed...))
	}
	return nil, nil, fmt.Errorf("rl: %s: %w", dir, ErrNoCheckpoint)
}

// DropNewer removes the checkpoints behind this one: a run that goes on from here makes them anew,
// and until then they would be resumed from with a log that has not come so far.
func (c *Checkpoint) DropNewer() error {
	dir := filepath.Dir(c.Path)
	found, err := steps(dir)
	if err != nil {
		return err
	}
	for _, n := range found {
		if n > c.State.Step {
			if err := dropCheckpoint(filepath.Join(dir, checkpointPrefix+strconv.Itoa(n))); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropCheckpoint removes the manifest first: what is left of an interrupted removal is no checkpoint.
func dropCheckpoint(path string) error {
	if err := errors.Join(ignoreMissing(os.Remove(filepath.Join(path, checkpointManifest))), os.RemoveAll(path)); err != nil {
		return fmt.Errorf("rl: %w", err)
	}
	return nil
}

// PruneCheckpoints keeps the newest keep whole checkpoints; keep 0 keeps all. Torn ones do not
// count, and those older than what is kept go too.
func PruneCheckpoints(dir string, keep int) error {
	found, err := steps(dir)
	if err != nil || keep <= 0 {
		return err
	}
	whole := 0
	for _, n := range found {
		path := filepath.Join(dir, checkpointPrefix+strconv.Itoa(n))
		if whole < keep {
			if raw, err := readBounded(filepath.Join(path, checkpointManifest), maxManifest); err == nil && json.Valid(bytes.TrimSpace(raw)) {
				whole++
			}
			continue
		}
		if err := dropCheckpoint(path); err != nil {
			return err
		}
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
