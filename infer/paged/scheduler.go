package paged

import (
	"fmt"
	"slices"
)

// Limits bound one step.
type Limits struct {
	Tokens      int  // rows of one step
	Sequences   int  // sequences that run at once
	PrefixCache bool // look prompts up in the cache
}

// Item is what a plan computes of one sequence: N tokens from position From. Sample: they are the
// last ones known, so the next token can be drawn. Forks: waiting siblings that begin here; their
// tables share the prompt's full pages, and the rows from position Tail on must be written to
// their own last page too; each draws its own token from the same row.
type Item struct {
	Seq    *Sequence
	From   int
	N      int
	Sample bool
	Forks  []*Sequence
	Tail   int
}

// Plan is one step. It is valid until the next call of Next.
type Plan struct {
	Items  []Item
	Tokens int // rows of all items
}

// Counts are the scheduler's totals.
type Counts struct {
	Queries     uint64 // prompt tokens looked up
	Hits        uint64 // of these found
	Forked      uint64 // sequences that began with a sibling's pages
	Preemptions uint64
}

// Scheduler decides what every step computes. Sequences that decode go first, then prompts under
// way, chunk by chunk, then new ones as long as tokens and pages last. When pages run out, the newest
// running sequence gives its pages back and returns to the queue, to be computed again from its
// tokens: the oldest always moves on.
type Scheduler struct {
	pool    *Pool
	limits  Limits
	waiting []*Sequence // in order of service
	running []*Sequence // in order of service
	plan    Plan
	lastID  uint64
	counts  Counts
}

// NewScheduler makes a scheduler over a pool. It becomes the pool's Reclaim.
func NewScheduler(p *Pool, l Limits) *Scheduler {
	if l.Tokens < 1 || l.Sequences < 1 || l.Sequences > l.Tokens {
		panic(fmt.Sprintf("paged: %d tokens a step for %d sequences", l.Tokens, l.Sequences))
	}
	s := &Scheduler{pool: p, limits: l}
	p.Reclaim = s.reclaim
	return s
}

// Add queues a sequence. It must fit into the pool when complete; the caller checks that.
func (c *Scheduler) Add(s *Sequence) {
	c.lastID++
	s.ID = c.lastID
	c.enqueue(s)
}

func (c *Scheduler) enqueue(s *Sequence) {
	s.state = waiting
	c.waiting = insert(c.waiting, s)
}

func insert(list []*Sequence, s *Sequence) []*Sequence {
	i := len(list)
	for i > 0 && s.before(list[i-1]) {
		i--
	}
	return slices.Insert(list, i, s)
}

