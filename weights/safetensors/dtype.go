package safetensors

import "fmt"

// DType is the type of a tensor's elements.
type DType uint8

// The types of the format, in the order of the reference library: writers put
// tensors of later types first, so that every tensor is aligned to its elements.
const (
	BOOL DType = iota
	F4
	F6_E2M3
	F6_E3M2
	U8
	I8
	F8_E5M2
	F8_E4M3
	F8_E5M2FNUZ
	F8_E4M3FNUZ
	F8_E8M0
	I16
	U16
	F16
	BF16
	I32
	U32
	F32
	C64
	F64
	I64
	U64
)

// dtypes is indexed by DType. Raw says whether the bytes mean something by
// themselves; the small floats need a scale from elsewhere.
var dtypes = [...]struct {
	name string
	bits uint64
	raw  bool
}{
	BOOL: {"BOOL", 8, true},
	F4:   {"F4", 4, false}, F6_E2M3: {"F6_E2M3", 6, false}, F6_E3M2: {"F6_E3M2", 6, false},
	U8: {"U8", 8, true}, I8: {"I8", 8, true},
	F8_E5M2: {"F8_E5M2", 8, false}, F8_E4M3: {"F8_E4M3", 8, false},
	F8_E5M2FNUZ: {"F8_E5M2FNUZ", 8, false}, F8_E4M3FNUZ: {"F8_E4M3FNUZ", 8, false}, F8_E8M0: {"F8_E8M0", 8, false},
	I16: {"I16", 16, true}, U16: {"U16", 16, true}, F16: {"F16", 16, true}, BF16: {"BF16", 16, true},
	I32: {"I32", 32, true}, U32: {"U32", 32, true}, F32: {"F32", 32, true},
	C64: {"C64", 64, false}, F64: {"F64", 64, true}, I64: {"I64", 64, true}, U64: {"U64", 64, true},
}

// ParseDType returns the type with the given name, and whether there is one.
func ParseDType(name string) (DType, bool) {
	for d, row := range dtypes {
		if row.name == name {
			return DType(d), true
		}
	}
	return 0, false
}

// String returns the name of d in a file.
func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Bits returns the number of bits of an element.
func (d DType) Bits() int { return int(dtypes[d].bits) }
