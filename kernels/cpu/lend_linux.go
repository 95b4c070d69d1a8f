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

// moveThread moves a thread of this process to a core, if it may run there. Where it may run later
// does not change.
func moveThread(thread, core int32) bool {
	var may, here unix.CPUSet
	if core < 0 || unix.SchedGetaffinity(int(thread), &may) != nil || !may.IsSet(int(core)) {
		return false
	}
	here.Set(int(core))
	moved := unix.SchedSetaffinity(int(thread), &here) == nil
	return unix.SchedSetaffinity(int(thread), &may) == nil && moved
}

// freeCore is a core that a thread may run on and no worker was last seen on.
func freeCore(thread int32, workers []*worker) (int32, bool) {
	var may unix.CPUSet
	if unix.SchedGetaffinity(int(thread), &may) != nil {
		return 0, false
	}
	for _, w := range workers {
		if core := w.place.core.Load(); core >= 0 {
			may.Clear(int(core))
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
