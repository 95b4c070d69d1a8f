package paged

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPoolHandsOutTheOldestLast: free pages first, then cached ones, the least recently used first.
func TestPoolOrder(t *testing.T) {
	p := NewPool(4)
	var d [4]digest
	var ids []int32
	for i := range d {
		d[i] = Space{Version: uint64(i)}.root()
		ids = append(ids, p.get())
	}
	require.Equal(t, []int32{0, 1, 2, 3}, ids)
	p.remember(0, d[0], 0)
	p.remember(1, d[1], 0)
	p.remember(2, d[2], 0)
	p.release(ids) // 3 is free; 2, 1, 0 are cached in this order
	require.NoError(t, p.Check())
	id, ok := p.lookup(d[2])
	require.True(t, ok)
	p.put(id) // used last
	for _, want := range []int32{3, 1, 0, 2} {
		assert.Equal(t, want, p.get())
	}
	for i := range d {
		_, ok := p.lookup(d[i])
		assert.False(t, ok, "what was handed out caches nothing")
	}
	require.NoError(t, p.Check())
	assert.Zero(t, p.Available())
}

func TestTakeAndGive(t *testing.T) {
	p := NewPool(5)
	a, err := p.Take(3)
	require.NoError(t, err)
	_, err = p.Take(3)
	require.ErrorContains(t, err, "5 and 3 of them are taken")
	_, err = p.Take(-1)
	require.Error(t, err)
	require.NoError(t, p.Check())
	none, err := p.Take(0)
	require.NoError(t, err)
	p.Give(none)
	p.Give(a)
	assert.Equal(t, 5, p.Available())
	require.NoError(t, p.Check())
	require.Panics(t, func() { p.Give(a[:1]) })
	held := p.get()
	require.Panics(t, func() { p.Give([]int32{held}) })
	_, err = p.Take(5)
	require.ErrorContains(t, err, "only 4 are not in use")
}

func TestForget(t *testing.T) {
	p := NewPool(6)
	d := func(i uint64) digest { return Space{Version: i}.root() }
	for i := range 4 {
		p.remember(p.get(), d(uint64(i)), uint64(i%2))
	}
	p.release([]int32{0, 1, 2}) // 3, of adapter 1, stays in use
	p.Forget(1)
	require.NoError(t, p.Check())
	assert.Equal(t, 2, p.Cached())
	id, ok := p.lookup(d(2))
	require.True(t, ok)
	p.put(id)
	_, ok = p.lookup(d(3))
	require.False(t, ok)
	p.ForgetAll()
	require.NoError(t, p.Check())
	assert.Zero(t, p.Cached())
	assert.Equal(t, 5, p.Available())
}

// TestDigestsDiffer wherever anything differs, and however it is spelled.
func TestDigestsDiffer(t *testing.T) {
	page := make([]int32, PageSize)
	other := append([]int32{}, page...)
	other[PageSize-1] = 1 << 24
	seen := map[digest]int{}
	for i, d := range []digest{
		Space{}.root(), Space{Base: 1}.root(), Space{BaseEpoch: 1}.root(), Space{Adapter: 1}.root(), Space{Version: 1}.root(),
		Space{Epoch: 1}.root(), Space{Salt: "\x01"}.root(), Space{Salt: "\x01\x00"}.root(), Space{Salt: "a"}.root(),
		Space{}.root().next(page), Space{}.root().next(other), Space{Version: 1}.root().next(page),
		Space{}.root().next(page).next(page), Space{}.root().next(page).next(other), Space{}.root().next(other).next(page),
	} {
		before, ok := seen[d]
		assert.False(t, ok, "%d and %d", before, i)
		seen[d] = i
	}
}

// TestCheckSeesDamage: every invariant that Check names can fail.
func TestCheckSeesDamage(t *testing.T) {
	for name, damage := range map[string]func(p *Pool){
		"lost":     func(p *Pool) { p.unlink(2); p.idle++ },
		"count":    func(p *Pool) { p.idle-- },
		"refs":     func(p *Pool) { p.pages[0].refs = 0 },
		"free":     func(p *Pool) { p.pages[2].refs = 1 },
		"negative": func(p *Pool) { p.pages[0].refs = -1 },
		"hash":     func(p *Pool) { delete(p.prefixes, p.pages[1].hash) },
		"prefix":   func(p *Pool) { p.prefixes[Space{Salt: "x"}.root()] = 3 },
		"taken":    func(p *Pool) { p.taken++ },
		"loop":     func(p *Pool) { p.pages[3].next = p.pages[3].prev },
	} {
		p := NewPool(5)
		p.get()
		p.remember(p.get(), Space{}.root(), 0)
		require.NoError(t, p.Check())
		damage(p)
		assert.Error(t, p.Check(), name)
	}
}

// world runs a scheduler against what must be true of every plan.
type world struct {
	t        *testing.T
	c        *Scheduler
	draw     *rand.Rand
	live     []*Sequence
	goal     map[*Sequence]int
	contents map[*Sequence][]uint64
	written  map[int32]uint64 // by slot
	ended    int
}

func (w *world) below(n int) int { return w.draw.IntN(n) }

