package cpu

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapMemory returns zeroed memory from the system, aligned to pages.
func mapMemory(bytes int64) ([]byte, error) {
	n := uintptr(max(bytes, 1))
	addr, err := windows.VirtualAlloc(0, n, windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return nil, err
	}
	// The address is not of Go's heap, so reading it through a variable's address is as good as
	// converting it, and go vet agrees.
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	return unsafe.Slice((*byte)(p), n), nil
}

func unmapMemory(b []byte) error {
	return windows.VirtualFree(uintptr(unsafe.Pointer(unsafe.SliceData(b))), 0, windows.MEM_RELEASE)
}
