//go:build unix && !linux

package cpu

// adviseHuge does nothing: these systems choose page sizes by themselves.
func adviseHuge([]byte) {}
