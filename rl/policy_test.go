package rl

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels/cpu"
	"graft/kernels/rng"
	"graft/model"
	"graft/tiny"
	"graft/weights"
)

// freshPages hands out page ids from the end, so that no test depends on their order.
type freshPages struct{ n int }

func (p freshPages) Take(n int) ([]int32, error) {
	if n > p.n {
		return nil, fmt.Errorf("%d pages wanted of %d", n, p.n)
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(p.n - 1 - i)
	}
	return out, nil
}

func (p freshPages) Give([]int32) {}

// newPolicy loads the embedded model with a random adapter.
func newPolicy(t testing.TB, threads int, keep model.Keep) *Policy {
	t.Helper()
	be := cpu.New(cpu.Options{Threads: threads})
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	arena := weights.NewArena(be, 0)
	t.Cleanup(arena.Close)
	file, err := tiny.Open()
	require.NoError(t, err)
	files, err := model.FromGGUF(file, model.Options{Context: 256})
	require.NoError(t, err)
	m, err := files.Load(arena)
	require.NoError(t, err)
	cfg := weights.AdapterConfig{R: 8, Alpha: 16, TargetModules: []string{"all-linear"}}
	ad, err := m.NewAdapter(1, cfg, 3, true)
	require.NoError(t, err)
	scramble(ad)
	size := PolicySize{Rows: 600, Scored: 600, Pairs: 600, Pages: 80, Keep: keep, Threads: 8}
	pages, err := model.NewPages(arena, &m.Config, size.Pages)
	require.NoError(t, err)
	p := &Policy{Model: m, Adapter: ad, Pages: pages, Pool: freshPages{size.Pages}, InvT: 1 / 0.7}
	require.NoError(t, p.Allocate(size))
	return p
}

// scramble gives B small random values, so that the adapter does something; padding stays zero.
func scramble(ad *weights.Adapter) {
	src := rng.New(11, "test")
	for i, pair := range ad.Pairs() {
		for j := range pair.B.Flat().F32() {
			pair.B.Flat().F32()[j] = float32(0.05 * (src.Uniform(uint32(i), uint32(j), 0, 0) - 0.5))
		}
	}
}

// sampleBatch is groups of siblings with prompts of the given lengths.
func sampleBatch(prompts []int, siblings int) []Rollout {
	src := rng.New(5, "batch")
	token := func(a, b, c int) int32 { return int32(src.Below(250, uint32(a), uint32(b), uint32(c))) }
	var out []Rollout
	for g, n := range prompts {
		for s := range siblings {
			r := Rollout{PromptLen: n, Group: g, Sample: s}
			for i := range n {
				r.Tokens = append(r.Tokens, token(g, 0, i))
			}
			for i := range 1 + (g*5+s*7)%23 {
				r.Tokens = append(r.Tokens, token(g, s+1, i))
			}
			out = append(out, r)
		}
	}
	return out
}

func bitsOf(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}

// Siblings that share their prompt's rows and pages must score as each would alone.
func TestSharedPromptChangesNoBit(t *testing.T) {
	for _, threads := range []int{1, 2, 3} {
		p := newPolicy(t, threads, model.KeepAll)
		batch := sampleBatch([]int{1, 15, 16, 17, 33}, 4)
		logp, entropy, err := p.Score(batch)
		require.NoError(t, err)
		at := 0
		for i := range batch {
			alone, e, err := p.Score(batch[i : i+1])
			require.NoError(t, err)
			n := batch[i].Len()
			require.Equal(t, bitsOf(alone), bitsOf(logp[at:at+n]), "rollout %d", i)
			require.Equal(t, bitsOf(e), bitsOf(entropy[at:at+n]), "rollout %d", i)
			at += n
		}
		require.Equal(t, at, len(logp))
	}
}

// gradients of a made-up objective over a batch, in micro-batches of the given sizes.
func gradients(t *testing.T, p *Policy, batch []Rollout, split []int) []float32 {
	t.Helper()
	p.ZeroGrads()
	at := 0
	for _, n := range split {
		part := batch[at : at+n]
		logp, _, err := p.Score(part)
		require.NoError(t, err)
		g := TokenGrad{DLogP: make([]float32, len(logp)), DEntropy: make([]float32, len(logp))}
		k := 0
		for i := range part {
			for j := range part[i].Len() {
				g.DLogP[k] = float32(math.Sin(float64(3*part[i].Group + 5*part[i].Sample + j)))
				g.DEntropy[k] = float32(0.3 * math.Cos(float64(part[i].Group+part[i].Sample+2*j)))
				k++
			}
		}
		require.NoError(t, p.Accumulate(g))
		at += n
	}
	require.Equal(t, len(batch), at)
	return append([]float32{}, p.Adapter.Grads().F32()...)
}

