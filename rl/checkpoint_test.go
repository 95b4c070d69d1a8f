package rl

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/ref"
	"graft/model"
	"graft/weights"
)

// blob is a part with fixed content.
func blob(name, content string) CheckpointPart {
	return CheckpointPart{name, func(path string) error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(content), 0o644)
	}}
}

func save(t *testing.T, dir string, step int) string {
	t.Helper()
	path, err := SaveCheckpoint(dir, CheckpointState{Step: step}, blob("adapter/weights", "step "+strconv.Itoa(step)), blob("optimizer.bin", "moments"))
	require.NoError(t, err)
	return path
}

func names(t *testing.T, dir string) (out []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestCheckpointStateSurvives(t *testing.T) {
	dir := t.TempDir()
	s := CheckpointState{Step: 7, Version: 9, Cursor: Cursor{Epoch: 1, Index: 2, Items: 3, Seed: math.MaxUint64},
		Counter: map[string]Number{"mean": 0.1 + 0.2, "tiny": 5e-324, "nan": Number(math.NaN()), "inf": Number(math.Inf(-1))},
		Log:     LogOffsets{1, 2, 3}, Options: map[string]string{"beta": "0.1"}, Base: "b", Layout: "cpu"}
	path, err := SaveCheckpoint(dir, s, blob("x", ""))
	require.NoError(t, err)
	require.Equal(t, "checkpoint-7", filepath.Base(path))
	c, passed, err := LatestCheckpoint(dir)
	require.NoError(t, err)
	require.Empty(t, passed)
	require.True(t, math.IsNaN(float64(c.State.Counter["nan"])))
	delete(c.State.Counter, "nan")
	delete(s.Counter, "nan")
	require.Equal(t, s, c.State)
	require.Equal(t, []string{"checkpoint-7"}, names(t, dir), "nothing is left aside")
}

func TestDamagedCheckpointsAreNeverPicked(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"no manifest":   func(p string) error { return os.Remove(filepath.Join(p, "manifest.json")) },
		"half manifest": func(p string) error { return os.Truncate(filepath.Join(p, "manifest.json"), 40) },
		"cut file":      func(p string) error { return os.Truncate(filepath.Join(p, "optimizer.bin"), 3) },
		"missing file":  func(p string) error { return os.Remove(filepath.Join(p, "adapter", "weights")) },
		"other bytes":   func(p string) error { return os.WriteFile(filepath.Join(p, "optimizer.bin"), []byte("momentz"), 0o644) },
		"other state": func(p string) error {
			return os.WriteFile(filepath.Join(p, "state.json"), []byte(`{"step":30}`), 0o644)
		},
		"renamed by hand": func(p string) error {
			raw, err := os.ReadFile(filepath.Join(p, "manifest.json"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(p, "manifest.json"), []byte(strings.Replace(string(raw), `"step": 20`, `"step": 21`, 1)), 0o644)
		},
		"path out of the folder": func(p string) error {
			raw, err := os.ReadFile(filepath.Join(p, "manifest.json"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(p, "manifest.json"), []byte(strings.Replace(string(raw), `"optimizer.bin"`, `"../x"`, 1)), 0o644)
		},
	} {
		dir := t.TempDir()
		save(t, dir, 10)
		require.NoError(t, damage(save(t, dir, 20)), name)
		require.NoError(t, os.Mkdir(filepath.Join(dir, ".checkpoint-123.tmp"), 0o755))
		c, passed, err := LatestCheckpoint(dir)
		require.NoError(t, err, name)
		require.Equal(t, 10, c.State.Step, name)
		require.Len(t, passed, 1, name)
		save(t, dir, 30)
		require.Equal(t, []string{"checkpoint-10", "checkpoint-20", "checkpoint-30"}, names(t, dir), "what was left aside is swept")
	}
	_, _, err := LatestCheckpoint(t.TempDir())
	require.ErrorContains(t, err, "no checkpoint to resume from")
}

func TestFailedPartLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1)
	_, err := SaveCheckpoint(dir, CheckpointState{Step: 2}, blob("a", "x"), CheckpointPart{"b", func(string) error { return os.ErrPermission }})
	require.ErrorIs(t, err, os.ErrPermission)
	require.Equal(t, []string{"checkpoint-1"}, names(t, dir))
}

