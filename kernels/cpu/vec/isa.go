package vec

import "fmt"

// ISA is an instruction set that the primitives are compiled for.
type ISA uint8

// The instruction sets. Generic is plain Go.
const (
	Generic ISA = iota
	NEON        // arm64, every machine
	AVX2        // amd64 with AVX2, FMA and F16C
	AVX512      // amd64 with AVX-512 F, BW, VL and DQ besides
)

// String returns the name of the instruction set, such as "AVX2".
func (isa ISA) String() string {
	switch isa {
	case Generic:
		return "Generic"
	case NEON:
		return "NEON"
	case AVX2:
		return "AVX2"
	case AVX512:
		return "AVX512"
	}
	return fmt.Sprintf("ISA(%d)", uint8(isa))
}

// Supported returns the instruction sets that this machine and this build can
// run, best first. The last is always Generic.
func Supported() []ISA { return append(supported(), Generic) }

// For returns the primitives for isa, or nil if this machine or this build
// cannot run them.
func For(isa ISA) *Kernels {
	for _, have := range Supported() {
		if have == isa {
			return kernelsFor(isa)
		}
	}
	return nil
}
