package vec

import (
	"encoding/binary"

	"graft/kernels/quant"
)

// Rows are packed two at a time, as lanes lane and lane+1 lie side by side in a
// panel: eight bytes of each row become two words of eight bytes of the panel,
// without a byte in between being looked at by itself.

// pairPacker packs the blocks of two rows into as many blocks of a panel.
type pairPacker func(dst []byte, lane int, a, b []byte)

func pairPackerOf(f quant.Format) pairPacker {
	switch f {
	case quant.F32:
		return pairF32
	case quant.F16, quant.BF16:
		return pairHalf
	case quant.Q4_0:
		return pairQ4_0
	case quant.Q4_1:
		return pairQ4_1
	case quant.Q5_0:
		return pairQ5_0
	case quant.Q5_1:
		return pairQ5_1
	case quant.Q8_0:
		return pairQ8_0
	case quant.Q4_K:
		return pairQ4K
	case quant.Q5_K:
		return pairQ5K
	}
	return pairQ6K
}

// pair returns the first four bytes of a and b side by side, then the others.
func pair(a, b uint64) (first, second uint64) {
	return a&0xffffffff | b<<32, a>>32 | b>>32<<32
}

// nibbleWords returns eight low nibbles of a and b as codes of a panel, then the
// high ones.
func nibbleWords(a, b uint64) (low, high uint64) {
	first, second := pair(a, b)
	return first&nibble8 | second&nibble8<<4, first>>4&nibble8 | second&^nibble8
}

// halfPair returns two bytes of each row.
func halfPair(a, b []byte) uint32 {
	return uint32(binary.LittleEndian.Uint16(a)) | uint32(binary.LittleEndian.Uint16(b))<<16
}

func putBytes(d []byte, a, b uint64) { binary.LittleEndian.PutUint16(d, uint16(a&0xff|b<<8)) }

// swapBits exchanges the bits of mask with those d places above.
func swapBits(w, mask uint64, d uint) uint64 {
	t := (w>>d ^ w) & mask
	return w ^ t ^ t<<d
}

// fifthWords moves bit 4n+i of either half of w to bit n of byte i. Read as binary
// digits, the place n2 n1 n0 i1 i0 becomes i1 i0 n2 n1 n0: four exchanges of two
// digits.
func fifthWords(w uint64) uint64 {
	w = swapBits(w, 0x0000cccc_0000cccc, 14)
	w = swapBits(w, 0x00aa00aa_00aa00aa, 7)
	w = swapBits(w, 0x0c0c0c0c_0c0c0c0c, 2)
	return swapBits(w, 0x22222222_22222222, 1)
}

// exchange swaps the bits of mask of y with those d places above in x.
func exchange(x, y *uint64, mask uint64, d uint) {
	t := (*x>>d ^ *y) & mask
	*x, *y = *x^t<<d, *y^t
}

// pairNibbles packs 32 codes of Q4 or Q5: k in the low nibbles, then 16+k in the
// high ones.
func pairNibbles(dst *[200]byte, a, b *[16]byte) {
	low, high := nibbleWords(word(a[:]), word(b[:]))
	putWord(dst[:], low)
	putWord(dst[128:], high)
	low, high = nibbleWords(word(a[8:]), word(b[8:]))
	putWord(dst[64:], low)
	putWord(dst[192:], high)
}

func pairQ4_0(dst []byte, lane int, a, b []byte) {
	for ; len(a) >= 18; a, b, dst = a[18:], b[18:], dst[288:] {
		x, y := (*[18]byte)(a), (*[18]byte)(b)
		putHalfWord(dst[2*lane:], halfPair(x[:], y[:]))
		pairNibbles((*[200]byte)(dst[32+4*lane:]), (*[16]byte)(x[2:]), (*[16]byte)(y[2:]))
	}
}

func pairQ4_1(dst []byte, lane int, a, b []byte) {
	for ; len(a) >= 20; a, b, dst = a[20:], b[20:], dst[320:] {
		x, y := (*[20]byte)(a), (*[20]byte)(b)
		putHalfWord(dst[2*lane:], halfPair(x[:], y[:]))
		putHalfWord(dst[32+2*lane:], halfPair(x[2:], y[2:]))
		pairNibbles((*[200]byte)(dst[64+4*lane:]), (*[16]byte)(x[4:]), (*[16]byte)(y[4:]))
	}
}