func TestSavingAStepAgainReplacesIt(t *testing.T) {
	dir := t.TempDir()
	path := save(t, dir, 5)
	require.NoError(t, os.Remove(filepath.Join(path, "manifest.json")))
	save(t, dir, 5)
	c, _, err := LatestCheckpoint(dir)
	require.NoError(t, err)
	require.Equal(t, 5, c.State.Step)
	require.Equal(t, []string{"checkpoint-5"}, names(t, dir))
}

func TestPruneKeepsWholeOnes(t *testing.T) {
	dir := t.TempDir()
	for step := 1; step <= 4; step++ {
		save(t, dir, step)
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "checkpoint-4", "manifest.json")))
	require.NoError(t, PruneCheckpoints(dir, 0))
	require.Len(t, names(t, dir), 4)
	require.NoError(t, PruneCheckpoints(dir, 2))
	require.Equal(t, []string{"checkpoint-2", "checkpoint-3", "checkpoint-4"}, names(t, dir))
	c, err := OpenCheckpoint(filepath.Join(dir, "checkpoint-2"))
	require.NoError(t, err)
	require.NoError(t, c.DropNewer())
	require.Equal(t, []string{"checkpoint-2"}, names(t, dir))
}

func TestResumeListsEveryDifference(t *testing.T) {
	c := Checkpoint{Path: "p", State: CheckpointState{Base: "aaaa", Layout: "cpu", Options: map[string]string{"beta": "0.1", "seed": "1", "gone": "x"}}}
	require.NoError(t, c.CheckResume("aaaa", "cpu", kernels.PrecisionF32, map[string]string{"beta": "0.1", "seed": "1", "gone": "x"}))
	err := c.CheckResume("bbbb", "ref", kernels.PrecisionInt8, map[string]string{"beta": "0.2", "seed": "1", "new": "y"})
	for _, want := range []string{"base model", "backend: cpu", "precision: f32 in the checkpoint, int8 now", "beta: 0.1 in the checkpoint, 0.2 now", "gone: x in the checkpoint, not set now", "new: not set in the checkpoint, y now"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "seed")
}

func TestFingerprintFollowsContentNotPlace(t *testing.T) {
	a, b := file(t, "a.gguf", "content"), file(t, "b.gguf", "content")
	fa, err := Fingerprint(a)
	require.NoError(t, err)
	fb, err := Fingerprint(b)
	require.NoError(t, err)
	require.Equal(t, fa, fb)
	require.NoError(t, os.WriteFile(b, []byte("Content"), 0o644))
	fb, err = Fingerprint(b)
	require.NoError(t, err)
	require.NotEqual(t, fa, fb)
	folder, err := Fingerprint(llama)
	require.NoError(t, err)
	require.Len(t, folder, 64)
	_, err = Fingerprint(t.TempDir())
	require.ErrorContains(t, err, "no model files")
	big := file(t, "big", "")
	require.NoError(t, os.Truncate(big, 65<<20))
	before, err := Fingerprint(big)
	require.NoError(t, err)
	f, err := os.OpenFile(big, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{1}, 65<<20-1)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	after, err := Fingerprint(big)
	require.NoError(t, err)
	require.NotEqual(t, before, after)
}

const llama = "../tests/testdata/golden-hf/models/llama-tied"

func loadLlama(t *testing.T, o model.Options) *model.Model {
	t.Helper()
	files, err := model.Open(llama, o)
	require.NoError(t, err)
	defer files.Close()
	arena := weights.NewArena(ref.New(), 0)
	t.Cleanup(arena.Close)
	m, err := files.Load(arena)
	require.NoError(t, err)
	return m
}

// move takes optimizer steps with gradients that depend on the step only.
func move(t *testing.T, be kernels.Backend, o *AdamW, params []weights.Param, from, to int) {
	t.Helper()
	for step := from; step < to; step++ {
		for _, p := range params {
			raw := make([]byte, 4*p.Grad.Cols)
			for i := range p.Grad.Cols {
				bits := math.Float32bits(float32(math.Sin(float64(step*31 + i)))) // any fixed numbers
				raw[4*i], raw[4*i+1], raw[4*i+2], raw[4*i+3] = byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24)
			}
			be.Upload(p.Grad, raw)
		}
		_, err := o.Step(1e-3)
		require.NoError(t, err)
	}
}

