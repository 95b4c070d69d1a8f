package rl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDamageToTheManifestIsNotBlamedOnFiles: whatever bit of it flips, the manifest is what does not
// verify; a flipped bit of a listed file is that file's.
func TestDamageToTheManifestIsNotBlamedOnFiles(t *testing.T) {
	path := save(t, t.TempDir(), 7)
	name := filepath.Join(path, checkpointManifest)
	whole, err := os.ReadFile(name)
	require.NoError(t, err)
	for i := range whole {
		bit := i % 8
		damaged := append([]byte(nil), whole...)
		damaged[i] ^= 1 << bit
		require.NoError(t, os.WriteFile(name, damaged, 0o644))
		_, err := OpenCheckpoint(path)
		require.ErrorContains(t, err, path+": manifest.json itself does not verify", "byte %d, bit %d: %s", i, bit, damaged)
		require.ErrorContains(t, err, "resume from an older checkpoint")
	}
	require.NoError(t, os.WriteFile(name, whole, 0o644))
	_, err = OpenCheckpoint(path)
	require.NoError(t, err)

	state := filepath.Join(path, checkpointState)
	raw, err := os.ReadFile(state)
	require.NoError(t, err)
	raw[3] ^= 1
	require.NoError(t, os.WriteFile(state, raw, 0o644))
	_, err = OpenCheckpoint(path)
	require.ErrorContains(t, err, "state.json: ")
	require.ErrorContains(t, err, "the file is damaged")
}

// Manifests that somebody wrote, with the right digest or none, are held to the same rules.
func TestWrittenManifests(t *testing.T) {
	path := save(t, t.TempDir(), 7)
	name := filepath.Join(path, checkpointManifest)
	m, err := readManifest(path)
	require.NoError(t, err)
	put := func(m manifest) error {
		raw, err := m.text()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name, raw, 0o644))
		_, err = OpenCheckpoint(path)
		return err
	}
	seal := func(m manifest) manifest {
		m, err := m.sealed()
		require.NoError(t, err)
		return m
	}
	old := m
	old.Format, old.SHA256 = unsealedFormat, ""
	require.NoError(t, put(old), "checkpoints from before manifests had a digest")
	newer := m
	newer.Format = 3
	require.ErrorContains(t, put(seal(newer)), "checkpoint format 3, this program reads 1 and 2")
	bare := m
	bare.SHA256 = ""
	require.ErrorContains(t, put(bare), "does not verify")
	outside := m
	outside.Files = map[string]manifestFile{checkpointState: m.Files[checkpointState], "../x": {}}
	require.ErrorContains(t, put(seal(outside)), `"../x", outside of the checkpoint`)
	other := m
	other.Step = 8
	require.ErrorContains(t, put(seal(other)), "state of step 7 in a checkpoint of step 8")
	none := m
	none.Files = nil
	require.ErrorContains(t, put(seal(none)), "lacks state.json")
	spaced, err := json.Marshal(seal(m))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, spaced, 0o644))
	_, err = OpenCheckpoint(path)
	require.ErrorContains(t, err, "not written as this program writes it")
}
