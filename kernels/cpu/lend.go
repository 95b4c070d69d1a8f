package cpu

import (
	"slices"
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
	watched   = 64                     // workers that are looked at
)

// place is where a worker is, as it last said.
type place struct {
	thread atomic.Int32 // 0: it never worked
	core   atomic.Int32 // −1: it never worked, or the system does not say
	holds  atomic.Bool  // it has tasks of the current job in hand
	asked  int64        // pool.round in which it said so
}

// begin says that the worker has tasks, and where it is if it was not asked since the last look.
func (p *place) begin(round int64) {
	if p.asked != round {
		p.asked = round
		thread, core := whereabouts()
		p.thread.Store(thread)
		p.core.Store(core)
	}
	p.holds.Store(true)
}

func (p *place) end() { p.holds.Store(false) }

// lend moves a worker that stands still to the caller's core and tells whether there was one. The
// caller is to leave that core then. It returns early when left, what the caller waits for, is 0.
func (p *pool) lend(left *atomic.Int64) bool {
	var threads [watched]int32
	var times [watched]int64
	n := min(len(p.workers), watched)
	self, core := whereabouts()
	for i := range n {
		w := &p.workers[i].place
		if t := w.thread.Load(); t != self && w.holds.Load() {
			if at, ok := threadTime(t); ok {
				threads[i], times[i] = t, at
			}
		}
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
		if at, ok := threadTime(t); ok && at == times[i] && moveThread(t, core) {
			w.core.Store(core)
			p.lent.Add(1)
			return true
		}
	}
	return false
}

// spread sets workers apart that were last seen on the same core, if there is a core without one.
func (p *pool) spread() {
	now := time.Now()
	if now.Sub(p.looked) < apartTime {
		return
	}
	p.looked = now
	p.round.Add(1)
	workers := p.workers[:min(len(p.workers), watched)]
	for i, w := range workers {
		core, thread := w.place.core.Load(), w.place.thread.Load()
		meets := func(v *worker) bool { return v.place.core.Load() == core && v.place.thread.Load() != thread }
		if core < 0 || !slices.ContainsFunc(workers[:i], meets) {
			continue
		}
		if free, ok := freeCore(thread, workers); ok && moveThread(thread, free) {
			w.place.core.Store(free)
			p.apart.Add(1)
		}
	}
}