// Micro-batches that keep groups whole change memory and nothing else.
func TestAccumulationChangesNoBit(t *testing.T) {
	batch := sampleBatch([]int{5, 16, 20, 31}, 3)
	whole := gradients(t, newPolicy(t, 2, model.KeepAll), batch, []int{12})
	require.Equal(t, bitsOf(whole), bitsOf(gradients(t, newPolicy(t, 1, model.KeepAll), batch, []int{3, 6, 3})))
	require.Equal(t, bitsOf(whole), bitsOf(gradients(t, newPolicy(t, 3, model.KeepInputs), batch, []int{6, 3, 3})))
}

// Splitting a group computes its prompt twice: the same gradient up to rounding.
func TestSplitGroupsAgree(t *testing.T) {
	batch := sampleBatch([]int{19}, 4)
	p := newPolicy(t, 2, model.KeepAll)
	whole, parts := gradients(t, p, batch, []int{4}), gradients(t, p, batch, []int{1, 2, 1})
	var diff, norm float64
	for i := range whole {
		diff += math.Pow(float64(whole[i])-float64(parts[i]), 2)
		norm += math.Pow(float64(whole[i]), 2)
	}
	require.Positive(t, norm)
	require.Less(t, math.Sqrt(diff/norm), 1e-5)
}

// Masked tokens are not scored, and everything else is as before.
func TestMaskedTokensAreNotScored(t *testing.T) {
	p := newPolicy(t, 2, model.KeepAll)
	batch := sampleBatch([]int{18}, 3)
	full, _, err := p.Score(batch)
	require.NoError(t, err)
	at := 0
	for i := range batch {
		batch[i].Mask = make([]float32, batch[i].Len())
		for j := range batch[i].Mask {
			batch[i].Mask[j] = float32((i + j) % 2)
		}
	}
	masked, _, err := p.Score(batch)
	require.NoError(t, err)
	for i := range batch {
		for j := range batch[i].Len() {
			if batch[i].Mask[j] == 0 {
				require.Zero(t, masked[at])
			} else {
				require.Equal(t, math.Float32bits(full[at]), math.Float32bits(masked[at]))
			}
			at++
		}
	}
}

// The reference policy is the model without its adapter.
func TestReferenceIsTheBase(t *testing.T) {
	p := newPolicy(t, 2, model.KeepAll)
	batch := sampleBatch([]int{9, 17}, 2)
	ref, err := p.ScoreReference(batch)
	require.NoError(t, err)
	with, _, err := p.Score(batch)
	require.NoError(t, err)
	require.NotEqual(t, bitsOf(ref), bitsOf(with))
	ad := p.Adapter
	p.Adapter = nil
	base, _, err := p.Score(batch)
	require.NoError(t, err)
	p.Adapter = ad
	require.Equal(t, bitsOf(base), bitsOf(ref))
}

func TestSizeOfIsEnough(t *testing.T) {
	for _, n := range []int{1, 15, 16, 17, 40} {
		for _, siblings := range []int{1, 2, 5} {
			batch := sampleBatch([]int{n, n + 1}, siblings)
			p := newPolicy(t, 1, model.KeepNone)
			size := SizeOf(batch)
			size.Keep, size.Threads = model.KeepNone, 8
			p.Pool = freshPages{size.Pages}
			require.NoError(t, p.Allocate(size))
			_, _, err := p.Score(batch)
			require.NoError(t, err)
			require.Equal(t, size.Rows, p.batch.N())
		}
	}
}

func TestRolloutsAreChecked(t *testing.T) {
	p := newPolicy(t, 1, model.KeepNone)
	for _, r := range []Rollout{
		{Tokens: []int32{1, 2}, PromptLen: 0},
		{Tokens: []int32{1, 2}, PromptLen: 3},
		{Tokens: []int32{1, 2, 3}, PromptLen: 1, Mask: []float32{1}},
		{Tokens: []int32{1, 2, 3}, PromptLen: 1, LogP: []float32{0}},
	} {
		_, _, err := p.Score([]Rollout{r})
		require.Error(t, err)
	}
}