func pairQ5_0(dst []byte, lane int, a, b []byte) {
	for ; len(a) >= 22; a, b, dst = a[22:], b[22:], dst[352:] {
		x, y := (*[22]byte)(a), (*[22]byte)(b)
		putHalfWord(dst[2*lane:], halfPair(x[:], y[:]))
		pairNibbles((*[200]byte)(dst[32+4*lane:]), (*[16]byte)(x[6:]), (*[16]byte)(y[6:]))
		putWord(dst[288+4*lane:], fifthWords(uint64(halfWord(x[2:]))|uint64(halfWord(y[2:]))<<32))
	}
}

func pairQ5_1(dst []byte, lane int, a, b []byte) {
	for ; len(a) >= 24; a, b, dst = a[24:], b[24:], dst[384:] {
		x, y := (*[24]byte)(a), (*[24]byte)(b)
		putHalfWord(dst[2*lane:], halfPair(x[:], y[:]))
		putHalfWord(dst[32+2*lane:], halfPair(x[2:], y[2:]))
		pairNibbles((*[200]byte)(dst[64+4*lane:]), (*[16]byte)(x[8:]), (*[16]byte)(y[8:]))
		putWord(dst[320+4*lane:], fifthWords(uint64(halfWord(x[4:]))|uint64(halfWord(y[4:]))<<32))
	}
}

func pairQ8_0(dst []byte, lane int, a, b []byte) {
	for ; len(a) >= 34; a, b, dst = a[34:], b[34:], dst[544:] {
		x, y := (*[34]byte)(a), (*[34]byte)(b)
		putHalfWord(dst[2*lane:], halfPair(x[:], y[:]))
		d := (*[456]byte)(dst[32+4*lane:])
		for k := 0; k < 32; k += 8 {
			first, second := pair(word(x[2+k:]), word(y[2+k:]))
			putWord(d[16*k:], first)
			putWord(d[16*k+64:], second)
		}
	}
}

// pairScales packs the scales and minimums of a block of Q4_K or Q5_K into
// groups of stride bytes.
func pairScales(dst []byte, lane, stride int, a, b *[16]byte) {
	putHalfWord(dst[2*lane:], halfPair(a[:], b[:]))
	putHalfWord(dst[32+2*lane:], halfPair(a[2:], b[2:]))
	scA, mA := scales(a)
	scB, mB := scales(b)
	for g := range 8 {
		d := (*[18]byte)(dst[64+g*stride+lane:])
		putBytes(d[:], scA>>(8*g), scB>>(8*g))
		putBytes(d[16:], mA>>(8*g), mB>>(8*g))
	}
}

// scales returns the eight scales and minimums of a block of Q4_K or Q5_K, a
// byte each.
func scales(b *[16]byte) (sc, m uint64) {
	const six, two = 0x3f3f3f3f, 0x30303030
	x, y, z := halfWord(b[4:]), halfWord(b[8:]), halfWord(b[12:])
	return uint64(x&six) | uint64(z&nibble4|x>>2&two)<<32, uint64(y&six) | uint64(z>>4&nibble4|y>>2&two)<<32
}

// pairChunk packs 64 codes of Q4_K or Q5_K into two groups: the low nibbles, then
// the high ones.
func pairChunk(low, high *[200]byte, a, b *[32]byte) {
	for l := 0; l < 32; l += 8 {
		x, y := nibbleWords(word(a[l:]), word(b[l:]))
		putWord(low[8*l:], x)
		putWord(high[8*l:], y)
	}
}

func pairQ4K(dst []byte, lane int, a, b []byte) {
	const group = 288
	for ; len(a) >= 144; a, b, dst = a[144:], b[144:], dst[64+8*group:] {
		pairScales(dst, lane, group, (*[16]byte)(a), (*[16]byte)(b))
		codes := dst[64+32+4*lane:]
		for n := range 4 {
			pairChunk((*[200]byte)(codes[2*n*group:]), (*[200]byte)(codes[(2*n+1)*group:]), (*[32]byte)(a[16+32*n:]), (*[32]byte)(b[16+32*n:]))
		}
	}
}

