package vec

func supported() []ISA { return nil }

func kernelsFor(ISA) *Kernels { return genericKernels() }
