package launch

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// memoryCounters is PROCESS_MEMORY_COUNTERS.
type memoryCounters struct {
	size, faults                                                                         uint32
	peakWorkingSet, workingSet, peakPaged, paged, peakNonPaged, nonPaged, file, peakFile uintptr
}

// Peak is the largest working set that the process had.
func Peak() (bytes int64, ok bool) {
	c := memoryCounters{size: uint32(unsafe.Sizeof(memoryCounters{}))}
	r, _, _ := windows.NewLazySystemDLL("kernel32.dll").NewProc("K32GetProcessMemoryInfo").Call(
		uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&c)), uintptr(c.size))
	return int64(c.peakWorkingSet), r != 0
}