func pairQ5K(dst []byte, lane int, a, b []byte) {
	const group = 352
	for ; len(a) >= 176; a, b, dst = a[176:], b[176:], dst[64+8*group:] {
		pairScales(dst, lane, group, (*[16]byte)(a), (*[16]byte)(b))
		codes := dst[64+32+4*lane:]
		for n := range 4 {
			pairChunk((*[200]byte)(codes[2*n*group:]), (*[200]byte)(codes[(2*n+1)*group:]), (*[32]byte)(a[48+32*n:]), (*[32]byte)(b[48+32*n:]))
		}
		for g, w := range fifthWordsK((*[32]byte)(a[16:]), (*[32]byte)(b[16:])) {
			putWord(codes[256+g*group:], w)
		}
	}
}

// fifthWordsK returns the fifth bits of a block of Q5_K by groups. A file has bit g
// of byte 4n+i, a panel bit n of byte i in the word of group g.
func fifthWordsK(a, b *[32]byte) (w [8]uint64) {
	for n := 0; n < 8; n += 2 {
		w[n], w[n+1] = pair(word(a[4*n:]), word(b[4*n:]))
	}
	for n := range 4 {
		exchange(&w[n], &w[n+4], nibble8, 4)
	}
	for _, n := range [4]int{0, 1, 4, 5} {
		exchange(&w[n], &w[n+2], 0x33333333_33333333, 2)
	}
	for n := 0; n < 8; n += 2 {
		exchange(&w[n], &w[n+1], 0x55555555_55555555, 1)
	}
	return w
}

func pairQ6K(dst []byte, lane int, a, b []byte) {
	const group = 208
	for ; len(a) >= 210; a, b, dst = a[210:], b[210:], dst[32+16*group:] {
		x, y := (*[210]byte)(a), (*[210]byte)(b)
		putHalfWord(dst[2*lane:], halfPair(x[208:], y[208:]))
		for g := range 16 {
			putBytes(dst[32+g*group+lane:], uint64(x[192+g]), uint64(y[192+g]))
		}
		for h := range 2 { // halves of 128
			for l := range 2 { // sixteens of 32
				d := dst[32+(8*h+l)*group+16+4*lane:]
				pair16((*[3*2*group + 136]byte)(d), x[64*h+16*l:], y[64*h+16*l:], x[128+32*h+16*l:], y[128+32*h+16*l:])
			}
		}
	}
}

// pair16 packs the codes of 16 places of a half of a block of Q6_K, 32 apart,
// which lie in every other of eight groups: low bits, and two top bits.
func pair16(d *[3*2*208 + 136]byte, a, b, topA, topB []byte) {
	const next = 2 * 208
	for k := 0; k < 16; k += 8 {
		low, high := nibbleWords(word(a[k:]), word(b[k:]))
		putWord(d[8*k:], low)
		putWord(d[8*k+2*next:], high)
		low, high = nibbleWords(word(a[32+k:]), word(b[32+k:]))
		putWord(d[8*k+next:], low)
		putWord(d[8*k+3*next:], high)
	}
	w, x := pair(word(topA), word(topB))
	y, z := pair(word(topA[8:]), word(topB[8:]))
	exchange(&w, &y, nibble8, 4)
	exchange(&x, &z, nibble8, 4)
	exchange(&w, &x, 0x33333333_33333333, 2)
	exchange(&y, &z, 0x33333333_33333333, 2)
	putWord(d[128:], w)
	putWord(d[128+next:], x)
	putWord(d[128+2*next:], y)
	putWord(d[128+3*next:], z)
}

func pairF32(dst []byte, lane int, a, b []byte) {
	for ; len(a) >= 8; a, b, dst = a[8:], b[8:], dst[128:] {
		first, second := pair(word(a), word(b))
		putWord(dst[4*lane:], first)
		putWord(dst[64+4*lane:], second)
	}
	if len(a) >= 4 {
		putWord(dst[4*lane:], uint64(halfWord(a))|uint64(halfWord(b))<<32)
	}
}

func pairHalf(dst []byte, lane int, a, b []byte) {
	for ; len(a) >= 8; a, b, dst = a[8:], b[8:], dst[128:] {
		d, x, y := (*[100]byte)(dst[2*lane:]), word(a), word(b)
		putHalfWord(d[:], uint32(x&0xffff|y<<16))
		putHalfWord(d[32:], uint32(x>>16&0xffff|y&0xffff0000))
		putHalfWord(d[64:], uint32(x>>32&0xffff|y>>16&0xffff0000))
		putHalfWord(d[96:], uint32(x>>48|y>>32&0xffff0000))
	}
	for ; len(a) >= 2; a, b, dst = a[2:], b[2:], dst[32:] {
		putHalfWord(dst[2*lane:], halfPair(a, b))
	}
}
