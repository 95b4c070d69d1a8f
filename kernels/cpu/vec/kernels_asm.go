//go:build !noasm && (amd64 || arm64)

package vec

// kernelsFor starts from the Go twins and puts in what was compiled for isa,
// one line per C source.
func kernelsFor(isa ISA) *Kernels {
	k := genericKernels()
	k.ISA = isa
	setAttn(k)
	setDecode(k)
	setGemm(k)
	setGemv(k)
	setGemvrows(k)
	setRows(k)
	return k
}