func TestResumedAdapterEqualsUnkilledBitForBit(t *testing.T) {
	cfg := weights.AdapterConfig{R: 4, Alpha: 8, TargetModules: []string{"q_proj", "down_proj"}}
	train := func(cut int) string {
		m := loadLlama(t, model.Options{})
		ad, err := m.NewAdapter(1, cfg, 3, true)
		require.NoError(t, err)
		o, err := NewAdamW(m.Arena, ad.Trained(), DefaultAdamW())
		require.NoError(t, err)
		p := &Policy{Model: m, Adapter: ad}
		if cut == 0 {
			move(t, m.Backend(), o, ad.Trained(), 0, 5)
			return m.HashAdapter(ad)
		}
		move(t, m.Backend(), o, ad.Trained(), 0, cut)
		ad.Version = 42
		dir := t.TempDir()
		_, err = SaveCheckpoint(dir, CheckpointState{Step: cut, Version: ad.Version}, p.Part(), OptimizerPart(o))
		require.NoError(t, err)

		again := loadLlama(t, model.Options{})
		c, _, err := LatestCheckpoint(dir)
		require.NoError(t, err)
		require.True(t, c.HasAdapter())
		back, err := c.LoadAdapter(again, 1)
		require.NoError(t, err)
		require.Equal(t, uint64(42), back.Version)
		resumed, err := NewAdamW(again.Arena, back.Trained(), DefaultAdamW())
		require.NoError(t, err)
		require.NoError(t, c.LoadOptimizer(resumed))
		require.Equal(t, cut, resumed.Steps())
		move(t, again.Backend(), resumed, back.Trained(), cut, 5)
		return again.HashAdapter(back)
	}
	want := train(0)
	require.Equal(t, want, train(3))
	require.Equal(t, want, train(1))
}

func TestResumedBaseEqualsUnkilledBitForBit(t *testing.T) {
	m := loadLlama(t, model.Options{Trained: true})
	o, err := NewAdamW(m.Arena, m.Trained, DefaultAdamW())
	require.NoError(t, err)
	move(t, m.Backend(), o, m.Trained, 0, 2)
	dir := t.TempDir()
	_, err = SaveCheckpoint(dir, CheckpointState{Step: 2, Version: 3}, (&Policy{Model: m}).Part(), OptimizerPart(o))
	require.NoError(t, err)
	move(t, m.Backend(), o, m.Trained, 2, 4)

	again := loadLlama(t, model.Options{Trained: true})
	c, _, err := LatestCheckpoint(dir)
	require.NoError(t, err)
	require.False(t, c.HasAdapter())
	require.NoError(t, c.LoadTrained(again))
	require.Equal(t, uint64(3), again.Version)
	resumed, err := NewAdamW(again.Arena, again.Trained, DefaultAdamW())
	require.NoError(t, err)
	require.NoError(t, c.LoadOptimizer(resumed))
	move(t, again.Backend(), resumed, again.Trained, 2, 4)
	require.Equal(t, m.HashTrained(), again.HashTrained())

	again.Trained = again.Trained[:1]
	again.Trained[0].Name = "other"
	require.ErrorContains(t, c.LoadTrained(again), `lacks parameter "other"`)
}

func TestNumberKeepsItsBits(t *testing.T) {
	for _, x := range []float64{0, math.Copysign(0, -1), 1.0 / 3, math.MaxFloat64, 5e-324, math.Inf(1), math.Inf(-1), math.NaN()} {
		raw, err := json.Marshal(Number(x))
		require.NoError(t, err)
		var back Number
		require.NoError(t, json.Unmarshal(raw, &back))
		if math.IsNaN(x) {
			require.True(t, math.IsNaN(float64(back)))
		} else {
			require.Equal(t, math.Float64bits(x), math.Float64bits(float64(back)))
		}
	}
}
