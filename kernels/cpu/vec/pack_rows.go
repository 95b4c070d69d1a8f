package vec

import (
	"encoding/binary"

	"graft/kernels/quant"
)

// rowCodes is the codes of one block of 16 rows, one byte each: [lane][k].
// Bytes are handled eight to a word, the first in the low byte.
type rowCodes [Lanes][256]uint8

// Words of eight equal bytes, to keep some bits of each.
const (
	ones    = 0x0101010101010101
	twos    = 0x0303030303030303
	nibble8 = 0x0f0f0f0f0f0f0f0f

	one4, two4, nibble4 = 0x01010101, 0x03030303, 0x0f0f0f0f // of four bytes
)

func word(b []byte) uint64       { return binary.LittleEndian.Uint64(b) }
func putWord(b []byte, w uint64) { binary.LittleEndian.PutUint64(b, w) }

func halfWord(b []byte) uint32       { return binary.LittleEndian.Uint32(b) }
func putHalfWord(b []byte, w uint32) { binary.LittleEndian.PutUint32(b, w) }

func copyHalf(dst, src []byte) { dst[0], dst[1] = src[0], src[1] }

// packRow reads one block of row j: scales go to their place in the panel
// block, codes to c.
func packRow(block []byte, c *rowCodes, f quant.Format, j int, row []byte) {
	codes := &c[j]
	copyHalf(block[2*j:], row) // d, but for Q6_K
	if f == quant.Q4_1 || f == quant.Q5_1 || f == quant.Q4_K || f == quant.Q5_K {
		copyHalf(block[32+2*j:], row[2:]) // m or dmin
	}
	switch f {
	case quant.Q4_0:
		expandHalves(codes, row[2:18], 0)
	case quant.Q4_1:
		expandHalves(codes, row[4:20], 0)
	case quant.Q5_0:
		expandHalves(codes, row[6:22], binary.LittleEndian.Uint32(row[2:]))
	case quant.Q5_1:
		expandHalves(codes, row[8:24], binary.LittleEndian.Uint32(row[4:]))
	case quant.Q8_0:
		copy(codes[:32], row[2:])
	case quant.Q4_K, quant.Q5_K:
		g, s := groupsOf(f), row[4:16]
		for n := range 4 {
			low, high := block[g.head+n*g.stride:][:32], block[g.head+(n+4)*g.stride:][:32]
			low[j], low[16+j] = s[n]&63, s[n+4]&63
			high[j], high[16+j] = s[n+8]&15|s[n]>>6<<4, s[n+8]>>4|s[n+4]>>6<<4
		}
		expandK(codes, f, row[16:])
	case quant.Q6_K:
		copyHalf(block[2*j:], row[208:])
		g := groupsOf(f)
		for n := range g.n {
			block[g.head+n*g.stride+j] = row[192+n]
		}
		expand6(codes, row)
	}
}

// unpackRow is the inverse of packRow.
func unpackRow(row []byte, c *rowCodes, f quant.Format, j int, block []byte) {
	codes := &c[j]
	copyHalf(row, block[2*j:])
	if f == quant.Q4_1 || f == quant.Q5_1 || f == quant.Q4_K || f == quant.Q5_K {
		copyHalf(row[2:], block[32+2*j:])
	}
	switch f {
	case quant.Q4_0:
		joinHalves(row[2:18], codes)
	case quant.Q4_1:
		joinHalves(row[4:20], codes)
	case quant.Q5_0:
		binary.LittleEndian.PutUint32(row[2:], joinHalves(row[6:22], codes))
	case quant.Q5_1:
		binary.LittleEndian.PutUint32(row[4:], joinHalves(row[8:24], codes))
	case quant.Q8_0:
		copy(row[2:], codes[:32])
	case quant.Q4_K, quant.Q5_K:
		g, s := groupsOf(f), row[4:16]
		for n := range 4 {
			low, high := block[g.head+n*g.stride:][:32], block[g.head+(n+4)*g.stride:][:32]
			s[n], s[n+4] = low[j]|high[j]>>4<<6, low[16+j]|high[16+j]>>4<<6
			s[n+8] = high[j]&15 | high[16+j]<<4
		}
		joinK(row[16:], codes, f)
	case quant.Q6_K:
		join6(row, codes)
		copyHalf(row[208:], block[2*j:])
		g := groupsOf(f)
		for n := range g.n {
			row[192+n] = block[g.head+n*g.stride+j]
		}
	}
}

