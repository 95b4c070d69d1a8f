package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/kernelstest"
)

// lookBack is a few rows that look far back over scattered pages: what a split Attention is for.
type lookBack struct {
	heads, kv, dim  int
	window          int
	softcap         float32
	seqs, positions []int32
}

func (c lookBack) attend(t *testing.T, b *Backend) (out, lse []float32) {
	l := kernelstest.NewLab(t, b, 7)
	n, last := len(c.seqs), slices.Max(c.positions)
	width, seqs := int(last)/kernels.PageSize+1, int(slices.Max(c.seqs))+1
	tables := make([]int32, seqs*width)
	for i, p := range rand.New(rand.NewPCG(5, 6)).Perm(len(tables)) {
		tables[i] = int32(p)
	}
	size := c.kv * c.dim * kernels.PageSize
	kv := kernels.KV{K: l.Normal(len(tables), size, 1), V: l.Normal(len(tables), size, 1), Heads: c.kv, Dim: c.dim}
	a := &kernels.AttentionArgs{
		Out: l.Output(n, c.heads*c.dim), LSE: l.Output(n, c.heads), Q: l.Normal(n, c.heads*c.dim, 1), KV: kv,
		Tables: l.Ints(seqs, width, tables), Seq: l.Ints(1, n, c.seqs), Positions: l.Ints(1, n, c.positions),
		Heads: c.heads, Scale: 0.2, Window: c.window, Softcap: c.softcap,
	}
	b.Attention(a)
	require.NoError(t, b.Sync())
	l.Check()
	return l.Read(a.Out), l.Read(a.LSE)
}

// However the positions and the elements of a head are shared out, a row gets the bits that one
// worker gives it in one pass.
func TestSplitAttentionHasTheSameBits(t *testing.T) {
	cases := []lookBack{
		{heads: 9, kv: 3, dim: 64, seqs: []int32{0}, positions: []int32{1006}},
		{heads: 9, kv: 3, dim: 64, seqs: []int32{0, 1}, positions: []int32{1006, 399}},
		{heads: 9, kv: 1, dim: 64, seqs: []int32{0, 0, 0}, positions: []int32{431, 432, 433}},
		{heads: 4, kv: 1, dim: 256, softcap: 5, seqs: []int32{0}, positions: []int32{700}},
		{heads: 14, kv: 2, dim: 64, window: 500, seqs: []int32{0, 1}, positions: []int32{777, 44}},
		{heads: 2, kv: 1, dim: 48, seqs: []int32{0}, positions: []int32{16*splitPages - 1}},
		{heads: 6, kv: 1, dim: 80, window: 401, seqs: []int32{0, 0}, positions: []int32{900, 901}},
		{heads: 3, kv: 1, dim: 16, seqs: []int32{0}, positions: []int32{500}},
		{heads: 5, kv: 1, dim: 32, window: 17 * splitPages, softcap: 3, seqs: []int32{0, 1}, positions: []int32{1200, 600}},
	}
	for i, c := range cases {
		one := New(Options{Threads: 1, Kernels: vec.For(vec.Generic)})
		out, lse := c.attend(t, one)
		require.Zero(t, one.jobs.split.first, "one worker has nothing to share out")
		require.NoError(t, one.Close())
		for _, isa := range vec.Supported() {
			for _, threads := range []int{2, 3, 8} {
				t.Run(fmt.Sprintf("%d %s x%d", i, isa, threads), func(t *testing.T) {
					b := New(Options{Threads: threads, Kernels: vec.For(isa)})
					defer func() { require.NoError(t, b.Close()) }()
					gotOut, gotLSE := c.attend(t, b)
					require.NotZero(t, b.jobs.split.first, "the case is not split")
					require.Equal(t, out, gotOut)
					require.Equal(t, lse, gotLSE)
				})
			}
		}
	}
}

// What one pass does as well stays in one pass.
func TestAttentionIsSplitOnlyWhereItPays(t *testing.T) {
	b := New(Options{Threads: 2})
	defer func() { require.NoError(t, b.Close()) }()
	for _, c := range []lookBack{
		{heads: 8, kv: 8, dim: 64, seqs: []int32{0}, positions: []int32{800}},                // enough kv heads
		{heads: 9, kv: 3, dim: 64, seqs: []int32{0}, positions: []int32{16*splitPages - 17}}, // near
		{heads: 3, kv: 3, dim: 24, seqs: []int32{0}, positions: []int32{800}},                // a head that is no whole vectors
	} {
		c.attend(t, b)
		require.Zero(t, b.jobs.split.first, "%+v", c)
	}
}
