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

// unpackRow writes one block of row j: scales from their place in the panel
// block, codes from c.
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

// collect is the inverse of spread; other bits of w do not matter.
func collect(w uint64) uint32 {
	return uint32(w >> 4 & ones * 0x0102040810204080 >> 56)
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
