package launch

import "golang.org/x/sys/unix"

// Available is three quarters of the machine's memory: macOS compresses and swaps the rest away.
func Available() (bytes int64, ok bool) {
	total, err := unix.SysctlUint64("hw.memsize")
	return int64(total / 4 * 3), err == nil
}
