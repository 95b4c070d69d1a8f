// Package paged is the bookkeeping of a paged cache of keys and values: which page belongs to whom
// (Pool), which pages hold a prefix that was computed before (prefix hashes), and whose turn it is
// (Scheduler).
//
// It knows integers only: token ids, page ids, counts. It may not know tensors, models, tokenizers
// or what a token means. The Pool owns the pages' reference counts and the prefix map, the
// Scheduler owns the queues; both belong to one goroutine at a time, the one that has the device.
package paged

import "fmt"

// PageSize is the number of token positions in a page.
const PageSize = 16

// PagesFor is the number of pages that hold that many tokens.
func PagesFor(tokens int) int { return (tokens + PageSize - 1) / PageSize }

// page is one page's state. Pages without references are linked into the free list.
type page struct {
	refs       int32
	prev, next int32 // free list; valid while refs is 0
	hashed     bool  // the prefix map leads here
	taken      bool  // by Take
	hash       digest
	space      uint64 // adapter of the prefix, for Forget
}

// Pool hands out pages. A page is free (it holds nothing), cached (nobody uses it, but a prefix hash
// leads to it) or used (it has references). Free and cached pages form one list in the order in
// which they will be handed out: free ones first, then the least recently used.
type Pool struct {
	pages    []page // one more than there are: the last is the list's sentinel
	prefixes map[digest]int32
	idle     int // pages in the list
	taken    int // pages out by Take

	// Reclaim, if set, is asked by Take to make room: it frees pages of those who can do without.
	Reclaim func(n int)
}

// NewPool makes a pool of n pages, with ids 0 to n−1.
func NewPool(n int) *Pool {
	if n < 1 {
		panic(fmt.Sprintf("paged: a pool of %d pages", n))
	}
	p := &Pool{pages: make([]page, n+1), prefixes: map[digest]int32{}}
	p.pages[n].prev, p.pages[n].next = int32(n), int32(n)
	for i := range n {
		p.link(int32(i), p.sentinel().prev)
	}
	return p
}

func (p *Pool) sentinel() *page { return &p.pages[len(p.pages)-1] }

// link puts a page behind another one (the sentinel: in front of all).
func (p *Pool) link(id, behind int32) {
	after := p.pages[behind].next
	p.pages[id].prev, p.pages[id].next = behind, after
	p.pages[behind].next, p.pages[after].prev = id, id
	p.idle++
}

func (p *Pool) unlink(id int32) {
	g := &p.pages[id]
	p.pages[g.prev].next, p.pages[g.next].prev = g.next, g.prev
	p.idle--
}

// Total is the number of pages there are.
func (p *Pool) Total() int { return len(p.pages) - 1 }

// Available is the number of pages that can be had: free or cached.
func (p *Pool) Available() int { return p.idle }

// Used is the number of pages with references.
func (p *Pool) Used() int { return p.Total() - p.idle }

// Cached is the number of pages that a prefix hash leads to, used or not.
func (p *Pool) Cached() int { return len(p.prefixes) }

// Taken is the number of pages that Take gave out.
func (p *Pool) Taken() int { return p.taken }

// get hands out the next page; what it cached is forgotten. The caller made sure there is one.
func (p *Pool) get() int32 {
	id := p.sentinel().next
	if p.idle == 0 {
		panic("paged: a page of an empty pool")
	}
	p.unlink(id)
	p.forget(id)
	p.pages[id].refs = 1
	return id
}

// share adds a reference to a page that is used or cached.
func (p *Pool) share(id int32) {
	g := &p.pages[id]
	if g.refs == 0 {
		p.unlink(id)
	}
	g.refs++
}

// put drops a reference. A page without any is the next to be handed out, or, if it is cached, the
// last.
func (p *Pool) put(id int32) {
	g := &p.pages[id]
	if g.refs < 1 {
		panic(fmt.Sprintf("paged: page %d is given back and is not in use", id))
	}
	if g.refs--; g.refs > 0 {
		return
	}
	last := int32(len(p.pages) - 1)
	if g.hashed {
		last = p.sentinel().prev
	}
	p.link(id, last)
}

// release drops the references of a table, the last page first, so that the beginning of a prefix
// outlives its end.
func (p *Pool) release(table []int32) {
	for i := len(table) - 1; i >= 0; i-- {
		p.put(table[i])
	}
}

// forget removes the prefix hash of a page.
func (p *Pool) forget(id int32) {
	if g := &p.pages[id]; g.hashed {
		delete(p.prefixes, g.hash)
		g.hashed = false
	}
}

// Take returns n pages for the caller's own use, evicting cached ones; if that is not enough, pages
// are reclaimed from sequences, which will be computed again.
func (p *Pool) Take(n int) ([]int32, error) {
	if n < 0 || n > p.Total()-p.taken {
		return nil, fmt.Errorf("paged: %d pages are needed, but the pool has %d and %d of them are taken; lower the batch or the lengths, or give the pool more memory",
			n, p.Total(), p.taken)
	}
	if n > p.idle && p.Reclaim != nil {
		p.Reclaim(n)
	}
	if n > p.idle {
		return nil, fmt.Errorf("paged: %d pages are needed, but of %d only %d are not in use", n, p.Total(), p.idle)
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = p.get()
		p.pages[out[i]].taken = true
	}
	p.taken += n
	return out, nil
}

// Give returns pages that Take gave out.
func (p *Pool) Give(pages []int32) {
	for i := len(pages) - 1; i >= 0; i-- {
		g := &p.pages[pages[i]]
		if !g.taken {
			panic(fmt.Sprintf("paged: page %d is given back and was not taken", pages[i]))
		}
		g.taken = false
		p.put(pages[i])
	}
	p.taken -= len(pages)
}

// Check verifies the pool's invariants: every page is in the list or referenced and never both, the
// list's links agree, and prefix hashes lead to the pages that carry them.
func (p *Pool) Check() error {
	last := int32(len(p.pages) - 1)
	seen, n := make([]bool, len(p.pages)), 0
	for id := p.pages[last].next; id != last; id = p.pages[id].next {
		if id < 0 || id > last || seen[id] {
			return fmt.Errorf("paged: page %d is twice in the free list", id)
		}
		seen[id] = true
		if g := p.pages[id]; g.refs != 0 || g.taken || p.pages[g.next].prev != id {
			return fmt.Errorf("paged: page %d is in the free list with %d references (taken %t)", id, g.refs, g.taken)
		}
		n++
	}
	hashed, taken := 0, 0
	for id := range last {
		g := p.pages[id]
		if g.refs < 0 || (g.refs == 0) != seen[id] {
			return fmt.Errorf("paged: page %d has %d references; in the free list: %t", id, g.refs, seen[id])
		}
		if g.hashed {
			hashed++
			if at, ok := p.prefixes[g.hash]; !ok || at != id {
				return fmt.Errorf("paged: page %d is cached, but its prefix leads to page %d (%t)", id, at, ok)
			}
		}
		if g.taken {
			taken++
		}
	}
	if n != p.idle || hashed != len(p.prefixes) || taken != p.taken {
		return fmt.Errorf("paged: %d pages idle, counted %d; %d prefixes, counted %d; %d taken, counted %d",
			p.idle, n, len(p.prefixes), hashed, p.taken, taken)
	}
	return nil
}
