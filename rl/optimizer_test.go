package rl

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/cpu"
	"graft/weights"
)

// params makes trained parameters with the given values on the product's backend.
func params(t *testing.T, values ...[]float32) (*weights.Arena, []weights.Param) {
	t.Helper()
	be := cpu.New(cpu.Options{Threads: 1})
	arena := weights.NewArena(be, 0)
	t.Cleanup(func() { arena.Close(); require.NoError(t, be.Close()) })
	var out []weights.Param
	for _, v := range values {
		p, err := arena.Tensor("weights", kernels.F32, 1, len(v))
		require.NoError(t, err)
		g, err := arena.Tensor("gradients", kernels.F32, 1, len(v))
		require.NoError(t, err)
		copy(p.F32(), v)
		out = append(out, weights.Param{Value: p, Grad: g, Decay: true})
	}
	return arena, out
}

type adamRun struct {
	Name string
	Args struct {
		LR          float64
		Betas       [2]float64
		Eps         float64
		WeightDecay float64 `json:"weight_decay"`
	}
	MaxGradNorm float64       `json:"max_grad_norm"`
	LRPerStep   []float64     `json:"lr_per_step"`
	P0          [][]float32   `json:"p0"`
	Grads       [][][]float32 `json:"grads"`
	Float64     struct {
		Params   [][][]float64
		GradNorm []float64 `json:"grad_norm"`
	}
	FinalM [][]float64 `json:"final_m"`
	FinalV [][]float64 `json:"final_v"`
}

func (r *adamRun) options() AdamWOptions {
	return AdamWOptions{Beta1: r.Args.Betas[0], Beta2: r.Args.Betas[1], Eps: r.Args.Eps, WeightDecay: r.Args.WeightDecay, MaxGradNorm: r.MaxGradNorm}
}

func (r *adamRun) rate(step int) float64 {
	if r.LRPerStep != nil {
		return r.LRPerStep[step]
	}
	return r.Args.LR
}

func adamRuns(t *testing.T) []adamRun {
	var file struct{ Runs []adamRun }
	golden(t, "optim/adamw.json", &file)
	require.Len(t, file.Runs, 5)
	return file.Runs
}

// TestAdamWGolden follows torch's float64 trajectories with parameters kept in float32.
func TestAdamWGolden(t *testing.T) {
	for _, run := range adamRuns(t) {
		t.Run(run.Name, func(t *testing.T) {
			arena, ps := params(t, run.P0...)
			opt, err := NewAdamW(arena, ps, run.options())
			require.NoError(t, err)
			for step := range run.Grads {
				for i, g := range run.Grads[step] {
					copy(ps[i].Grad.F32(), g)
				}
				norm, err := opt.Step(run.rate(step))
				require.NoError(t, err)
				if len(run.Float64.GradNorm) > 0 {
					require.InEpsilon(t, run.Float64.GradNorm[step], norm, 1e-6)
				}
				for i := range ps {
					for j, want := range run.Float64.Params[step][i] {
						require.InDelta(t, want, float64(ps[i].Value.F32()[j]), 1e-6*(1+math.Abs(want)), "step %d, parameter %d[%d]", step, i, j)
					}
				}
			}
			require.Equal(t, len(run.Grads), opt.Steps())
			for i := range ps {
				for j := range run.FinalM[i] {
					require.InDelta(t, run.FinalM[i][j], float64(opt.m[i].F32()[j]), 2e-4*(1e-9+math.Abs(run.FinalM[i][j])))
					require.InDelta(t, run.FinalV[i][j], float64(opt.v[i].F32()[j]), 2e-4*(1e-18+math.Abs(run.FinalV[i][j])))
				}
			}
		})
	}
}

