//go:build unix && !aix && !solaris

package launch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// locked tells whether another process holds a lock on the file.
func locked(f *os.File) bool {
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
