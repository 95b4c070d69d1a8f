package launch

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Peak is the most memory that the process had resident: what the kernel calls its high-water mark.
func Peak() (bytes int64, ok bool) {
	raw, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "VmHWM:" {
				if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					return kib << 10, true
				}
			}
		}
	}
	// Where /proc is not mounted. The figure may be that of the program that started this one.
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return int64(u.Maxrss) << 10, true
}
