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
	"graft/kernels/quant"
)

// lookBack is a few rows that look far back over scattered pages: what a split Attention is for.
type lookBack struct {
	heads, kv, dim  int
	window          int
	softcap         float32
	seqs, positions []int32

	noLSE bool
	page  int32 // not 0: a page number in place of the last one of the last table
}

func (c lookBack) attend(t *testing.T, b *Backend) (out, lse []float32) {
	l := kernelstest.NewLab(t, b, 7)
	n, last := len(c.seqs), slices.Max(c.positions)
	width, seqs := int(last)/kernels.PageSize+1, int(slices.Max(c.seqs))+1
	tables := make([]int32, seqs*width)
	for i, p := range rand.New(rand.NewPCG(5, 6)).Perm(len(tables)) {
		tables[i] = int32(p)
	}
	if c.page != 0 {
		tables[len(tables)-1] = c.page
	}
	size := c.kv * c.dim * kernels.PageSize
	kv := kernels.KV{K: l.Normal(len(tables), size, 1), V: l.Normal(len(tables), size, 1), Heads: c.kv, Dim: c.dim}
	a := &kernels.AttentionArgs{
		Out: l.Output(n, c.heads*c.dim), LSE: l.Output(n, c.heads), Q: l.Normal(n, c.heads*c.dim, 1), KV: kv,
		Tables: l.Ints(seqs, width, tables), Seq: l.Ints(1, n, c.seqs), Positions: l.Ints(1, n, c.positions),
		Heads: c.heads, Scale: 0.2, Window: c.window, Softcap: c.softcap,
	}
	if c.noLSE {
		a.LSE = kernels.Tensor{}
	}
	b.Attention(a)
	require.NoError(t, b.Sync())
	l.Check()
	if !c.noLSE {
		lse = l.Read(a.LSE)
	}
	return l.Read(a.Out), lse
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

// A split Attention shares its room with rounded rows, may be asked for no log-sum-exp, and lets nobody
// wait for ever when its first pass panics.
func TestSplitAttentionBesideOthers(t *testing.T) {
	b := New(Options{Threads: 3})
	defer func() { require.NoError(t, b.Close()) }()
	c := lookBack{heads: 9, kv: 3, dim: 64, seqs: []int32{0, 1}, positions: []int32{1006, 1005}}
	out, lse := c.attend(t, b)

	product := func(b *Backend) []float32 {
		l := kernelstest.NewLab(t, b, 3)
		x, w, y := l.Normal(40, 512, 1), l.Weight(quant.Q4_0, 48, 512, 0.1), l.Output(40, 48)
		w.Precision = kernels.PrecisionInt8
		b.MatMul(x, []kernels.Product{{Y: y, W: w}})
		require.NoError(t, b.Sync())
		return l.Read(y)
	}
	other := New(Options{Threads: 1})
	defer func() { require.NoError(t, other.Close()) }()
	require.Equal(t, product(other), product(b), "after a split Attention")
	gotOut, gotLSE := c.attend(t, b)
	require.Equal(t, out, gotOut, "after a product")
	require.Equal(t, lse, gotLSE, "after a product")

	c.noLSE = true
	gotOut, _ = c.attend(t, b)
	require.Equal(t, out, gotOut, "without a log-sum-exp")

	c.page = 1 << 20
	require.Panics(t, func() { c.attend(t, b) }, "there is no such page")
	require.NotZero(t, b.jobs.split.first, "the case is not split")
	c.page, c.noLSE = 0, false
	gotOut, _ = c.attend(t, b)
	require.Equal(t, out, gotOut, "after a panic")
}
