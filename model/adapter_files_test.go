package model

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/weights"
)

// An adapter that holds no number would be loaded, and every answer fail much later for a reason that
// nobody connects with it.
func TestAdaptersThatAreNoNumbersAreRefused(t *testing.T) {
	m := loaded(t, "llama-Q4_0.gguf", Options{})
	for id, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		ad, err := m.NewAdapter(uint64(1+id), weights.AdapterConfig{R: 2, Alpha: 4, TargetModules: []string{"q_proj"}}, 1, false)
		require.NoError(t, err)
		b := ad.Pairs()[0].B
		rows := Floats(m.Backend(), b)
		rows[2*3+1] = bad
		pack(m.Backend(), b, rows)
		require.NoError(t, m.Backend().Sync())
		dir := t.TempDir()
		require.NoError(t, m.SavePEFT(ad, dir))
		file := filepath.Join(dir, "lora.gguf")
		require.NoError(t, m.SaveAdapterGGUF(ad, file))
		used := m.Arena.Used()
		for _, path := range []string{dir, file} {
			_, err := m.LoadAdapter(path, 9, false)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, "column 1: the file is damaged, or its training diverged")
		}
		require.Equal(t, used, m.Arena.Used())
	}
}
