//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Peak is the most memory that the process had resident.
func Peak() (bytes int64, ok bool) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	if runtime.GOOS == "darwin" { // counts bytes, the others kibibytes
		return int64(u.Maxrss), true
	}
	return int64(u.Maxrss) << 10, true
}
