package golden

import (
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/model"
	"graft/weights"
)

// score runs one sequence alone and returns the log-prob of every next token and the entropy at
// every position.
func score(t testing.TB, m *model.Model, ad *weights.Adapter, ids []int32) (next, entropy []float32) {
	t.Helper()
	n := len(ids)
	pages := (n + kernels.PageSize - 1) / kernels.PageSize
	kv, err := model.NewPages(m.Arena, &m.Config, pages)
	require.NoError(t, err)
	defer kv.Free(m.Arena)
	acts, err := model.NewActs(m.Arena, &m.Config, model.ActsSize{Rows: n, RankCols: ad.MaxCols()})
	require.NoError(t, err)
	defer acts.Free()
	head, err := model.NewHeadActs(m.Arena, &m.Config, model.HeadSize{Rows: n, Pairs: n, Threads: 8})
	require.NoError(t, err)
	defer head.Free()

	var buf model.BatchBuffer
	defer buf.Free(m.Backend())
	buf.Reset(pages)
	table := make([]int32, pages)
	for i := range table {
		table[i] = int32(pages - 1 - i) // any order of pages will do
	}
	seq := buf.Sequence(table)
	s := model.Scored{}
	for i, id := range ids {
		row := buf.Row(id, int32(i), seq)
		s.Rows, s.InvT = append(s.Rows, row), append(s.InvT, 1)
		if i+1 < n {
			s.PairRows, s.Targets = append(s.PairRows, row), append(s.Targets, ids[i+1])
		}
	}
	b, err := buf.Batch(m.Backend(), ad)
	require.NoError(t, err)
	hidden := m.Forward(&b, kv, acts)
	next, entropy = make([]float32, n-1), make([]float32, n)
	require.NoError(t, m.LogProbs(head, hidden, &s, next, entropy))
	return next, entropy
}

// greedy continues ids by its most probable token, the whole sequence computed anew each time.
func greedy(t testing.TB, m *model.Model, ad *weights.Adapter, ids []int32, count int) []int32 {
	ids = append([]int32{}, ids...)
	start := len(ids)
	for range count {
		ids = append(ids, topOf(t, m, ad, ids, 1)[0].ID)
	}
	return ids[start:]
}

// topOf gives the k most probable next tokens.
func topOf(t testing.TB, m *model.Model, ad *weights.Adapter, ids []int32, k int) []kernels.TokenLogP {
	t.Helper()
	n := len(ids)
	pages := (n + kernels.PageSize - 1) / kernels.PageSize
	kv, err := model.NewPages(m.Arena, &m.Config, pages)
	require.NoError(t, err)
	defer kv.Free(m.Arena)
	acts, err := model.NewActs(m.Arena, &m.Config, model.ActsSize{Rows: n, RankCols: ad.MaxCols()})
	require.NoError(t, err)
	defer acts.Free()
	logits, err := m.Arena.Tensor("logits", kernels.F32, 1, (m.Config.Vocab+15)&^15)
	require.NoError(t, err)
	defer m.Arena.Free(logits.Mem)

	var buf model.BatchBuffer
	defer buf.Free(m.Backend())
	buf.Reset(pages)
	table := make([]int32, pages)
	for i := range table {
		table[i] = int32(i)
	}
	seq := buf.Sequence(table)
	for i, id := range ids {
		buf.Row(id, int32(i), seq)
	}
	b, err := buf.Batch(m.Backend(), ad)
	require.NoError(t, err)
	hidden := m.Forward(&b, kv, acts)
	args := kernels.SampleArgs{Hidden: hidden.Slice(n-1, n), W: m.Head.W, Softcap: m.Config.FinalSoftcap, Logits: logits,
		Rows: []kernels.SampleRow{{InvT: 1, Greedy: true, TopP: 1, NumTop: k}}, Out: make([]kernels.Sampled, 1)}
	m.Backend().Sample(&args)
	require.NoError(t, m.Backend().Sync())
	return args.Out[0].Top
}
