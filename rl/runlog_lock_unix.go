//go:build unix && !aix && !solaris

package rl

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the file for this process; the system gives it back however the process ends.
func lock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
