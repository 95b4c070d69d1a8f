//go:build !linux

package main

import "runtime"

// cores lists the logical processors.
func cores() ([]int, error) {
	out := make([]int, runtime.NumCPU())
	for i := range out {
		out[i] = i
	}
	return out, nil
}

// pin does nothing: this system offers no affinity, and both sides are held by their number of
// threads alone.
func pin([]int) error { return nil }
