package vec

import (
	"encoding/binary"

	"graft/kernels/quant"
)

// packRow reads one block of row j: scales go to their place in the panel
// block, codes to c (those of Q8_0 to the panel block too).
func packRow(block []byte, c *blockCodes, f quant.Format, j int, row []byte) {
	copy(block[2*j:][:2], row) // d, but for Q6_K
	switch f {
	case quant.Q4_0:
		expandHalves(c, j, (*[16]byte)(row[2:]), 0)
	case quant.Q4_1:
		copy(block[32+2*j:][:2], row[2:])
		expandHalves(c, j, (*[16]byte)(row[4:]), 0)
	case quant.Q5_0:
		expandHalves(c, j, (*[16]byte)(row[6:]), binary.LittleEndian.Uint32(row[2:]))
	case quant.Q5_1:
		copy(block[32+2*j:][:2], row[2:])
		expandHalves(c, j, (*[16]byte)(row[8:]), binary.LittleEndian.Uint32(row[4:]))
	case quant.Q8_0:
		q := (*[32]byte)(row[2:])
		codes := (*[32 * Lanes]byte)(block[32:])
		for k := range q {
			codes[Lanes*k+j] = q[k]
		}
	case quant.Q4_K, quant.Q5_K:
		copy(block[32+2*j:][:2], row[2:])
		g, s := groupsOf(f), row[4:16]
		for n := range 4 {
			low, high := block[g.head+n*g.stride:][:32], block[g.head+(n+4)*g.stride:][:32]
			low[j], low[16+j] = s[n]&63, s[n+4]&63
			high[j], high[16+j] = s[n+8]&15|s[n]>>6<<4, s[n+8]>>4|s[n+4]>>6<<4
		}
		expandK(c, j, f, row[16:])
	case quant.Q6_K:
		copy(block[2*j:][:2], row[208:])
		g := groupsOf(f)
		for n := range g.n {
			block[g.head+n*g.stride+j] = row[192+n]
		}
		expand6(c, j, row)
	}
}

// unpackRow is the inverse of packRow.
func unpackRow(row []byte, c *blockCodes, f quant.Format, j int, block []byte) {
	copy(row, block[2*j:][:2])
	switch f {
	case quant.Q4_0:
		gatherHalves((*[16]byte)(row[2:]), c, j)
	case quant.Q4_1:
		copy(row[2:], block[32+2*j:][:2])
		gatherHalves((*[16]byte)(row[4:]), c, j)
	case quant.Q5_0:
		binary.LittleEndian.PutUint32(row[2:], gatherHalves((*[16]byte)(row[6:]), c, j))
	case quant.Q5_1:
		copy(row[2:], block[32+2*j:][:2])
		binary.LittleEndian.PutUint32(row[4:], gatherHalves((*[16]byte)(row[8:]), c, j))
	case quant.Q8_0:
		for k := range 32 {
			row[2+k] = block[32+Lanes*k+j]
		}
	case quant.Q4_K, quant.Q5_K:
		copy(row[2:], block[32+2*j:][:2])
		g, s := groupsOf(f), row[4:16]
		for n := range 4 {
			low, high := block[g.head+n*g.stride:][:32], block[g.head+(n+4)*g.stride:][:32]
			s[n], s[n+4] = low[j]|high[j]>>4<<6, low[16+j]|high[16+j]>>4<<6
			s[n+8] = high[j]&15 | high[16+j]<<4
		}
		gatherK(row[16:], c, j, f)
	case quant.Q6_K:
		copy(row[208:], block[2*j:][:2])
		g := groupsOf(f)
		for n := range g.n {
			row[192+n] = block[g.head+n*g.stride+j]
		}
		gather6(row, c, j)
	}
}

// expandHalves writes the 32 codes of lane j: low nibbles first, then high
// nibbles, bit 4 from high.
func expandHalves(c *blockCodes, j int, qs *[16]byte, high uint32) {
	for i, q := range qs {
		c[i][j] = q&15 | uint8(high>>i&1)<<4
		c[i+16][j] = q>>4 | uint8(high>>(i+16)&1)<<4
	}
}

// gatherHalves is the inverse of expandHalves; it returns high.
func gatherHalves(qs *[16]byte, c *blockCodes, j int) (high uint32) {
	for i := range qs {
		a, b := c[i][j], c[i+16][j]
		qs[i] = a&15 | b<<4
		high |= uint32(a>>4)<<i | uint32(b>>4)<<(i+16)
	}
	return high
}

// expandK writes the 256 codes of lane j from the bytes of a Q4_K or Q5_K block
// behind its scales.
func expandK(c *blockCodes, j int, f quant.Format, b []byte) {
	if f == quant.Q4_K {
		for n := range 4 {
			codes := (*[64][Lanes]uint8)(c[64*n:])
			for l, q := range (*[32]byte)(b[32*n:]) {
				codes[l][j], codes[l+32][j] = q&15, q>>4
			}
		}
		return
	}
	high := (*[32]byte)(b)
	for n := range 4 {
		codes := (*[64][Lanes]uint8)(c[64*n:])
		for l, q := range (*[32]byte)(b[32+32*n:]) {
			h := high[l] >> (2 * n)
			codes[l][j], codes[l+32][j] = q&15|h&1<<4, q>>4|h>>1&1<<4
		}
	}
}

// gatherK is the inverse of expandK.
func gatherK(b []byte, c *blockCodes, j int, f quant.Format) {
	qs := b
	if f == quant.Q5_K {
		clear(b[:32])
		qs = b[32:]
	}
	for n := range 4 {
		for l := range 32 {
			x, y := c[64*n+l][j], c[64*n+l+32][j]
			qs[32*n+l] = x&15 | y<<4
			if f == quant.Q5_K {
				b[l] |= (x>>4 | y>>4<<1) << (2 * n)
			}
		}
	}
}

// expand6 writes the 256 codes of lane j from a Q6_K block.
func expand6(c *blockCodes, j int, b []byte) {
	for n := range 2 { // halves of 128
		codes := (*[128][Lanes]uint8)(c[128*n:])
		low, high := (*[64]byte)(b[64*n:]), (*[32]byte)(b[128+32*n:])
		for l, h := range high {
			x, y := low[l], low[l+32]
			codes[l][j], codes[l+32][j] = x&15|h&3<<4, y&15|h>>2&3<<4
			codes[l+64][j], codes[l+96][j] = x>>4|h>>4&3<<4, y>>4|h>>6<<4
		}
	}
}

// gather6 is the inverse of expand6.
func gather6(b []byte, c *blockCodes, j int) {
	for n := range 2 {
		for l := range 32 {
			w, x, y, z := c[128*n+l][j], c[128*n+l+32][j], c[128*n+l+64][j], c[128*n+l+96][j]
			b[64*n+l], b[64*n+l+32] = w&15|y<<4, x&15|z<<4
			b[128+32*n+l] = w>>4 | x>>4<<2 | y>>4<<4 | z>>4<<6
		}
	}
}
