package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"graft/kernels/cpu/vec"
)

// mayRun lists the cores that this test may run on.
func mayRun(t *testing.T) (cores []int32, set unix.CPUSet) {
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	for core := range int32(64 * len(set)) {
		if set.IsSet(int(core)) {
			cores = append(cores, core)
		}
	}
	return cores, set
}

// A thread goes where it is moved, and may go anywhere afterwards.
func TestThreadIsMoved(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cores, before := mayRun(t)
	var m mover
	for _, core := range cores {
		thread, _ := whereabouts()
		reached := false
		for range 100 { // the system may move it away again before we look
			require.True(t, m.move(thread, core))
			if _, now := whereabouts(); now == core {
				reached = true
				break
			}
		}
		require.True(t, reached, "core %d", core)
		_, after := mayRun(t)
		require.Equal(t, before, after)
	}
	thread, _ := whereabouts()
	require.False(t, m.move(thread, -1))
	require.False(t, m.move(thread, 1023), "a core that there is not")
	require.False(t, m.denied.Load())
}

// However many want to move a thread, it may run afterwards where it could before.
func TestMoversLeaveNoThreadBound(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cores, before := mayRun(t)
	thread, _ := whereabouts()
	var m mover
	var all sync.WaitGroup
	var moved atomic.Int32
	for i := range 8 {
		all.Go(func() {
			for range 30_000 {
				if m.move(thread, cores[i%len(cores)]) {
					moved.Add(1)
				}
			}
		})
	}
	all.Wait()
	_, after := mayRun(t)
	require.Equal(t, before, after)
	require.Positive(t, moved.Load())
}

func TestProcessorTimeTellsWhoRuns(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, _ := whereabouts()
	first, ok := threadTime(thread)
	require.True(t, ok)
	for x, again := 0, first; again == first; x++ {
		again, _ = threadTime(thread)
		require.Less(t, x, 1000000, "a running thread's time stands still")
	}
	_, ok = threadTime(1) // of another process
	require.False(t, ok)
}

// A worker that gets no processor time, here because it sleeps, is lent the core of the one who waits
// for it, whether that is the caller or a helper, at the end of a job or at a gate.
func TestWaitingWorkerLendsItsCore(t *testing.T) {
	for _, gated := range []bool{false, true} {
		p := newPool(2, vec.For(vec.Generic))
		for try := 0; try < 200 && p.lent.Load() == 0; try++ { // at the end of a job, whoever waits looks only once
			p.gate.close(1)
			require.NoError(t, p.run(2, true, funcJob(func(w *worker, i int) {
				if i == 0 {
					unix.Nanosleep(&unix.Timespec{Nsec: 20e6}, nil) // the thread, not the goroutine
					p.gate.open()
				} else if gated {
					p.gate.pass(w)
				}
			})))
		}
		require.Positive(t, p.lent.Load(), "gated: %v", gated)
		p.close()
	}
}

// Workers that were last seen on one core are set apart, as long as there are cores without one.
func TestWorkersOnOneCoreAreSetApart(t *testing.T) {
	cores, _ := mayRun(t)
	if len(cores) < 2 {
		t.Skip("needs two cores")
	}
	p := newPool(2, vec.For(vec.Generic))
	defer p.close()
	here, all := make(chan struct{}), make(chan struct{})
	go func() { // both tasks under way at once, so that both workers have said where they are
		<-here
		<-here
		close(all)
	}()
	require.NoError(t, p.run(2, true, funcJob(func(*worker, int) {
		here <- struct{}{}
		<-all
	})))
	for p.asleep.Load() == 0 { // one that runs is not on the caller's core, whatever it said
		time.Sleep(time.Millisecond)
	}
	p.workers[1].place.core.Store(p.workers[0].place.core.Load())
	p.looked = time.Time{}
	p.apart.Store(0)
	thread := p.workers[1].place.thread.Load()
	if thread == p.workers[0].place.thread.Load() {
		t.Skip("the Go runtime let both workers run on one thread")
	}
	p.spread()
	require.EqualValues(t, 1, p.apart.Load())
	require.NotEqual(t, p.workers[0].place.core.Load(), p.workers[1].place.core.Load())
	p.spread()
	require.EqualValues(t, 1, p.apart.Load(), "not looked at again so soon")
}
