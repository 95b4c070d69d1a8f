package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// whereabouts is the thread and the core that the caller runs on at this moment.
func whereabouts() (thread, core int32) {
	var c uint32
	if _, _, e := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&c)), 0, 0); e != 0 {
		return 0, -1
	}
	return int32(unix.Gettid()), int32(c)
}

// threadTime is the nanoseconds that a thread of this process has had a core. The number of its
// clock is made as pthread_getcpuclockid makes it.
func threadTime(thread int32) (int64, bool) {
	var t unix.Timespec
	if err := unix.ClockGettime(^thread<<3|0b110, &t); err != nil {
		return 0, false
	}
	return t.Nano(), true
}

// move moves a thread of this process to a core, if it may run there, and gives it back the cores
// that it may run on. It does nothing while another move is under way.
func (m *mover) move(thread, core int32) bool {
	if core < 0 || !m.busy.TryLock() {
		return false
	}
	defer m.busy.Unlock()
	var may, here unix.CPUSet
	if unix.SchedGetaffinity(int(thread), &may) != nil || !may.IsSet(int(core)) {
		return false
	}
	here.Set(int(core))
	switch err := unix.SchedSetaffinity(int(thread), &here); err {
	case nil:
	case unix.EPERM, unix.ENOSYS:
		m.denied.Store(true)
		return false
	default:
		return false
	}
	if unix.SchedSetaffinity(int(thread), &may) != nil {
		may.Fill() // what it may run on has changed meanwhile: the system cuts this to what that is now
		_ = unix.SchedSetaffinity(int(thread), &may)
	}
	return true
}

// freeCore is a core that a thread may run on and no worker was just seen on.
func freeCore(thread int32, workers []*worker, round int64) (int32, bool) {
	var may unix.CPUSet
	if unix.SchedGetaffinity(int(thread), &may) != nil {
		return 0, false
	}
	for _, w := range workers {
		if w.place.here(round) {
			may.Clear(int(w.place.core.Load()))
		}
	}
	for core := range int32(64 * len(may)) {
		if may.IsSet(int(core)) {
			return core, true
		}
	}
	return 0, false
}

// leave lets other threads have the caller's core.
func leave() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
