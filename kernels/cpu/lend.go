package cpu

import (
	"sync"
	"sync/atomic"
	"time"
)

// Where another process wants a core too, the system takes a worker off it for milliseconds, in the
// middle of a task that everybody waits for, and leaves the cores of the waiting idle: they never
// rest long enough for it to bring them other work. So whoever has waited for a while looks at the
// processor time of the workers that hold tasks. One that does not move has no core; it gets the
// core of the one who waits. And as three threads on two cores may lie as two of ours and the other
// process alone, which the system finds as good, workers that meet on a core are set apart.

const (
	standTime = 20 * time.Microsecond  // without processor time, for a worker to count as standing still
	apartTime = 250 * time.Microsecond // between two looks at where the workers are
	againTime = time.Millisecond       // after which one who lent a core and still waits looks again
	watched   = 64                     // workers that are looked at
)

// mover moves the threads of a pool, one at a time: what a thread may run on is narrowed for a moment,
// and nobody else may take that for what it was.
type mover struct {
	busy   sync.Mutex
	denied atomic.Bool // the system does not let us
}

// place is where a worker is, as it last said.
type place struct {
	thread atomic.Int32 // 0: it never worked
	core   atomic.Int32 // −1: it never worked, or the system does not say
	asked  atomic.Int64 // pool.round in which it said so
	holds  atomic.Bool  // it computes: it has tasks in hand and does not wait at a gate
}

// begin says that the worker has tasks, and where it is if it was not asked since the last look.
func (p *place) begin(round int64) {
	if p.asked.Load() != round {
		thread, core := whereabouts()
		p.thread.Store(thread)
		p.core.Store(core)
		p.asked.Store(round)
	}
	p.holds.Store(true)
}

func (p *place) end() { p.holds.Store(false) }

// lend moves a worker that stands still to the core of the caller and tells whether there was one.
// The caller should leave that core then, or soon. It returns early when left, what the caller waits
// for, is 0.
func (p *pool) lend(left *atomic.Int64) bool {
	if p.mover.denied.Load() {
		return false
	}
	var threads [watched]int32
	var times [watched]int64
	n, found := min(len(p.workers), watched), 0
	self, core := whereabouts()
	for i := range n {
		w := &p.workers[i].place
		if t := w.thread.Load(); t != self && t != 0 && w.holds.Load() {
			if at, ok := threadTime(t); ok {
				threads[i], times[i] = t, at
				found++
			}
		}
	}
	if found == 0 {
		return false
	}
	for start := time.Now(); time.Since(start) < standTime; {
		if left.Load() <= 0 {
			return false
		}
	}
	for i := range n {
		w, t := &p.workers[i].place, threads[i]
		if t == 0 || w.thread.Load() != t || !w.holds.Load() {
			continue
		}
		if at, ok := threadTime(t); ok && at == times[i] && p.mover.move(t, core) {
			w.core.Store(core)
			p.lent.Add(1)
			return true
		}
	}
	return false
}

// spread sets workers apart that were just seen on the same core, if there is a core without one.
func (p *pool) spread() {
	now := time.Now()
	if now.Sub(p.looked) < apartTime {
		return
	}
	p.looked = now
	round := p.round.Add(1)
	if p.mover.denied.Load() {
		return
	}
	workers := p.workers[:min(len(p.workers), watched)]
	for i := range workers {
		w := &workers[i].place
		if w.meets(workers[:i], round) && standsStill(w.thread.Load()) {
			if core, ok := freeCore(w.thread.Load(), workers, round); ok && p.mover.move(w.thread.Load(), core) {
				w.core.Store(core)
				p.apart.Add(1)
			}
		}
	}
}

// here tells whether the worker said where it is in one of the last two rounds.
func (p *place) here(round int64) bool { return p.core.Load() >= 0 && p.asked.Load() >= round-2 }

// meets tells whether one of others is on the same core, on a thread of its own.
func (p *place) meets(others []*worker, round int64) bool {
	if !p.here(round) {
		return false
	}
	for _, v := range others {
		q := &v.place
		if q.here(round) && q.core.Load() == p.core.Load() && q.thread.Load() != p.thread.Load() {
			return true
		}
	}
	return false
}

// standsStill tells whether a thread of this process does not run at this moment.
func standsStill(thread int32) bool {
	first, ok := threadTime(thread)
	again, same := threadTime(thread)
	return ok && same && first == again
}
