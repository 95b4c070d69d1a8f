//go:build !linux && !darwin && !windows && !freebsd && !netbsd && !openbsd && !dragonfly

package launch

// Peak is not known on this system.
func Peak() (bytes int64, ok bool) { return 0, false }
