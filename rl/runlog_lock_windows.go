package rl

import (
	"os"

	"golang.org/x/sys/windows"
)

// lock takes the file for this process; the system gives it back however the process ends.
func lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
}
