//go:build noasm || !(amd64 || arm64)

package vec

func supported() []ISA { return nil }

func kernelsFor(ISA) *Kernels { return genericKernels() }
