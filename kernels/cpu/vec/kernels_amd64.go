//go:build !noasm

package vec

import "slices"

//go:noescape
func cpuid(leaf, sub uint32) (a, b, c, d uint32)

//go:noescape
func xgetbv() uint32

// Feature bits, Intel SDM volume 2A, CPUID.
const (
	leaf1FMA     = 1 << 12 // ECX
	leaf1OSXSAVE = 1 << 27
	leaf1F16C    = 1 << 29
	leaf7AVX2    = 1 << 5                        // EBX
	leaf7AVX512  = 1<<16 | 1<<17 | 1<<30 | 1<<31 // F, DQ, BW, VL
	leaf7VNNI512 = 1 << 11                       // ECX
	leaf7VNNI    = 1 << 4                        // EAX of sub-leaf 1
	xcr0AVX      = 1<<1 | 1<<2                   // XMM and YMM are saved
	xcr0AVX512   = xcr0AVX | 1<<5 | 1<<6 | 1<<7  // masks and ZMM besides
)

func supported() []ISA {
	if top, _, _, _ := cpuid(0, 0); top < 7 {
		return nil
	}
	_, _, c1, _ := cpuid(1, 0)
	if want := uint32(leaf1FMA | leaf1OSXSAVE | leaf1F16C); c1&want != want {
		return nil
	}
	subs, b7, c7, _ := cpuid(7, 0)
	saved := xgetbv()
	if b7&leaf7AVX2 == 0 || saved&xcr0AVX != xcr0AVX {
		return nil
	}
	isas := []ISA{AVX2}
	if subs >= 1 {
		if a71, _, _, _ := cpuid(7, 1); a71&leaf7VNNI != 0 {
			isas = append(isas, AVXVNNI)
		}
	}
	if b7&leaf7AVX512 == leaf7AVX512 && saved&xcr0AVX512 == xcr0AVX512 {
		isas = append(isas, AVX512)
		if c7&leaf7VNNI512 != 0 {
			isas = append(isas, AVX512VNNI)
		}
	}
	slices.Reverse(isas)
	return isas
}
