//go:build unix

package cpu

import "golang.org/x/sys/unix"

// mapMemory returns zeroed memory from the system, aligned to pages.
func mapMemory(bytes int64) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, int(max(bytes, 1)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	adviseHuge(b)
	return b, nil
}

func unmapMemory(b []byte) error { return unix.Munmap(b) }
