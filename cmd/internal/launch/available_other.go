//go:build !linux && !darwin && !windows

package launch

// Available is not known on this system.
func Available() (bytes int64, ok bool) { return 0, false }
