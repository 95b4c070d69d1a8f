//go:build !windows && (!unix || aix || solaris)

package rl

import "os"

// lock does nothing on systems without advisory locks that end with the process: a lock that
// outlives a crash would cost more than it saves.
func lock(*os.File) error { return nil }
