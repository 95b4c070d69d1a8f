package vec

import (
	"unsafe"

	"graft/kernels/quant"
)

// rowsPerDecode is the number of k that decodeRows yields at once.
const rowsPerDecode = 16

// decodeRows writes w(k0+i, lane) of a panel to dst for i < n; n is at most 16,
// and for quantized formats it is 16 and k0 a multiple of 16. It is a switch and
// no table of functions, so that dst stays on the stack of the caller.
func decodeRows(f quant.Format, dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0, n int64) {
	switch f {
	case quant.F32:
		decodeRowsF32(dst, panel, k0, n)
	case quant.F16:
		decodeRowsF16(dst, panel, k0, n)
	case quant.BF16:
		decodeRowsBF16(dst, panel, k0, n)
	case quant.Q4_0:
		decodeRowsQ4_0(dst, panel, k0)
	case quant.Q4_1:
		decodeRowsQ4_1(dst, panel, k0)
	case quant.Q5_0:
		decodeRowsQ5_0(dst, panel, k0)
	case quant.Q5_1:
		decodeRowsQ5_1(dst, panel, k0)
	case quant.Q8_0:
		decodeRowsQ8_0(dst, panel, k0)
	case quant.Q4_K:
		decodeRowsQ4_K(dst, panel, k0)
	case quant.Q5_K:
		decodeRowsQ5_K(dst, panel, k0)
	case quant.Q6_K:
		decodeRowsQ6_K(dst, panel, k0)
	}
}

func decodeGeneric(f quant.Format) func(*DecodeArgs) {
	return func(d *DecodeArgs) {
		var rows [rowsPerDecode][Lanes]float32
		for k := int64(0); k < d.K; k += rowsPerDecode {
			n := min(rowsPerDecode, d.K-k)
			decodeRows(f, &rows, d.Panel, d.K0+k, n)
			for i := range n {
				*f32x16(d.Dst, Lanes*(k+i)) = rows[i]
			}
		}
	}
}

func gemvGeneric(f quant.Format) func(*GemvArgs) {
	return func(g *GemvArgs) {
		gemvRowsOf(f, &GemvRowsArgs{X: g.X, W: g.W, Y: g.Y, K: g.K, P: g.P, PanelBytes: g.PanelBytes, M: 1})
	}
}

func gemvRowsGeneric(f quant.Format) func(*GemvRowsArgs) {
	return func(g *GemvRowsArgs) { gemvRowsOf(f, g) }
}

// gemvRowsOf decodes a weight once for all rows; M is at most 4.
func gemvRowsOf(f quant.Format, g *GemvRowsArgs) {
	var rows [rowsPerDecode][Lanes]float32
	var acc [4][Lanes]float32
	for p := range g.P {
		for m := range g.M {
			acc[m] = *f32x16(g.Y, m*g.YRow+Lanes*p)
		}
		for k := int64(0); k < g.K; k += rowsPerDecode {
			n := min(rowsPerDecode, g.K-k)
			decodeRows(f, &rows, unsafe.Add(g.W, p*g.PanelBytes), k, n)
			for m := range g.M {
				for i := range n {
					fmaLanes(&acc[m], *(*float32)(unsafe.Add(g.X, 4*(m*g.XRow+k+i))), &rows[i])
				}
			}
		}
		for m := range g.M {
			*f32x16(g.Y, m*g.YRow+Lanes*p) = acc[m]
		}
	}
}

func decodeRowsF32(dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0, n int64) {
	for i := range n {
		dst[i] = *f32x16(panel, Lanes*(k0+i))
	}
}

func decodeRowsF16(dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0, n int64) {
	for i := range n {
		dst[i] = halves(panel, 32*(k0+i))
	}
}

func decodeRowsBF16(dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0, n int64) {
	for i := range n {
		for lane, h := range *(*[Lanes]uint16)(unsafe.Add(panel, 32*(k0+i))) {
			dst[i][lane] = quant.BF16ToF32(h)
		}
	}
}

// halves returns the 16 float16 at byte off of p.
func halves(p unsafe.Pointer, off int64) (v [Lanes]float32) {
	for lane, h := range *(*[Lanes]uint16)(unsafe.Add(p, off)) {
		v[lane] = quant.F16ToF32(h)
	}
	return v
}

// The decoders of quantized formats read the codes of 16 k, half a block of 32
// or a whole sub-block of Q6_K, and scale them. In all of them the product of
// scale and code is exact in float32, so multiply, round and add give what the
// fused form gives.

// nibbles writes the low four bits of the codes of 16 k, as the two rows of 64
// bytes at p hold them.
func nibbles(q *[rowsPerDecode][Lanes]uint8, p unsafe.Pointer) {
	for i := range q {
		codes := (*[4 * Lanes]uint8)(unsafe.Add(p, i/8*64))
		for lane := range q[i] {
			q[i][lane] = codes[4*lane+i%4] >> (i % 8 / 4 * 4) & 15
		}
	}
}

// fifths adds bit 4 of the codes from k on, k 0 or 16, from the 64 bytes at p.
func fifths(q *[rowsPerDecode][Lanes]uint8, p unsafe.Pointer, k int64) {
	for i := range q {
		for lane := range q[i] {
			q[i][lane] |= (*[4 * Lanes]uint8)(p)[4*lane+i%4] >> (int(k)/4 + i/4) & 1 << 4
		}
	}
}