// TestAdamWResume: a run whose state went through Export and Import ends with the same bits.
func TestAdamWResume(t *testing.T) {
	run := adamRuns(t)[2]
	arena, ps := params(t, run.P0...)
	opt, err := NewAdamW(arena, ps, run.options())
	require.NoError(t, err)
	step := func(opt *AdamW, ps []weights.Param, i int) {
		for j, g := range run.Grads[i] {
			copy(ps[j].Grad.F32(), g)
		}
		_, err := opt.Step(run.rate(i))
		require.NoError(t, err)
	}
	for i := range 3 {
		step(opt, ps, i)
	}
	var state bytes.Buffer
	require.NoError(t, opt.Export(&state))
	saved := [][]float32{append([]float32{}, ps[0].Value.F32()...), append([]float32{}, ps[1].Value.F32()...)}
	step(opt, ps, 3)

	arena2, ps2 := params(t, saved...)
	opt2, err := NewAdamW(arena2, ps2, run.options())
	require.NoError(t, err)
	require.ErrorContains(t, opt2.Import(bytes.NewReader(state.Bytes()[:20])), "reading moments")
	require.ErrorContains(t, opt2.Import(bytes.NewReader(make([]byte, state.Len()))), "not the moments of an AdamW")
	require.NoError(t, opt2.Import(&state))
	require.Equal(t, 3, opt2.Steps())
	step(opt2, ps2, 3)
	for i := range ps {
		require.Equal(t, ps[i].Value.F32(), ps2[i].Value.F32())
	}

	other, one := params(t, run.P0[0])
	opt3, err := NewAdamW(other, one, run.options())
	require.NoError(t, err)
	state.Reset()
	require.NoError(t, opt.Export(&state))
	require.Error(t, opt3.Import(&state))
	require.Zero(t, opt3.Steps())
}

// TestAdamWRefusesNonFinite: a gradient that is not finite changes nothing at all.
func TestAdamWRefusesNonFinite(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		arena, ps := params(t, []float32{1, 2}, []float32{3})
		opt, err := NewAdamW(arena, ps, DefaultAdamW())
		require.NoError(t, err)
		copy(ps[0].Grad.F32(), []float32{1, 1})
		ps[1].Grad.F32()[0] = bad
		_, err = opt.Step(0.1)
		require.ErrorContains(t, err, "gradient norm of step 1")
		require.Equal(t, []float32{1, 2}, ps[0].Value.F32())
		require.Equal(t, []float32{3}, ps[1].Value.F32())
		require.Equal(t, []float32{0, 0}, opt.m[0].F32())
		require.Zero(t, opt.Steps())
	}
}

// TestAdamWClips: a norm above the limit is scaled to it, one below is left alone.
func TestAdamWClips(t *testing.T) {
	for _, c := range []struct{ limit, want float64 }{{0, 5}, {10, 5}, {2.5, 2.5}} {
		arena, ps := params(t, []float32{0, 0})
		o := DefaultAdamW()
		o.MaxGradNorm = c.limit
		opt, err := NewAdamW(arena, ps, o)
		require.NoError(t, err)
		copy(ps[0].Grad.F32(), []float32{3, -4})
		norm, err := opt.Step(0.1)
		require.NoError(t, err)
		require.InDelta(t, 5, norm, 1e-6)
		m := opt.m[0].F32()
		require.InDelta(t, 0.1*c.want, math.Hypot(float64(m[0]), float64(m[1])), 1e-6)
	}
}

// TestAdamWDecay: decay moves only parameters that ask for it.
func TestAdamWDecay(t *testing.T) {
	arena, ps := params(t, []float32{1}, []float32{1})
	ps[1].Decay = false
	o := DefaultAdamW()
	o.WeightDecay = 0.5
	opt, err := NewAdamW(arena, ps, o)
	require.NoError(t, err)
	_, err = opt.Step(0.1) // zero gradients
	require.NoError(t, err)
	require.Equal(t, float32(0.95), ps[0].Value.F32()[0])
	require.Equal(t, float32(1), ps[1].Value.F32()[0])
}

func TestAdamWMemory(t *testing.T) {
	arena, ps := params(t, make([]float32, 100), make([]float32, 3))
	before := arena.Used()
	opt, err := NewAdamW(arena, ps, DefaultAdamW())
	require.NoError(t, err)
	require.Equal(t, AdamWBytes(100, 3), arena.Used()-before)
	opt.Free()
	require.Equal(t, before, arena.Used())
	_, err = NewAdamW(arena, nil, DefaultAdamW())
	require.ErrorContains(t, err, "nothing to train")
	o := DefaultAdamW()
	o.Beta2 = 1
	_, err = NewAdamW(arena, ps, o)
	require.ErrorContains(t, err, "adam_beta2 is 1")
}
