package cpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"graft/kernels/cpu/vec"
)

// job is the tasks of one operation. Tasks are handed out in ascending order, and may be done in
// any order and at the same time, but for what the pool's gate holds back.
type job interface {
	do(w *worker, task int)
}

// pool is a caller and its helpers. The caller takes tasks like everyone else, so a helper that the
// system takes off its core delays no more than the task it holds. Between operations helpers spin
// for a moment, then yield, then lend their core to a worker that has none, then sleep.
type pool struct {
	workers []*worker // workers[0] is the caller's

	job     job
	n       int
	left    atomic.Int64 // tasks not yet handed out; below zero when helpers asked in vain
	pending atomic.Int64 // tasks not yet done
	gate    gate

	asleep  atomic.Int32
	wake    chan struct{}
	waiting atomic.Int32 // 1: the caller sleeps until pending is 0
	done    chan struct{}
	closed  atomic.Bool
	exited  sync.WaitGroup

	mover       mover
	lent, apart atomic.Int64 // workers that were lent a core, and set apart
	looked      time.Time    // when spread last looked
	round       atomic.Int64 // how often it has

	failure atomic.Pointer[failure]
}

// failure is the first panic of an operation.
type failure struct {
	value any
	stack []byte
}

// gate holds back tasks that need the results of earlier tasks of the same job. Since tasks are
// handed out in order, everything a task can wait for is already in someone's hands.
type gate struct {
	left   atomic.Int64
	broken atomic.Bool
	pool   *pool
}

// close shuts the gate until open has been called n times.
func (g *gate) close(n int) { g.left.Store(int64(n)) }

// open counts one of the tasks that the gate waits for.
func (g *gate) open() { g.left.Add(-1) }

// pass waits until the gate is open, or a task has failed. w is who waits.
func (g *gate) pass(w *worker) {
	if g.left.Load() <= 0 {
		return
	}
	if w.place.holds.Swap(false) {
		defer w.place.holds.Store(true)
	}
	lent := false
	for start := (time.Time{}); ; runtime.Gosched() {
		for range spins {
			if g.left.Load() <= 0 || g.broken.Load() {
				return
			}
		}
		switch {
		case start.IsZero():
			start = time.Now()
		case lent && time.Since(start) < againTime:
			leave()
		case time.Since(start) > spinTime:
			lent = g.pool.lend(&g.left)
			start = time.Now()
		}
	}
}

const (
	spins    = 64                    // loads between two looks at the clock or two yields
	spinTime = 40 * time.Microsecond // of waiting, after which one lends its core, and then sleeps if it can
)

func newPool(threads int, k *vec.Kernels) *pool {
	p := &pool{wake: make(chan struct{}, threads), done: make(chan struct{}, 1)}
	p.gate.pool = p
	for id := range threads {
		p.workers = append(p.workers, newWorker(id, k))
	}
	for _, w := range p.workers[1:] {
		p.exited.Add(1)
		go p.help(w)
	}
	return p
}

func (p *pool) close() {
	if p.closed.Swap(true) {
		return
	}
	for range p.workers[1:] {
		select {
		case p.wake <- struct{}{}:
		default: // wake-ups that nobody needed are still there: enough for every helper
		}
	}
	p.exited.Wait()
	for _, w := range p.workers {
		w.free()
	}
}

// run does tasks 0 … n−1 of j and returns when all are done. Not shared: the caller does them all.
func (p *pool) run(n int, shared bool, j job) error {
	p.gate.broken.Store(false)
	p.n, p.job = n, j
	if shared && n > 1 && len(p.workers) > 1 {
		p.pending.Store(int64(n))
		p.left.Store(int64(n)) // publishes the job
		p.rouse(n - 1)
		p.spread()
		p.work(p.workers[0])
		p.wait()
	} else {
		for i := range n {
			p.task(p.workers[0], i)
		}
	}
	p.job = nil
	if f := p.failure.Swap(nil); f != nil {
		if m, ok := f.value.(noMemory); ok {
			return m.err
		}
		panic(fmt.Sprintf("cpu: a worker: %v\n%s", f.value, f.stack))
	}
	return nil
}

// rouse wakes as many sleeping helpers as n tasks can use.
func (p *pool) rouse(n int) {
	for range min(int(p.asleep.Load()), n) {
		select {
		case p.wake <- struct{}{}:
		default: // as many wake-ups as helpers are under way
		}
	}
}

// work does tasks until there are none to take.
func (p *pool) work(w *worker) {
	did := int64(0)
	for {
		left := p.left.Add(-1)
		if left < 0 {
			break
		}
		if did == 0 {
			w.place.begin(p.round.Load())
		}
		p.task(w, p.n-1-int(left))
		did++
	}
	if did > 0 {
		w.place.end()
	}
	if did > 0 && p.pending.Add(-did) == 0 && p.waiting.CompareAndSwap(1, 0) {
		p.done <- struct{}{}
	}
}

// task does one task. After a failure the others of the job are skipped.
func (p *pool) task(w *worker, i int) {
	defer func() {
		if v := recover(); v != nil {
			p.failure.CompareAndSwap(nil, &failure{v, debug.Stack()})
			p.gate.broken.Store(true)
		}
	}()
	if !p.gate.broken.Load() {
		p.job.do(w, i)
	}
}

// wait returns when all tasks are done: soon, as a rule, so it spins before it sleeps.
func (p *pool) wait() {
	for start := (time.Time{}); p.pending.Load() > 0; {
		for range spins {
			if p.pending.Load() == 0 {
				return
			}
		}
		runtime.Gosched()
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > spinTime {
			p.lend(&p.pending)
			p.waiting.Store(1)
			if p.pending.Load() > 0 || !p.waiting.CompareAndSwap(1, 0) {
				<-p.done
			}
			return
		}
	}
}

// help is the life of a helper.
func (p *pool) help(w *worker) {
	defer p.exited.Done()
	for !p.closed.Load() {
		if p.left.Load() > 0 {
			p.work(w)
			continue
		}
		if p.spin() {
			continue
		}
		if p.pending.Load() > 0 {
			p.lend(&p.pending)
		}
		p.asleep.Add(1)
		if p.left.Load() <= 0 && !p.closed.Load() {
			<-p.wake
		}
		p.asleep.Add(-1)
	}
}

// spin waits awake for tasks and tells whether there are any.
func (p *pool) spin() bool {
	for start := time.Now(); time.Since(start) < spinTime; runtime.Gosched() {
		for range spins {
			if p.left.Load() > 0 {
				return true
			}
		}
	}
	return false
}
