package launch

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// locked tells whether another process holds a lock on the file.
func locked(f *os.File) bool {
	return errors.Is(windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{}), windows.ERROR_LOCK_VIOLATION)
}
