package vec

import (
	"encoding/binary"
	"fmt"

	"graft/kernels/quant"
)

// Pack packs a matrix of out rows of in weights, stored row after row as in a
// model file (f.Bytes(in) bytes each), into Panels(out) panels. Outputs beyond
// the last row get weights of zero. len(dst) is Panels(out)·PanelBytes(f, in).
func Pack(dst []byte, f quant.Format, out, in int, src []byte) {
	row, panel := f.Bytes(in), PanelBytes(f, in)
	if len(src) != out*row || len(dst) != Panels(out)*panel {
		panic(fmt.Sprintf("vec: Pack %v [%d %d]: %d bytes into %d, want %d into %d",
			f, out, in, len(src), len(dst), out*row, Panels(out)*panel))
	}
	var rows [Lanes][]byte
	for p := range Panels(out) {
		n := min(Lanes, out-p*Lanes)
		for j := range n {
			rows[j] = src[(p*Lanes+j)*row:][:row]
		}
		PackPanel(dst[p*panel:][:panel], f, in, rows[:n])
	}
}

// PackPanel packs up to 16 rows of in weights, f.Bytes(in) bytes each, into one
// panel of PanelBytes(f, in) bytes. Missing rows get weights of zero.
func PackPanel(dst []byte, f quant.Format, in int, rows [][]byte) {
	checkPanel("PackPanel", dst, f, in, rows)
	if len(rows) < Lanes {
		clear(dst)
	}
	switch f {
	case quant.F32:
		for k := range in {
			d := dst[64*k:][:64]
			for j, row := range rows {
				binary.LittleEndian.PutUint32(d[4*j:], binary.LittleEndian.Uint32(row[4*k:]))
			}
		}
		return
	case quant.F16, quant.BF16:
		for k := range in {
			d := dst[32*k:][:32]
			for j, row := range rows {
				binary.LittleEndian.PutUint16(d[2*j:], binary.LittleEndian.Uint16(row[2*k:]))
			}
		}
		return
	}
	var codes rowCodes
	size, wide := f.BlockBytes(), panelBlockBytes(f)
	for b := range in / f.BlockLen() {
		block := dst[b*wide:][:wide]
		for j, row := range rows {
			packRow(block, &codes, f, j, row[b*size:][:size])
		}
		if f == quant.Q8_0 {
			codes.packBytes(block[32:])
		} else {
			codes.pack(block, groupsOf(f))
		}
	}
}

// UnpackPanel writes the rows that PackPanel was given, byte for byte.
func UnpackPanel(rows [][]byte, f quant.Format, in int, src []byte) {
	checkPanel("UnpackPanel", src, f, in, rows)
	switch f {
	case quant.F32:
		for k := range in {
			s := src[64*k:][:64]
			for j, row := range rows {
				binary.LittleEndian.PutUint32(row[4*k:], binary.LittleEndian.Uint32(s[4*j:]))
			}
		}
		return
	case quant.F16, quant.BF16:
		for k := range in {
			s := src[32*k:][:32]
			for j, row := range rows {
				binary.LittleEndian.PutUint16(row[2*k:], binary.LittleEndian.Uint16(s[2*j:]))
			}
		}
		return
	}
	var codes rowCodes
	size, wide := f.BlockBytes(), panelBlockBytes(f)
	for b := range in / f.BlockLen() {
		block := src[b*wide:][:wide]
		if f == quant.Q8_0 {
			codes.unpackBytes(block[32:])
		} else {
			codes.unpack(block, groupsOf(f))
		}
		for j, row := range rows {
			unpackRow(row[b*size:][:size], &codes, f, j, block)
		}
	}
}

func checkPanel(what string, panel []byte, f quant.Format, in int, rows [][]byte) {
	if len(rows) > Lanes || len(panel) != PanelBytes(f, in) {
		panic(fmt.Sprintf("vec: %s %v: %d rows of %d, panel of %d bytes; want at most %d rows, %d bytes",
			what, f, len(rows), in, len(panel), Lanes, PanelBytes(f, in)))
	}
	for j, row := range rows {
		if len(row) != f.Bytes(in) {
			panic(fmt.Sprintf("vec: %s %v: row %d has %d bytes, want %d", what, f, j, len(row), f.Bytes(in)))
		}
	}
}

// transpose turns a square of 8×8 bytes, a row to a word, by swapping the
// corners of squares of 2, 4 and 8. Written out, as the compiler unrolls nothing.
func transpose(a, b, c, d, e, f, g, h uint64) (w [8]uint64) {
	a, b = swap1(a, b)
	c, d = swap1(c, d)
	e, f = swap1(e, f)
	g, h = swap1(g, h)
	a, c = swap2(a, c)
	b, d = swap2(b, d)
	e, g = swap2(e, g)
	f, h = swap2(f, h)
	w[0], w[4] = swap4(a, e)
	w[1], w[5] = swap4(b, f)
	w[2], w[6] = swap4(c, g)
	w[3], w[7] = swap4(d, h)
	return w
}

