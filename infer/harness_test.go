package infer

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/infer/paged"
	"graft/kernels"
	"graft/kernels/cpu"
	"graft/kernels/rng"
	"graft/model"
	"graft/model/tokenizer"
	"graft/weights"
)

// lab is a small model with two adapters that change it visibly.
type lab struct {
	m    *model.Model
	a, b *weights.Adapter
}

func newLab(t testing.TB, name string, threads int) *lab {
	t.Helper()
	be := cpu.New(cpu.Options{Threads: threads})
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	files, err := model.Open(filepath.Join("..", "tests", "testdata", "golden-hf", "models", name), model.Options{Context: 128})
	require.NoError(t, err)
	defer files.Close()
	arena := weights.NewArena(kernels.Checked(be), 0)
	t.Cleanup(arena.Close)
	m, err := files.Load(arena)
	require.NoError(t, err)
	l := &lab{m: m}
	l.a, l.b = l.adapter(t, 1, 4), l.adapter(t, 2, 20)
	return l
}

func (l *lab) adapter(t testing.TB, id uint64, rank int) *weights.Adapter {
	t.Helper()
	ad, err := l.m.NewAdapter(id, weights.AdapterConfig{R: rank, Alpha: float64(2 * rank), TargetModules: []string{"all-linear"}}, id, false)
	require.NoError(t, err)
	l.shake(ad, id)
	return ad
}

// shake makes every B of an adapter random.
func (l *lab) shake(ad *weights.Adapter, seed uint64) {
	src := rng.New(seed, "test")
	for i, p := range ad.Pairs() {
		raw := make([]byte, p.B.Out*p.B.In*4)
		for j := range p.B.Out * p.B.In {
			u := float32(src.Uniform(uint32(i), uint32(j), 0, 0)-0.5) * 0.5
			b := math.Float32bits(u)
			raw[4*j], raw[4*j+1], raw[4*j+2], raw[4*j+3] = byte(b), byte(b>>8), byte(b>>16), byte(b>>24)
		}
		l.m.Backend().Pack(p.B, 0, raw)
	}
}

func (l *lab) options(o Options) Options {
	if o.RankCols == 0 {
		o.RankCols = max(l.a.MaxCols(), l.b.MaxCols())
	}
	return o
}

// engine runs until the test ends; then its pool must be clean.
func (l *lab) engine(t testing.TB, tok *tokenizer.Tokenizer, o Options) *Engine {
	t.Helper()
	e, err := New(l.m, tok, l.options(o))
	require.NoError(t, err)
	t.Cleanup(func() {
		idle(t, e)
		require.NoError(t, e.Close())
	})
	return e
}

// idle checks that nothing runs and no page is in use.
func idle(t testing.TB, e *Engine) {
	t.Helper()
	err := e.Exclusive(context.Background(), func() error {
		if n := len(e.requests) + len(e.sched.Running()) + len(e.sched.Waiting()) + e.pool.Used(); n != 0 {
			return fmt.Errorf("%d requests, %d running, %d waiting, %d pages used", len(e.requests), len(e.sched.Running()), len(e.sched.Waiting()), e.pool.Used())
		}
		return e.sched.Check()
	})
	require.NoError(t, err)
}

// naive scores a whole sequence in one forward that keeps activations, as training does.
func (l *lab) naive(t testing.TB, ad *weights.Adapter, ids []int32, invT float32) (next, entropy []float32, top []kernels.TokenLogP) {
	t.Helper()
	m, n := l.m, len(ids)
	pages := paged.PagesFor(n)
	kv, err := model.NewPages(m.Arena, &m.Config, pages)
	require.NoError(t, err)
	defer kv.Free(m.Arena)
	acts, err := model.NewActs(m.Arena, &m.Config, model.ActsSize{Rows: n, Pages: pages, RankCols: 32, Keep: model.KeepAll})
	require.NoError(t, err)
	defer acts.Free()
	head, err := model.NewHeadActs(m.Arena, &m.Config, model.HeadSize{BatchRows: n, Rows: n, Pairs: n, Threads: 4})
	require.NoError(t, err)
	defer head.Free()
	var buf model.BatchBuffer
	defer buf.Free(m.Backend())
	buf.Reset(pages)
	table := make([]int32, pages)
	for i := range table {
		table[i] = int32(pages - 1 - i)
	}
	seq := buf.Sequence(table)
	var s model.Scored
	for i, id := range ids {
		row := buf.Row(id, int32(i), seq)
		s.Rows, s.InvT = append(s.Rows, row), append(s.InvT, invT)
		if i+1 < n {
			s.PairRows, s.Targets = append(s.PairRows, row), append(s.Targets, ids[i+1])
		}
	}
	b, err := buf.Batch(m.Backend(), ad)
	require.NoError(t, err)
	hidden := m.Forward(&b, kv, acts)
	next, entropy = make([]float32, n-1), make([]float32, n)
	require.NoError(t, m.LogProbs(head, hidden, &s, next, entropy))
	logits := kernels.NewHost(kernels.F32, 1, (m.Config.Vocab+15)&^15)
	args := kernels.SampleArgs{Hidden: hidden.Slice(n-1, n), W: m.Head.W, Softcap: m.Config.FinalSoftcap, Logits: logits,
		Rows: []kernels.SampleRow{{InvT: invT, Greedy: true, TopP: 1, NumTop: 5}}, Out: make([]kernels.Sampled, 1)}
	m.Backend().Sample(&args)
	require.NoError(t, m.Backend().Sync())
	return next, entropy, args.Out[0].Top
}

// prompt is random tokens; equal seeds share their beginnings.
func prompt(seed uint64, n int) []int32 {
	out := make([]int32, n)
	src := rng.New(seed, "prompt")
	for i := range out {
		out[i] = int32(src.Below(300, uint32(i), 0, 0))
	}
	return out
}

func bits(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}