func without(list []*Sequence, s *Sequence) []*Sequence {
	if i := slices.Index(list, s); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// Finish ends a sequence in whatever state it is; its pages go back. Cached ones stay readable.
func (c *Scheduler) Finish(s *Sequence) {
	switch s.state {
	case waiting:
		c.waiting = without(c.waiting, s)
	case running:
		c.running = without(c.running, s)
	}
	c.drop(s)
	s.state = finished
}

func (c *Scheduler) drop(s *Sequence) {
	c.pool.release(s.Table)
	s.Table, s.Computed, s.chained = s.Table[:0], 0, 0
}

// Waiting and Running list the queues; they are the scheduler's own, to be read only.
func (c *Scheduler) Waiting() []*Sequence { return c.waiting }

// Running lists the sequences that hold pages.
func (c *Scheduler) Running() []*Sequence { return c.running }

// Counts are the totals so far.
func (c *Scheduler) Counts() Counts { return c.counts }

// Next plans a step. An empty plan while sequences wait means that pages are missing which none of
// them holds.
func (c *Scheduler) Next() *Plan {
	for i := range c.plan.Items {
		c.plan.Items[i].Seq.planned = false
		c.plan.Items[i].Seq = nil
		clear(c.plan.Items[i].Forks)
		c.plan.Items[i].Forks = c.plan.Items[i].Forks[:0]
	}
	c.plan.Items, c.plan.Tokens = c.plan.Items[:0], 0
	c.advance(true)
	c.advance(false)
	c.admit()
	return &c.plan
}

// advance plans running sequences: those that decode, or those still in their prompt.
func (c *Scheduler) advance(decode bool) {
	for i := 0; i < len(c.running); {
		s := c.running[i]
		if s.planned || (s.missing() == 1) != decode {
			i++
			continue
		}
		n := c.chunk(s)
		if n == 0 {
			return
		}
		if !c.room(s, s.Computed+n) {
			return // s itself was preempted, and it was the newest
		}
		c.add(s, n)
		i = slices.Index(c.running, s) + 1
	}
}

// chunk is how many tokens of s this step computes. A group's last, partial page stays in one chunk
// where the step has room for it, since its rows are written for every sibling.
func (c *Scheduler) chunk(s *Sequence) int {
	n := min(s.missing(), c.limits.Tokens-c.plan.Tokens)
	if tail := s.PromptLen / PageSize * PageSize; s.Group != nil && s.Computed < tail && tail < s.Computed+n && n < s.missing() {
		n = tail - s.Computed
	}
	return n
}

// room makes s's table long enough for that many tokens, preempting the newest if need be. It
// returns false when that was s.
func (c *Scheduler) room(s *Sequence, tokens int) bool {
	need := PagesFor(tokens) - len(s.Table)
	for need > c.pool.Available() {
		victim := c.running[len(c.running)-1]
		c.preempt(victim)
		if victim == s {
			return false
		}
	}
	c.grow(s, need)
	return true
}

func (c *Scheduler) grow(s *Sequence, need int) {
	for range need {
		s.Table = append(s.Table, c.pool.get())
	}
}

// preempt takes a running sequence's pages and puts it back in the queue.
func (c *Scheduler) preempt(s *Sequence) {
	if s.planned {
		c.unplan(s)
	}
	c.running = without(c.running, s)
	c.drop(s)
	c.enqueue(s)
	c.counts.Preemptions++
}

// unplan takes s out of the plan. Siblings that were to begin with its pages go back to the queue.
func (c *Scheduler) unplan(s *Sequence) {
	s.planned = false
	for i := range c.plan.Items {
		it := &c.plan.Items[i]
		if it.Seq == s {
			for _, m := range it.Forks {
				m.planned = false
				c.preempt(m)
			}
			c.plan.Tokens -= it.N
			c.plan.Items = slices.Delete(c.plan.Items, i, i+1)
			return
		}
		if slices.Contains(it.Forks, s) {
			it.Forks = without(it.Forks, s)
			return
		}
	}
}

// reclaim preempts until n pages are available or nobody holds any.
func (c *Scheduler) reclaim(n int) {
	for len(c.running) > 0 && c.pool.Available() < n {
		c.preempt(c.running[len(c.running)-1])
	}
}

// add plans n tokens of s, which has the pages for them.
func (c *Scheduler) add(s *Sequence, n int) {
	if len(c.plan.Items) < cap(c.plan.Items) { // keep the Forks of a slot for reuse
		c.plan.Items = c.plan.Items[:len(c.plan.Items)+1]
	} else {
		c.plan.Items = append(c.plan.Items, Item{})
	}
	it := &c.plan.Items[len(c.plan.Items)-1]
	*it = Item{Seq: s, From: s.Computed, N: n, Sample: n == s.missing(), Forks: it.Forks[:0]}
	s.planned = true
	c.plan.Tokens += n
	if it.Sample && s.Group != nil && len(s.Tokens) == s.PromptLen {
		c.fork(it)
	}
}

// admit begins waiting sequences.
func (c *Scheduler) admit() {
	for i := 0; i < len(c.waiting) && len(c.running) < c.limits.Sequences && c.plan.Tokens < c.limits.Tokens; {
		s := c.waiting[i]
		if s.led() {
			i++
			continue
		}
		if !c.begin(s) {
			return
		}
		i = 0 // the queue has changed: forks left it
	}
}

// begin moves s to the running if there are pages for all of it and, unless it is alone, one to
// spare.
func (c *Scheduler) begin(s *Sequence) bool {
	hit := c.match(s)
	spare := 0
	if len(c.running) > 0 {
		spare = 1
	}
	if need := PagesFor(len(s.Tokens)) - len(s.Table); need+spare > c.pool.Available() {
		c.drop(s)
		return false
	}
	if c.limits.PrefixCache && !s.NoCache {
		c.counts.Queries += uint64(len(s.Tokens))
		c.counts.Hits += uint64(hit)
	}
	c.start(s, min(hit, s.PromptLen))
	n := c.chunk(s)
	c.grow(s, PagesFor(s.Computed+n)-len(s.Table))
	c.add(s, n)
	return true
}

func (c *Scheduler) start(s *Sequence, hit int) {
	if !s.began {
		s.began, s.Hit = true, hit
	}
	c.waiting = without(c.waiting, s)
	s.state = running
	c.running = insert(c.running, s)
}

// match fills s's table with cached pages and returns how many tokens they hold. The last token is
// always computed: its hidden state is wanted.
func (c *Scheduler) match(s *Sequence) int {
	s.chain = s.Space.root()
	if !c.limits.PrefixCache || s.NoCache {
		return 0
	}
	for s.chained < (len(s.Tokens)-1)/PageSize {
		d := s.chain.next(s.Tokens[s.chained*PageSize:])
		id, ok := c.pool.lookup(d)
		if !ok {
			break
		}
		s.Table = append(s.Table, id)
		s.chain = d
		s.chained++
	}
	s.Computed = s.chained * PageSize
	return s.Computed
}

// fork lets waiting siblings begin with the pages of an item that completes their prompt. Those for
// which there is no page or place stay in the queue and are computed on their own.
func (c *Scheduler) fork(it *Item) {
	s := it.Seq
	full := s.PromptLen / PageSize
	it.Tail = full * PageSize
	partial := s.PromptLen > it.Tail
	if partial && it.From > it.Tail {
		return // rows of the partial page were computed in an earlier step
	}
	for _, m := range s.Group.Members {
		if m.state != waiting || len(m.Tokens) != m.PromptLen || len(c.running) >= c.limits.Sequences {
			continue
		}
		if partial && c.pool.Available() < 2 {
			return
		}
		for _, id := range s.Table[:full] {
			c.pool.share(id)
		}
		m.Table = append(m.Table[:0], s.Table[:full]...)
		if partial {
			m.Table = append(m.Table, c.pool.get())
		}
		c.start(m, m.PromptLen)
		m.planned = true
		it.Forks = append(it.Forks, m)
		c.counts.Forked++
	}
}

// Commit records that a plan was computed: pages that became full can be found from now on.
func (c *Scheduler) Commit(p *Plan) {
	for i := range p.Items {
		it := &p.Items[i]
		it.Seq.planned = false
		c.computed(it.Seq, it.From+it.N)
		for _, m := range it.Forks {
			m.planned = false
			m.Computed, m.chained, m.chain = it.Seq.Computed, it.Seq.chained, it.Seq.chain
		}
	}
}

func (c *Scheduler) computed(s *Sequence, n int) {
	s.Computed = n
	if !c.limits.PrefixCache {
		return
	}
	for s.chained < n/PageSize {
		s.chain = s.chain.next(s.Tokens[s.chained*PageSize:])
		c.pool.remember(s.Table[s.chained], s.chain, s.Space.Adapter)
		s.chained++
	}
}

// Check verifies the pool's invariants and that its references are exactly the table entries of the
// running sequences and the pages taken.
func (c *Scheduler) Check() error {
	if err := c.pool.Check(); err != nil {
		return err
	}
	refs := make([]int32, c.pool.Total())
	for _, s := range c.running {
		if s.state != running || len(s.Table) < PagesFor(s.Computed) {
			return fmt.Errorf("paged: sequence %d runs in state %d with %d pages for %d tokens", s.ID, s.state, len(s.Table), s.Computed)
		}
		for _, id := range s.Table {
			refs[id]++
		}
	}
	for _, s := range c.waiting {
		if s.state != waiting || len(s.Table) > 0 {
			return fmt.Errorf("paged: sequence %d waits in state %d with %d pages", s.ID, s.state, len(s.Table))
		}
	}
	for id, n := range refs {
		g := c.pool.pages[id]
		if g.taken {
			n++
		}
		if g.refs != n {
			return fmt.Errorf("paged: page %d has %d references, tables hold %d", id, g.refs, n)
		}
	}
	return nil
}
