package vec

import "fmt"

// ISA is an instruction set that the primitives are compiled for.
type ISA uint8

// The instruction sets. Generic is plain Go.
const (
	Generic    ISA = iota
	NEON           // arm64, every machine
	NEONDot        // with the dot products of ARMv8.2 besides
	AVX2           // amd64 with AVX2, FMA and F16C
	AVXVNNI        // with AVX-VNNI besides
	AVX512         // amd64 with AVX-512 F, BW, VL and DQ besides AVX2
	AVX512VNNI     // with AVX512_VNNI besides
)

// String returns the name of the instruction set, such as "AVX2".
func (isa ISA) String() string {
	switch isa {
	case Generic:
		return "Generic"
	case NEON:
		return "NEON"
	case NEONDot:
		return "NEONDot"
	case AVX2:
		return "AVX2"
	case AVXVNNI:
		return "AVXVNNI"
	case AVX512:
		return "AVX512"
	case AVX512VNNI:
		return "AVX512VNNI"
	}
	return fmt.Sprintf("ISA(%d)", uint8(isa))
}

// base is the instruction set that isa extends by products of bytes, or isa itself.
func (isa ISA) base() ISA {
	switch isa {
	case NEONDot:
		return NEON
	case AVXVNNI:
		return AVX2
	case AVX512VNNI:
		return AVX512
	}
	return isa
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
