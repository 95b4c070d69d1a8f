package cpu

import "golang.org/x/sys/unix"

// hugePage is the size from which advice is worth a call.
const hugePage = 2 << 20

// adviseHuge asks for huge pages. A kernel without them says no, and nothing is lost.
func adviseHuge(b []byte) {
	if len(b) >= hugePage {
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	}
}
