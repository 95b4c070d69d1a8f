package launch

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// memoryStatus is MEMORYSTATUSEX.
type memoryStatus struct {
	length, load                                                                          uint32
	totalPhys, availPhys, totalPage, availPage, totalVirtual, availVirtual, availExtended uint64
}

// Available is the physical memory that is free now.
func Available() (bytes int64, ok bool) {
	s := memoryStatus{length: uint32(unsafe.Sizeof(memoryStatus{}))}
	r, _, _ := windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx").Call(uintptr(unsafe.Pointer(&s)))
	return int64(s.availPhys), r != 0
}
