//go:build !noasm

package vec

import "golang.org/x/sys/cpu"

// supported: Advanced SIMD is part of every arm64 that Go runs on.
func supported() []ISA {
	if cpu.ARM64.HasASIMDDP {
		return []ISA{NEONDot, NEON}
	}
	return []ISA{NEON}
}
