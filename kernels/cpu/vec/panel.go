package vec

import (
	"fmt"

	"graft/kernels/quant"
)

// A packed panel holds the weights of 16 outputs, all k, in k order. It is the
// form in which base weights stay in memory: "lane" is the output.
//
//	F32        [K][16] float32
//	F16, BF16  [K][16] uint16
//	others     a run of blocks, each the part of a panel that one block of
//	           each of the 16 rows becomes, made of these pieces:
//
//	half    16 float16, one per lane
//	codes   64 bytes per eight k: byte 4j+i holds the low four bits of the codes
//	        of lane j for k+i and, in its high nibble, k+4+i
//	fifth   64 bytes per 32 k: bit n of byte 4j+i is bit 4 of code k+4n+i of lane j
//	top     64 bytes per 16 k: bits 2n and 2n+1 of byte 4j+i are bits 4 and 5 of
//	        code k+4n+i of lane j
//	bytes   64 bytes per four k: byte 4j+i is code k+i of lane j, an int8
//
// Four k of a lane are neighbours because instructions that multiply bytes sum
// four products into a lane.
//
//	Q4_0    half d; codes                                288 bytes per 32 k
//	Q4_1    half d; half m; codes                        320
//	Q5_0    half d; codes; fifth                         352
//	Q5_1    half d; half m; codes; fifth                 384
//	Q8_0    half d; bytes                                544
//	Q4_K    half d; half dmin; 8 times, each 32 k:
//	        16 uint8 sc; 16 uint8 m; codes               2368 per 256 k
//	Q5_K    the same with fifth after each codes         2880
//	Q6_K    half d; 16 times, each 16 k:
//	        16 int8 sc; codes; top                       3360
//
// The value of a weight is that of quant.Decode, to the bit.

// PanelBytes returns the size in bytes of a panel of 16 outputs by in inputs.
// in is a multiple of f.BlockLen.
func PanelBytes(f quant.Format, in int) int {
	if in < 0 || in%f.BlockLen() != 0 {
		panic(fmt.Sprintf("vec: PanelBytes %v: %d inputs, want a multiple of %d", f, in, f.BlockLen()))
	}
	return in / f.BlockLen() * panelBlockBytes(f)
}

// panelBlockBytes returns the bytes that one block of each of 16 rows takes in
// a panel: as many as in the rows, but for the 6-bit scales of Q4_K and Q5_K,
// which take a byte each.
func panelBlockBytes(f quant.Format) int {
	n := Lanes * f.BlockBytes()
	if f == quant.Q4_K || f == quant.Q5_K {
		n += Lanes * (16 - 12)
	}
	return n
}

// Panels returns the number of panels of 16 that hold out outputs.
func Panels(out int) int { return (out + Lanes - 1) / Lanes }

// groups says how the codes of a quantized block lie in a panel: in groups of
// groupLen k, of which the first begins at byte head and each is stride bytes;
// within a group the codes begin after scale bytes.
type groups struct {
	head, stride, scale int
	n, len              int // groups per block, k per group
	high                int // bits of a code above the low four: 0, 1, 2
}

func groupsOf(f quant.Format) groups {
	switch f {
	case quant.Q4_0:
		return groups{head: 32, stride: 256, n: 1, len: 32}
	case quant.Q4_1:
		return groups{head: 64, stride: 256, n: 1, len: 32}
	case quant.Q5_0:
		return groups{head: 32, stride: 320, n: 1, len: 32, high: 1}
	case quant.Q5_1:
		return groups{head: 64, stride: 320, n: 1, len: 32, high: 1}
	case quant.Q4_K:
		return groups{head: 64, stride: 288, scale: 32, n: 8, len: 32}
	case quant.Q5_K:
		return groups{head: 64, stride: 352, scale: 32, n: 8, len: 32, high: 1}
	case quant.Q6_K:
		return groups{head: 32, stride: 208, scale: 16, n: 16, len: 16, high: 2}
	}
	panic(fmt.Sprintf("vec: %v has no nibble codes", f))
}
