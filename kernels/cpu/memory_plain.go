//go:build !unix && !windows

package cpu

import (
	"fmt"
	"unsafe"
)

// mapMemory returns zeroed memory of Go's heap, where the system maps none.
func mapMemory(bytes int64) (b []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	const line = 64
	raw := make([]byte, max(bytes, 1)+line)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % line
	return raw[skip:][:max(bytes, 1)], nil
}

func unmapMemory([]byte) error { return nil }
