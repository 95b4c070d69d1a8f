package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// cores lists one logical processor of each core that this process may run on.
func cores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("reading the cores that this process may use: %w", err)
	}
	var out []int
	seen := map[string]bool{}
	for cpu := range len(set) * 64 {
		if !set.IsSet(cpu) {
			continue
		}
		siblings := fmt.Sprint(cpu)
		if raw, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu)); err == nil {
			siblings = strings.TrimSpace(string(raw))
		}
		if !seen[siblings] {
			seen[siblings] = true
			out = append(out, cpu)
		}
	}
	return out, nil
}

// pin binds the calling thread, and every process that it starts, to the given processors.
func pin(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(0, &set)
}
