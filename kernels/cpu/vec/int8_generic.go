package vec

import (
	"unsafe"

	"graft/kernels/quant"
)

// quantize8Generic is quant.QuantizeActivations or quant.QuantizeGradients over raw memory.
func quantize8Generic(q *Quantize8Args) {
	n := int(q.N / quant.ActivationLen)
	dst, x := unsafe.Slice((*quant.ActivationBlock)(q.Q), n), unsafe.Slice((*float32)(q.X), n*quant.ActivationLen)
	if q.Largest == quant.GradientTop {
		quant.QuantizeGradients(dst, x)
		return
	}
	quant.QuantizeActivations(dst, x)
}

// codes8 is one group of a panel under the int8 contract: the codes of its k
// less their zero, and the scales of its lanes.
type codes8 struct {
	q    [32][Lanes]int8
	n    int // k in use: 16 or 32
	d, m [Lanes]float32
	min  bool // m counts
}

func gemm8Generic(f quant.Format) func(*Gemm8Args) {
	return func(g *Gemm8Args) {
		var c codes8
		g.begin()
		for p := range g.P {
			panel := unsafe.Add(g.W, p*g.PanelBytes)
			for k := int64(0); k < g.K; k += int64(c.n) {
				c.read(f, panel, k)
				for i := range g.M {
					row := unsafe.Add(g.X, i*g.XRow+k/quant.ActivationLen*int64(unsafe.Sizeof(quant.ActivationBlock{})))
					c.addTo(f32x16(g.Y, i*g.YRow+Lanes*p), (*quant.ActivationBlock)(row), int(k)%quant.ActivationLen)
				}
			}
		}
	}
}

// begin clears Y unless its values are kept.
func (g *Gemm8Args) begin() {
	for i := range g.M {
		for p := range g.P {
			if g.Keep == 0 {
				*f32x16(g.Y, i*g.YRow+Lanes*p) = [Lanes]float32{}
			}
		}
	}
}

func gemmTurnedGeneric(g *Gemm8Args) {
	g.begin()
	c := codes8{n: quant.WeightRunLen}
	for p := range g.P {
		for k := int64(0); k < g.K; k += quant.WeightRunLen {
			block := unsafe.Add(g.W, p*g.PanelBytes+k/quant.WeightRunLen*TurnedBytes)
			c.d = *(*[Lanes]float32)(block)
			for i := range c.q {
				for lane := range c.q[i] {
					c.q[i][lane] = int8(*turnedCode(block, i, lane) - turnedZero)
				}
			}
			for i := range g.M {
				row := unsafe.Add(g.X, i*g.XRow+k/quant.ActivationLen*int64(unsafe.Sizeof(quant.ActivationBlock{})))
				c.addTo(f32x16(g.Y, i*g.YRow+Lanes*p), (*quant.ActivationBlock)(row), 0)
			}
		}
	}
}

// turnedZero is the code of a Turn8 block that stands for zero.
const turnedZero = 64

// turnedCode is the code of one row and lane of a block that Turn8 makes.
func turnedCode(block unsafe.Pointer, row, lane int) *uint8 {
	return (*uint8)(unsafe.Add(block, 4*Lanes+row/4*4*Lanes+4*lane+row%4))
}

func turn8Generic(g *Turn8Args) {
	for n := range g.N {
		block := unsafe.Add(g.Panel, n*TurnedBytes)
		for lane := range Lanes {
			var w [quant.WeightRunLen]float32
			for i := range w {
				w[i] = *(*float32)(unsafe.Add(g.W, 4*((n*quant.WeightRunLen+int64(i))*g.Row+int64(lane))))
			}
			var r quant.WeightRun
			r.Round(&w)
			(*[Lanes]float32)(block)[lane] = r.Scale
			for i, c := range r.Codes {
				*turnedCode(block, i, lane) = uint8(c + turnedZero)
			}
		}
	}
}

// addTo continues the chains of one row by the group, whose codes begin at code
// `at` of the row's block.
func (c *codes8) addTo(acc *[Lanes]float32, x *quant.ActivationBlock, at int) {
	var sums [Lanes]int32
	for i, codes := range c.q[:c.n] {
		for lane, q := range codes {
			sums[lane] += int32(q) * int32(x.Codes[at+i])
		}
	}
	for lane, s := range sums {
		acc[lane] = fma32(float32(s), float32(c.d[lane]*x.Scale), acc[lane])
		if c.min {
			acc[lane] = fma32(c.m[lane], x.Sum, acc[lane])
		}
	}
}

// read decodes the group at k of a panel.
func (c *codes8) read(f quant.Format, panel unsafe.Pointer, k int64) {
	block := unsafe.Add(panel, int(k)/f.BlockLen()*panelBlockBytes(f))
	c.n, c.min = 32, false
	c.d = halves(block, 0)
	if f == quant.Q8_0 {
		for i := range c.q {
			for lane := range c.q[i] {
				c.q[i][lane] = (*[32 * Lanes]int8)(unsafe.Add(block, 32))[i/4*64+4*lane+i%4]
			}
		}
		return
	}
	g := groupsOf(f)
	group := unsafe.Add(block, g.head+int(k)%f.BlockLen()/g.len*g.stride)
	codes, high := unsafe.Add(group, g.scale), unsafe.Add(group, g.scale+8*g.len)
	c.n = g.len
	var q [rowsPerDecode][Lanes]uint8
	for at := 0; at < g.len; at += rowsPerDecode {
		nibbles(&q, unsafe.Add(codes, 8*at))
		switch g.high {
		case 1:
			fifths(&q, high, int64(at))
		case 2:
			tops(&q, high)
		}
		for i := range q {
			for lane := range q[i] {
				c.q[at+i][lane] = int8(int(q[i][lane]) - zeroOf(f))
			}
		}
	}
	switch f {
	case quant.Q4_1, quant.Q5_1:
		c.min, c.m = true, halves(block, 32)
	case quant.Q4_K, quant.Q5_K:
		c.min = true
		c.d, c.m = subScales(block, group)
	case quant.Q6_K:
		for lane, s := range *(*[Lanes]int8)(group) {
			c.d[lane] *= float32(s)
		}
	}
}

// zeroOf is the code that stands for zero.
func zeroOf(f quant.Format) int {
	switch f {
	case quant.Q4_0:
		return 8
	case quant.Q5_0:
		return 16
	case quant.Q6_K:
		return 32
	}
	return 0
}
