package paged

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func numbers(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

func seq(n int) *Sequence { return &Sequence{Tokens: numbers(n), PromptLen: n} }

// row is an item's sequence and its span.
type row struct {
	id      uint64
	from, n int
	sample  bool
	forks   int
}

func rows(p *Plan) []row {
	var out []row
	for _, it := range p.Items {
		out = append(out, row{it.Seq.ID, it.From, it.N, it.Sample, len(it.Forks)})
	}
	return out
}

// TestOrderOfAStep by hand: who decodes comes first, then prompts in chunks, then new ones.
func TestOrderOfAStep(t *testing.T) {
	c := NewScheduler(NewPool(20), Limits{Tokens: 10, Sequences: 3, PrefixCache: true})
	a, b, d := seq(4), seq(30), seq(5)
	next := func() []row {
		p := c.Next()
		c.Commit(p)
		for _, it := range p.Items {
			if it.Sample {
				it.Seq.Tokens = append(it.Seq.Tokens, 7)
			}
		}
		require.NoError(t, c.Check())
		return rows(p)
	}
	c.Add(a)
	c.Add(b)
	c.Add(d)
	assert.Equal(t, []row{{1, 0, 4, true, 0}, {2, 0, 6, false, 0}}, next())
	assert.Equal(t, []row{{1, 4, 1, true, 0}, {2, 6, 9, false, 0}}, next())
	assert.Equal(t, []row{{1, 5, 1, true, 0}, {2, 15, 9, false, 0}}, next())
	assert.Equal(t, []row{{1, 6, 1, true, 0}, {2, 24, 6, true, 0}, {3, 0, 3, false, 0}}, next())
	assert.Equal(t, []row{{1, 7, 1, true, 0}, {2, 30, 1, true, 0}, {3, 3, 2, true, 0}}, next())
	urgent, late := seq(3), seq(2)
	urgent.Priority = -1
	c.Add(late)
	c.Add(urgent)
	assert.Len(t, next(), 3, "no place")
	c.Finish(a)
	assert.Equal(t, []row{{2, 32, 1, true, 0}, {3, 6, 1, true, 0}, {5, 0, 3, true, 0}}, next())
}

// TestWholePromptIsNeverServed from the cache: the last token is computed, so there is a row to
// sample from.
func TestWholePromptIsNeverServed(t *testing.T) {
	for n, want := range map[int]int{15: 0, 16: 0, 17: 16, 32: 16, 33: 32} {
		c := NewScheduler(NewPool(20), Limits{Tokens: 100, Sequences: 3, PrefixCache: true})
		for round := range 2 {
			s := seq(n)
			c.Add(s)
			p := c.Next()
			hit := round * want
			assert.Equal(t, []row{{uint64(round + 1), hit, n - hit, true, 0}}, rows(p))
			assert.Equal(t, hit, s.Hit)
			c.Commit(p)
			c.Finish(s)
			require.NoError(t, c.Check())
		}
	}
}

// TestOnlyComputedPagesAreFound: a sequence that ends before its plan is committed leaves nothing.
func TestOnlyComputedPagesAreFound(t *testing.T) {
	c := NewScheduler(NewPool(20), Limits{Tokens: 100, Sequences: 3, PrefixCache: true})
	s := seq(40)
	c.Add(s)
	c.Next()
	c.Finish(s)
	assert.Zero(t, c.pool.Cached())
	s = seq(40)
	c.Add(s)
	assert.Equal(t, []row{{2, 0, 40, true, 0}}, rows(c.Next()))
}

// TestForkByHand: siblings begin with the prompt's pages; only the partial one is their own.
func TestForkByHand(t *testing.T) {
	for _, n := range []int{3, 16, 20} {
		pool := NewPool(20)
		c := NewScheduler(pool, Limits{Tokens: 100, Sequences: 3})
		g := &Group{}
		for range 4 {
			s := seq(n)
			s.Group = g
			g.Members = append(g.Members, s)
			c.Add(s)
		}
		p := c.Next()
		assert.Equal(t, []row{{1, 0, n, true, 2}}, rows(p), "the fourth finds no place")
		assert.Equal(t, n/PageSize*PageSize, p.Items[0].Tail)
		c.Commit(p)
		require.NoError(t, c.Check())
		full, partial := n/PageSize, (n+PageSize-1)/PageSize-n/PageSize
		assert.Equal(t, full+3*partial, pool.Used())
		for _, s := range g.Members[:3] {
			s.Tokens = append(s.Tokens, 1)
		}
		assert.Equal(t, []row{{1, n, 1, true, 0}, {2, n, 1, true, 0}, {3, n, 1, true, 0}}, rows(c.Next()))
		for _, s := range g.Members {
			c.Finish(s)
		}
		require.NoError(t, c.Check())
		assert.Zero(t, pool.Used())
	}
}

// TestTheNewestIsPreempted and comes back before those who never ran, with all it had generated.
func TestTheNewestIsPreempted(t *testing.T) {
	pool := NewPool(3)
	c := NewScheduler(pool, Limits{Tokens: 64, Sequences: 4})
	a, b, late := seq(16), seq(14), seq(20)
	c.Add(a)
	c.Add(b)
	c.Add(late)
	step := func() []row {
		p := c.Next()
		c.Commit(p)
		for _, it := range p.Items {
			if it.Sample {
				it.Seq.Tokens = append(it.Seq.Tokens, 9)
			}
		}
		require.NoError(t, c.Check())
		return rows(p)
	}
	assert.Equal(t, []row{{1, 0, 16, true, 0}, {2, 0, 14, true, 0}}, step())
	assert.Equal(t, []row{{1, 16, 1, true, 0}, {2, 14, 1, true, 0}}, step())
	assert.Equal(t, []row{{1, 17, 1, true, 0}, {2, 15, 1, true, 0}}, step())
	assert.Equal(t, []row{{1, 18, 1, true, 0}}, step(), "b needs a second page")
	assert.Equal(t, []*Sequence{b, late}, c.Waiting())
	assert.Len(t, b.Tokens, 17)
	assert.EqualValues(t, 1, c.Counts().Preemptions)
	c.Finish(a)
	assert.Equal(t, []row{{2, 0, 17, true, 0}}, step())
}

// TestSiblingsWaitForTheLeader: nobody computes a prompt that a sibling is computing, and its last,
// partial page is not cut in two, so that all can begin with it.
func TestSiblingsWaitForTheLeader(t *testing.T) {
	c := NewScheduler(NewPool(20), Limits{Tokens: 50, Sequences: 4})
	g := &Group{}
	for range 3 {
		s := seq(56) // three pages and a half
		s.Group = g
		g.Members = append(g.Members, s)
		c.Add(s)
	}
	p := c.Next()
	assert.Equal(t, []row{{1, 0, 48, false, 0}}, rows(p))
	c.Commit(p)
	p = c.Next()
	assert.Equal(t, []row{{1, 48, 8, true, 2}}, rows(p))
	c.Commit(p)
	require.NoError(t, c.Check())
	assert.EqualValues(t, 2, c.Counts().Forked)
}

// TestALeaderThatLeaves hands the lead to the next sibling.
func TestALeaderThatLeaves(t *testing.T) {
	c := NewScheduler(NewPool(20), Limits{Tokens: 40, Sequences: 4})
	g := &Group{}
	for range 3 {
		s := seq(60)
		s.Group = g
		g.Members = append(g.Members, s)
		c.Add(s)
	}
	c.Commit(c.Next())
	c.Finish(g.Members[0])
	p := c.Next()
	assert.Equal(t, []row{{2, 0, 40, false, 0}}, rows(p))
	c.Commit(p)
	assert.Equal(t, []row{{2, 40, 20, true, 1}}, rows(c.Next()))
}
