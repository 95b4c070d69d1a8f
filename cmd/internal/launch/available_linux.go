package launch

import (
	"os"
	"strconv"
	"strings"
)

// Available is the memory that a new allocation may expect to get: what the kernel calls available,
// or what the control group leaves if that is less.
func Available() (bytes int64, ok bool) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == "MemAvailable:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, false
			}
			bytes, ok = kib<<10, true
		}
	}
	if left, limited := groupLeft(); ok && limited {
		bytes = min(bytes, left)
	}
	return bytes, ok
}

// groupLeft reads the control group's limit, version 2 or 1, as containers see their own.
func groupLeft() (int64, bool) {
	const v2, v1 = "/sys/fs/cgroup/", "/sys/fs/cgroup/memory/"
	for _, g := range [][3]string{
		{v2 + "memory.max", v2 + "memory.current", v2 + "memory.stat"},
		{v1 + "memory.limit_in_bytes", v1 + "memory.usage_in_bytes", v1 + "memory.stat"},
	} {
		limit, ok := readNumber(g[0])
		if !ok {
			continue // "max", or another version
		}
		used, ok := readNumber(g[1])
		if ok && limit < 1<<60 {
			return max(0, limit-used+inactiveFiles(g[2])), true
		}
	}
	return 0, false
}

// inactiveFiles is the part of a group's use that the kernel drops first: cached files.
func inactiveFiles(path string) int64 {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "inactive_file" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

func readNumber(path string) (int64, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n, err == nil
}