// spread returns the low eight bits of b as bit 4 of eight bytes.
func spread(b uint32) uint64 {
	w := uint64(b&0xff) * ones & 0x8040201008040201 // bit i in byte i
	return (w + 0x7f7f7f7f7f7f7f7f) >> 7 & ones << 4
}

// collect is the inverse of spread; other bits of w do not matter.
func collect(w uint64) uint32 {
	return uint32(w >> 4 & ones * 0x0102040810204080 >> 56)
}

// expandHalves writes 32 codes: low nibbles of qs first, then high nibbles, and
// bit 4 from high.
func expandHalves(c *[256]uint8, qs []byte, high uint32) {
	for i := 0; i < 16; i += 8 {
		q := word(qs[i:])
		putWord(c[i:], q&nibble8|spread(high>>i))
		putWord(c[16+i:], q>>4&nibble8|spread(high>>(16+i)))
	}
}

// joinHalves is the inverse of expandHalves; it returns high.
func joinHalves(qs []byte, c *[256]uint8) (high uint32) {
	for i := 0; i < 16; i += 8 {
		a, b := word(c[i:]), word(c[16+i:])
		putWord(qs[i:], a&nibble8|b&nibble8<<4)
		high |= collect(a)<<i | collect(b)<<(16+i)
	}
	return high
}

// expandK writes 256 codes from what follows the scales of a Q4_K or Q5_K block.
func expandK(c *[256]uint8, f quant.Format, b []byte) {
	qs, five := b, f == quant.Q5_K
	if five {
		qs = b[32:]
	}
	for l := 0; l < 32; l += 8 {
		var high uint64
		if five {
			high = word(b[l:])
		}
		for n := range 4 { // chunk of 64: low nibbles, then high nibbles
			q := word(qs[32*n+l:])
			putWord(c[64*n+l:], q&nibble8|high>>(2*n)&ones<<4)
			putWord(c[64*n+32+l:], q>>4&nibble8|high>>(2*n+1)&ones<<4)
		}
	}
}

// joinK is the inverse of expandK.
func joinK(b []byte, c *[256]uint8, f quant.Format) {
	qs, five := b, f == quant.Q5_K
	if five {
		qs = b[32:]
	}
	for l := 0; l < 32; l += 8 {
		var high uint64
		for n := range 4 {
			x, y := word(c[64*n+l:]), word(c[64*n+32+l:])
			putWord(qs[32*n+l:], x&nibble8|y&nibble8<<4)
			high |= x>>4&ones<<(2*n) | y>>4&ones<<(2*n+1)
		}
		if five {
			putWord(b[l:], high)
		}
	}
}

// expand6 writes 256 codes from a Q6_K block.
func expand6(c *[256]uint8, b []byte) {
	for n := range 2 { // halves of 128
		for l := 0; l < 32; l += 8 {
			x, y, h := word(b[64*n+l:]), word(b[64*n+32+l:]), word(b[128+32*n+l:])
			putWord(c[128*n+l:], x&nibble8|h&twos<<4)
			putWord(c[128*n+32+l:], y&nibble8|h>>2&twos<<4)
			putWord(c[128*n+64+l:], x>>4&nibble8|h>>4&twos<<4)
			putWord(c[128*n+96+l:], y>>4&nibble8|h>>6&twos<<4)
		}
	}
}

// join6 is the inverse of expand6.
func join6(b []byte, c *[256]uint8) {
	for n := range 2 {
		for l := 0; l < 32; l += 8 {
			w, x, y, z := word(c[128*n+l:]), word(c[128*n+32+l:]), word(c[128*n+64+l:]), word(c[128*n+96+l:])
			putWord(b[64*n+l:], w&nibble8|y&nibble8<<4)
			putWord(b[64*n+32+l:], x&nibble8|z&nibble8<<4)
			putWord(b[128+32*n+l:], w>>4&twos|x>>4&twos<<2|y>>4&twos<<4|z>>4&twos<<6)
		}
	}
}
