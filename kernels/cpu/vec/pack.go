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
	var none []byte // beside the last of an odd number of rows
	if len(rows)%2 == 1 {
		none = make([]byte, f.Bytes(in))
	}
	pack, size, wide := pairPackerOf(f), f.BlockBytes(), panelBlockBytes(f)
	step := max(1, packBytes/wide) // blocks
	for b, n := 0, in/f.BlockLen(); b < n; b += step {
		from, to := b*size, min(b+step, n)*size
		for lane := 0; lane < len(rows); lane += 2 {
			second := none
			if lane+1 < len(rows) {
				second = rows[lane+1]
			}
			pack(dst[b*wide:], lane, rows[lane][from:to], second[from:to])
		}
	}
}

// packBytes is how much of a panel is packed before what follows, so that its
// lines are still in the first-level cache when the last rows come to them.
const packBytes = 8 << 10

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

// unpack is the inverse of pack.
func (c *rowCodes) unpack(block []byte, g groups) {
	for n := range g.n {
		src := block[g.head+n*g.stride+g.scale:][:g.stride-g.scale]
		low, high := src[:8*g.len], src[8*g.len:]
		for lane := range c {
			codes, h := c[lane][n*g.len:][:g.len], uint32(0)
			if g.high > 0 {
				h = halfWord(high[4*lane:])
			}
			for k := 0; k < g.len; k += 8 {
				w := halfWord(low[8*k+4*lane:])
				first, second := w&nibble4, w>>4&nibble4
				switch g.high {
				case 1:
					first |= h >> (k / 4) & one4 << 4
					second |= h >> (k/4 + 1) & one4 << 4
				case 2:
					first |= h >> (k / 2) & two4 << 4
					second |= h >> (k/2 + 2) & two4 << 4
				}
				putWord(codes[k:], uint64(first)|uint64(second)<<32)
			}
		}
	}
}

// unpackBytes is the inverse of packBytes.
func (c *rowCodes) unpackBytes(src []byte) {
	for lane := range c {
		for k := 0; k < 32; k += 4 {
			putHalfWord(c[lane][k:], halfWord(src[Lanes*k+4*lane:]))
		}
	}
}
