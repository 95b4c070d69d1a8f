//go:build !noasm && (amd64 || arm64)

package vec

// kernelsFor starts from the Go twins and puts in what was compiled for isa and
// for what it extends, one line per C source.
func kernelsFor(isa ISA) *Kernels {
	k := genericKernels()
	k.ISA = isa.base()
	setAttn(k)
	setDecode(k)
	setGemm(k)
	setGemv(k)
	setGemvrows(k)
	setRows(k)
	k.ISA = isa
	setInt8(k)
	return k
}