// tops adds bits 4 and 5 from the 64 bytes at p.
func tops(q *[rowsPerDecode][Lanes]uint8, p unsafe.Pointer) {
	for i := range q {
		for lane := range q[i] {
			q[i][lane] |= (*[4 * Lanes]uint8)(p)[4*lane+i%4] >> (i / 4 * 2) & 3 << 4
		}
	}
}

// scaleCodes writes (q − zero)·d.
func scaleCodes(dst *[rowsPerDecode][Lanes]float32, q *[rowsPerDecode][Lanes]uint8, d *[Lanes]float32, zero int) {
	for i := range dst {
		for lane := range dst[i] {
			dst[i][lane] = float32(int(q[i][lane])-zero) * d[lane]
		}
	}
}

// scaleAdd writes q·d + m.
func scaleAdd(dst *[rowsPerDecode][Lanes]float32, q *[rowsPerDecode][Lanes]uint8, d, m *[Lanes]float32) {
	for i := range dst {
		for lane := range dst[i] {
			dst[i][lane] = float32(float32(q[i][lane])*d[lane]) + m[lane]
		}
	}
}

func decodeRowsQ4_0(dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0 int64) {
	block := unsafe.Add(panel, k0/32*288)
	var q [rowsPerDecode][Lanes]uint8
	nibbles(&q, unsafe.Add(block, 32+8*(k0%32)))
	d := halves(block, 0)
	scaleCodes(dst, &q, &d, 8)
}

func decodeRowsQ4_1(dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0 int64) {
	block := unsafe.Add(panel, k0/32*320)
	var q [rowsPerDecode][Lanes]uint8
	nibbles(&q, unsafe.Add(block, 64+8*(k0%32)))
	d, m := halves(block, 0), halves(block, 32)
	scaleAdd(dst, &q, &d, &m)
}

func decodeRowsQ5_0(dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0 int64) {
	block := unsafe.Add(panel, k0/32*352)
	var q [rowsPerDecode][Lanes]uint8
	nibbles(&q, unsafe.Add(block, 32+8*(k0%32)))
	fifths(&q, unsafe.Add(block, 32+256), k0%32)
	d := halves(block, 0)
	scaleCodes(dst, &q, &d, 16)
}

func decodeRowsQ5_1(dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0 int64) {
	block := unsafe.Add(panel, k0/32*384)
	var q [rowsPerDecode][Lanes]uint8
	nibbles(&q, unsafe.Add(block, 64+8*(k0%32)))
	fifths(&q, unsafe.Add(block, 64+256), k0%32)
	d, m := halves(block, 0), halves(block, 32)
	scaleAdd(dst, &q, &d, &m)
}

func decodeRowsQ8_0(dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0 int64) {
	block := unsafe.Add(panel, k0/32*544)
	d, q := halves(block, 0), (*[rowsPerDecode * Lanes]int8)(unsafe.Add(block, 32+16*(k0%32)))
	for i := range dst {
		for lane := range dst[i] {
			dst[i][lane] = float32(q[i/4*64+4*lane+i%4]) * d[lane]
		}
	}
}

func decodeRowsQ4_K(dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0 int64) {
	block := unsafe.Add(panel, k0/256*2368)
	sub := unsafe.Add(block, 64+k0%256/32*288)
	var q [rowsPerDecode][Lanes]uint8
	nibbles(&q, unsafe.Add(sub, 32+8*(k0%32)))
	d, m := subScales(block, sub)
	scaleAdd(dst, &q, &d, &m)
}

func decodeRowsQ5_K(dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0 int64) {
	block := unsafe.Add(panel, k0/256*2880)
	sub := unsafe.Add(block, 64+k0%256/32*352)
	var q [rowsPerDecode][Lanes]uint8
	nibbles(&q, unsafe.Add(sub, 32+8*(k0%32)))
	fifths(&q, unsafe.Add(sub, 32+256), k0%32)
	d, m := subScales(block, sub)
	scaleAdd(dst, &q, &d, &m)
}

// subScales returns d·sc and −(dmin·m) of a sub-block of Q4_K or Q5_K.
func subScales(block, sub unsafe.Pointer) (d, m [Lanes]float32) {
	d, m = halves(block, 0), halves(block, 32)
	for lane, s := range *(*[Lanes]uint8)(sub) {
		d[lane] *= float32(s)
	}
	for lane, s := range *(*[Lanes]uint8)(unsafe.Add(sub, 16)) {
		m[lane] = -(m[lane] * float32(s))
	}
	return d, m
}

func decodeRowsQ6_K(dst *[rowsPerDecode][Lanes]float32, panel unsafe.Pointer, k0 int64) {
	block := unsafe.Add(panel, k0/256*3360)
	sub := unsafe.Add(block, 32+k0%256/16*208)
	var q [rowsPerDecode][Lanes]uint8
	nibbles(&q, unsafe.Add(sub, 16))
	tops(&q, unsafe.Add(sub, 16+128))
	d := halves(block, 0)
	for lane, s := range *(*[Lanes]int8)(sub) {
		d[lane] *= float32(s)
	}
	scaleCodes(dst, &q, &d, 32)
}
