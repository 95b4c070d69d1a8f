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
	var codes blockCodes
	size, wide := f.BlockBytes(), panelBlockBytes(f)
	for b := range in / f.BlockLen() {
		block := dst[b*wide:][:wide]
		for j, row := range rows {
			packRow(block, &codes, f, j, row[b*size:][:size])
		}
		if f != quant.Q8_0 {
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
	var codes blockCodes
	size, wide := f.BlockBytes(), panelBlockBytes(f)
	for b := range in / f.BlockLen() {
		block := src[b*wide:][:wide]
		if f != quant.Q8_0 {
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

// blockCodes is the codes of one block of 16 rows, one byte each: [k][lane].
type blockCodes [256][Lanes]uint8

// pack writes the codes to the panel block, two to eight to a byte, eight lanes
// at a time.
func (c *blockCodes) pack(block []byte, g groups) {
	const low, one, two = 0x0f0f0f0f0f0f0f0f, 0x0101010101010101, 0x0303030303030303
	for n := range g.n {
		dst, codes := block[g.head+n*g.stride+g.scale:][:g.stride-g.scale], c[n*g.len:][:g.len]
		for half := 0; half < Lanes; half += 8 {
			var high uint64
			for k := 0; k < g.len; k += 2 {
				a := binary.LittleEndian.Uint64(codes[k][half:])
				b := binary.LittleEndian.Uint64(codes[k+1][half:])
				binary.LittleEndian.PutUint64(dst[8*k+half:], a&low|b&low<<4)
				switch g.high {
				case 1:
					high |= a>>4&one<<(k&7) | b>>4&one<<(k&7+1)
					if k&7 == 6 {
						binary.LittleEndian.PutUint64(dst[8*g.len+2*(k&^7)+half:], high)
						high = 0
					}
				case 2:
					high |= a>>4&two<<(2*(k&3)) | b>>4&two<<(2*(k&3)+2)
					if k&3 == 2 {
						binary.LittleEndian.PutUint64(dst[8*g.len+4*(k&^3)+half:], high)
						high = 0
					}
				}
			}
		}
	}
}

// unpack is the inverse of pack.
func (c *blockCodes) unpack(block []byte, g groups) {
	const low, one, two = 0x0f0f0f0f0f0f0f0f, 0x0101010101010101, 0x0303030303030303
	for n := range g.n {
		src, codes := block[g.head+n*g.stride+g.scale:][:g.stride-g.scale], c[n*g.len:][:g.len]
		for half := 0; half < Lanes; half += 8 {
			for k := 0; k < g.len; k += 2 {
				q := binary.LittleEndian.Uint64(src[8*k+half:])
				a, b := q&low, q>>4&low
				switch g.high {
				case 1:
					h := binary.LittleEndian.Uint64(src[8*g.len+2*(k&^7)+half:]) >> (k & 7)
					a, b = a|h&one<<4, b|h>>1&one<<4
				case 2:
					h := binary.LittleEndian.Uint64(src[8*g.len+4*(k&^3)+half:]) >> (2 * (k & 3))
					a, b = a|h&two<<4, b|h>>2&two<<4
				}
				binary.LittleEndian.PutUint64(codes[k][half:], a)
				binary.LittleEndian.PutUint64(codes[k+1][half:], b)
			}
		}
	}
}
