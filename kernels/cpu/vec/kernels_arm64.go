//go:build !noasm

package vec

// supported: Advanced SIMD is part of every arm64 that Go runs on.
func supported() []ISA { return []ISA{NEON} }