func swap1(a, b uint64) (uint64, uint64) {
	t := (a>>8 ^ b) & 0x00ff00ff00ff00ff
	return a ^ t<<8, b ^ t
}

func swap2(a, b uint64) (uint64, uint64) {
	t := (a>>16 ^ b) & 0x0000ffff0000ffff
	return a ^ t<<16, b ^ t
}

func swap4(a, b uint64) (uint64, uint64) {
	return a&0xffffffff | b<<32, a>>32 | b&^0xffffffff
}

// byK returns the codes of eight k from k on of eight lanes from lane on, a k to
// a word; putByK is its inverse. k and lane are multiples of 8.
func (c *rowCodes) byK(k, lane int) [8]uint64 {
	k &= 256 - 8
	r := (*[8][256]uint8)(c[lane:])
	return transpose(word(r[0][k:k+8]), word(r[1][k:k+8]), word(r[2][k:k+8]), word(r[3][k:k+8]),
		word(r[4][k:k+8]), word(r[5][k:k+8]), word(r[6][k:k+8]), word(r[7][k:k+8]))
}

func (c *rowCodes) putByK(k, lane int, w *[8]uint64) {
	k &= 256 - 8
	r := (*[8][256]uint8)(c[lane:])
	for i, w := range transpose(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]) {
		putWord(r[i][k:k+8], w)
	}
}

// pack writes the codes to the panel block, a nibble and its high bits each.
func (c *rowCodes) pack(block []byte, g groups) {
	for n := range g.n {
		dst := block[g.head+n*g.stride+g.scale:][:g.stride-g.scale]
		high := dst[8*g.len:]
		for k := 0; k < g.len; k += 8 {
			for lane := 0; lane < Lanes; lane += 8 {
				w, d := c.byK(n*g.len+k, lane), (*[56]byte)(dst[8*k+lane:])
				putWord(d[0:], w[0]&nibble8|w[1]&nibble8<<4)
				putWord(d[16:], w[2]&nibble8|w[3]&nibble8<<4)
				putWord(d[32:], w[4]&nibble8|w[5]&nibble8<<4)
				putWord(d[48:], w[6]&nibble8|w[7]&nibble8<<4)
				switch g.high {
				case 1:
					h := w[0]>>4&ones | w[1]>>4&ones<<1 | w[2]>>4&ones<<2 | w[3]>>4&ones<<3
					h |= w[4]>>4&ones<<4 | w[5]>>4&ones<<5 | w[6]>>4&ones<<6 | w[7]>>4&ones<<7
					putWord(high[2*k+lane:], h)
				case 2:
					putWord(high[4*k+lane:], w[0]>>4&twos|w[1]>>4&twos<<2|w[2]>>4&twos<<4|w[3]>>4&twos<<6)
					putWord(high[4*k+16+lane:], w[4]>>4&twos|w[5]>>4&twos<<2|w[6]>>4&twos<<4|w[7]>>4&twos<<6)
				}
			}
		}
	}
}

// unpack is the inverse of pack.
func (c *rowCodes) unpack(block []byte, g groups) {
	for n := range g.n {
		src := block[g.head+n*g.stride+g.scale:][:g.stride-g.scale]
		high := src[8*g.len:]
		for k := 0; k < g.len; k += 8 {
			for lane := 0; lane < Lanes; lane += 8 {
				var w [8]uint64
				for i := 0; i < 8; i += 2 {
					q := word(src[8*(k+i)+lane:])
					w[i], w[i+1] = q&nibble8, q>>4&nibble8
				}
				for i := range w {
					switch g.high {
					case 1:
						w[i] |= word(high[2*k+lane:]) >> i & ones << 4
					case 2:
						w[i] |= word(high[4*(k+i&^3)+lane:]) >> (2 * (i & 3)) & twos << 4
					}
				}
				c.putByK(n*g.len+k, lane, &w)
			}
		}
	}
}

// packBytes writes 32 codes as they are.
func (c *rowCodes) packBytes(dst []byte) {
	for k := 0; k < 32; k += 8 {
		for lane := 0; lane < Lanes; lane += 8 {
			for i, w := range c.byK(k, lane) {
				putWord(dst[Lanes*(k+i)+lane:], w)
			}
		}
	}
}

// unpackBytes is the inverse of packBytes.
func (c *rowCodes) unpackBytes(src []byte) {
	for k := 0; k < 32; k += 8 {
		for lane := 0; lane < Lanes; lane += 8 {
			var w [8]uint64
			for i := range w {
				w[i] = word(src[Lanes*(k+i)+lane:])
			}
			c.putByK(k, lane, &w)
		}
	}
}