// content stands for the keys and values of position pos: they depend on everything before, and on
// the space.
func (w *world) content(s *Sequence, pos int) uint64 {
	h := w.contents[s]
	for i := len(h); i <= pos; i++ {
		before := s.Space.Version
		if i > 0 {
			before = h[i-1]
		}
		h = append(h, (before^uint64(s.Tokens[i]+1))*0x9E3779B97F4A7C15+uint64(i))
	}
	w.contents[s] = h
	return h[pos]
}

func slot(s *Sequence, pos int) int32 { return s.Table[pos/PageSize]*PageSize + int32(pos%PageSize) }

// step plans, "computes" and commits, checking that every row finds the right content at all its
// positions and overwrites nobody's.
func (w *world) step() {
	plan := w.c.Next()
	require.NoError(w.t, w.c.Check())
	require.LessOrEqual(w.t, plan.Tokens, w.c.limits.Tokens)
	require.LessOrEqual(w.t, len(w.c.Running()), w.c.limits.Sequences)
	if len(w.live) > 0 {
		require.NotEmpty(w.t, plan.Items, "somebody always moves on")
	}
	rows := 0
	for _, it := range plan.Items {
		rows += it.N
		require.Positive(w.t, it.N)
		for pos := it.From; pos < it.From+it.N; pos++ {
			w.written[slot(it.Seq, pos)] = w.content(it.Seq, pos)
			for _, m := range it.Forks {
				if pos >= it.Tail {
					w.written[slot(m, pos)] = w.content(m, pos)
				}
			}
		}
	}
	require.Equal(w.t, plan.Tokens, rows)
	for _, it := range plan.Items {
		for _, s := range append([]*Sequence{it.Seq}, it.Forks...) {
			for pos := range it.From + it.N {
				if w.content(s, pos) != w.written[slot(s, pos)] {
					w.t.Fatalf("sequence %d reads something else at position %d", s.ID, pos)
				}
			}
		}
	}
	w.c.Commit(plan)
	for _, it := range plan.Items {
		if it.Sample {
			for _, s := range append([]*Sequence{it.Seq}, it.Forks...) {
				w.sampled(s)
			}
		}
	}
	require.NoError(w.t, w.c.Check())
}

func (w *world) sampled(s *Sequence) {
	require.Equal(w.t, len(s.Tokens), s.Computed)
	s.Tokens = append(s.Tokens, int32(w.below(3)))
	if len(s.Tokens) == w.goal[s] {
		w.finish(s)
	}
}

func (w *world) finish(s *Sequence) {
	w.c.Finish(s)
	w.live = without(w.live, s)
	w.ended++
}

func (w *world) submit(pages int) {
	n := 1 + w.below(3*PageSize)
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(w.below(40) / 39) // few different prompts
	}
	space := Space{Version: uint64(w.below(2))}
	siblings := 1 + w.below(4)
	var g *Group
	if siblings > 1 {
		g = &Group{}
	}
	for range siblings {
		s := &Sequence{Tokens: append([]int32{}, tokens...), PromptLen: n, Space: space, Priority: w.below(2), NoCache: w.below(8) == 0, Group: g}
		if g != nil {
			s.NoCache = false
			g.Members = append(g.Members, s)
		}
		w.goal[s] = min(n+1+w.below(2*PageSize), pages*PageSize+1)
		w.live = append(w.live, s)
		w.c.Add(s)
	}
}

// TestSchedulerInAnyWeather: random requests, cancellations, changes of versions and pages taken,
// over small and large pools and steps. Everyone ends, nothing leaks, and every row reads what it
// should.
func TestSchedulerInAnyWeather(t *testing.T) {
	var total Counts
	for trial := range 24 {
		pages := 5 + trial%4*6
		limits := Limits{Tokens: 1 + trial*7%40, PrefixCache: trial%3 != 0}
		limits.Sequences = 1 + trial*5%limits.Tokens
		pool := NewPool(pages)
		w := &world{t: t, c: NewScheduler(pool, limits), draw: rand.New(rand.NewPCG(1, uint64(trial))), goal: map[*Sequence]int{}, written: map[int32]uint64{}, contents: map[*Sequence][]uint64{}}
		for round := 0; round < 80 || len(w.live) > 0; round++ {
			require.Less(t, round, 20000, "they do not end")
			if round < 80 {
				switch w.below(10) {
				case 0, 1:
					w.submit(pages)
				case 2:
					if len(w.live) > 0 {
						w.finish(w.live[w.below(len(w.live))])
					}
				case 3:
					taken, err := pool.Take(w.below(pages + 1))
					require.NoError(t, err)
					require.NoError(t, w.c.Check())
					pool.Give(taken)
				case 4:
					pool.Forget(0)
				}
			}
			w.step()
		}
		require.Equal(t, pages, pool.Available())
		require.NoError(t, w.c.Check())
		c := w.c.Counts()
		total.Queries += c.Queries
		total.Hits += c.Hits
		total.Forked += c.Forked
		total.Preemptions += c.Preemptions
	}
	assert.Positive(t, total.Hits)
	assert.Positive(t, total.Forked)
	assert.Positive(t, total.Preemptions)
	t.Logf("%+v", total)
}
