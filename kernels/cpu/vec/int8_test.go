package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"graft/kernels/quant"
)

// rounded is x [m, in] as blocks, pad bytes between rows.
func rounded(k *Kernels, x []float32, m, in, pad int) (blocks []byte, row int) {
	return roundedTo(k, x, m, in, pad, quant.ActivationTop)
}

func roundedTo(k *Kernels, x []float32, m, in, pad int, largest float32) (blocks []byte, row int) {
	size := int(unsafe.Sizeof(quant.ActivationBlock{}))
	row = in/quant.ActivationLen*size + pad
	blocks = make([]byte, m*row+size)
	for i := range m {
		k.Quantize8(&Quantize8Args{X: unsafe.Pointer(&x[i*in]), Q: unsafe.Pointer(&blocks[i*row]), N: int64(in), Largest: largest})
	}
	return blocks, row
}

func TestQuantize8IsQuantizeActivations(t *testing.T) {
	eachISA(t, func(t *testing.T, k *Kernels) {
		for i, f := range []fill{ordinary, wide, extreme} {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			for n := 0; n <= 320; n += 32 {
				x := make([]float32, n+1)
				size := float32(math.Ldexp(1, rng.IntN(220)-110))
				for i := range x {
					x[i] = size * f(rng)
					if rng.IntN(4) == 0 { // ties, when the largest is 127
						x[i] = float32(rng.IntN(508)-254) / 2
					}
				}
				want := make([]quant.ActivationBlock, n/32+2)
				got := make([]quant.ActivationBlock, n/32+2)
				want[n/32].Low, got[n/32].Low = 7, 7 // what must not be written
				a := &Quantize8Args{X: unsafe.Pointer(&x[0]), Q: unsafe.Pointer(&got[0]), N: int64(n), Largest: quant.ActivationTop}
				if n%64 == 0 {
					quant.QuantizeActivations(want[:n/32], x[:n])
				} else {
					quant.QuantizeGradients(want[:n/32], x[:n])
					a.Largest = quant.GradientTop
				}
				k.Quantize8(a)
				for j := range want {
					a, b := want[j], got[j]
					require.Equal(t, math.IsNaN(float64(a.Scale)), math.IsNaN(float64(b.Scale)))
					require.Equal(t, math.IsNaN(float64(a.Sum)), math.IsNaN(float64(b.Sum)))
					if a.Scale != a.Scale {
						a.Scale, a.Sum, b.Scale, b.Sum = 0, 0, 0, 0
					}
					require.Equal(t, a, b, "n %d block %d of %v", n, j, x[:min(n, 32*j+32)])
				}
			}
		}
	})
}

func TestGemm8BitsAreThoseOfTheTwin(t *testing.T) {
	eachISA(t, func(t *testing.T, k *Kernels) {
		rng, twin := rand.New(rand.NewPCG(5, 6)), For(Generic)
		for _, f := range quant.Formats() {
			if f.BlockLen() == 1 {
				require.Nil(t, k.Gemm8[f])
				continue
			}
			fills := []fill{ordinary, wide, extreme}
			for m := range 41 { // past three blocks of twelve rows, and a rest
				in, p, pick, keep, extra := f.BlockLen()*(1+rng.IntN(3)), rng.IntN(4), rng.IntN(len(fills)), rng.IntN(2), rng.IntN(3)
				w := packed(rng, f, 16*p, in, rng.IntN(4) == 0)
				x := make([]float32, m*in+1)
				for i := range x {
					x[i] = fills[pick](rng)
				}
				blocks, row := rounded(twin, x, m, in, 3*rng.IntN(2))
				yRow, offset := 16*p+extra, 4*rng.IntN(5)
				want, got := fence(m*yRow+1, offset), fence(m*yRow+1, offset)
				fillFloats(rng, want.floats(), false)
				copy(got.floats(), want.floats())
				g := &Gemm8Args{X: unsafe.Pointer(&blocks[0]), K: int64(in), P: int64(p), PanelBytes: int64(PanelBytes(f, in)),
					M: int64(m), XRow: int64(row), YRow: int64(yRow), Keep: int64(keep)}
				if p > 0 {
					g.W = unsafe.Pointer(&w[0])
				}
				g.Y = want.at(0)
				twin.Gemm8[f](g)
				g.Y = got.at(0)
				k.Gemm8[f](g)
				requireSame(t, want, got, fmt.Sprint(f, " m ", m, " p ", p, " in ", in))
			}
		}
	})
}

// TestGemm8ReachesTheLargestSums multiplies the largest codes, where sums of 16 bits would overflow
// first.
func TestGemm8ReachesTheLargestSums(t *testing.T) {
	for _, isa := range Supported() {
		k := For(isa)
		for _, f := range quant.Formats() {
			if f.BlockLen() == 1 {
				continue
			}
			for _, code := range []byte{0xff, 0x80, 0x7f, 0x00} {
				for _, sign := range []float32{1, -1} {
					in, m := f.BlockLen(), 9
					raw := make([]byte, 16*f.Bytes(in))
					for i := range raw {
						raw[i] = code
					}
					for b := 0; b < len(raw); b += f.BlockBytes() { // scales of one
						at := b
						if f == quant.Q6_K {
							at = b + 208
							for i := range 16 {
								raw[b+192+i] = 1
							}
						}
						raw[at], raw[at+1] = 0, 0x3c
					}
					w := make([]byte, PanelBytes(f, in))
					Pack(w, f, 16, in, raw)
					values := make([]float32, in)
					quant.Decode(values, f, raw[:f.Bytes(in)])
					x, y := make([]float32, m*in), make([]float32, 16*m)
					for i := range x {
						x[i] = 127 * sign
					}
					var want float64
					for _, v := range values {
						want += float64(v) * 127 * float64(sign)
					}
					blocks, row := rounded(k, x, m, in, 0)
					k.Gemm8[f](&Gemm8Args{X: unsafe.Pointer(&blocks[0]), W: unsafe.Pointer(&w[0]), Y: unsafe.Pointer(&y[0]), K: int64(in),
						P: 1, PanelBytes: int64(PanelBytes(f, in)), M: int64(m), XRow: int64(row), YRow: 16})
					for i, v := range y {
						require.InEpsilon(t, 1+math.Abs(want), 1+math.Abs(float64(v)), 1e-6, "%v %v %#x output %d: %v, want %v", isa, f, code, i, v, want)
						require.Equal(t, want < 0, v < 0)
					}
				}
			}
		}
	}
}

// TestGemm8IsTheProductOfRoundedRows compares with what packages without panels and groups say.
func TestGemm8IsTheProductOfRoundedRows(t *testing.T) {
	rng, k := rand.New(rand.NewPCG(7, 8)), For(Generic)
	for _, f := range quant.Formats() {
		if f.BlockLen() == 1 {
			continue
		}
		in, out, m := 2*f.BlockLen(), 16, 3
		raw := randomRows(rng, f, out, in)
		w := make([]byte, PanelBytes(f, in))
		Pack(w, f, out, in, raw)
		x, y, values := make([]float32, m*in), make([]float32, m*out), make([]float32, out*in)
		fillFloats(rng, x, false)
		quant.Decode(values, f, raw)
		blocks, row := rounded(k, x, m, in, 0)
		k.Gemm8[f](&Gemm8Args{X: unsafe.Pointer(&blocks[0]), W: unsafe.Pointer(&w[0]), Y: unsafe.Pointer(&y[0]), K: int64(in),
			P: 1, PanelBytes: int64(PanelBytes(f, in)), M: int64(m), XRow: int64(row), YRow: int64(out)})
		for i := range m {
			b := make([]quant.ActivationBlock, in/quant.ActivationLen)
			quant.QuantizeActivations(b, x[i*in:][:in])
			for o := range out {
				var sum, size float64
				var r [quant.ActivationLen]float64
				for j := range b {
					b[j].Decode(&r)
					for l, v := range r {
						p := v * float64(values[o*in+j*quant.ActivationLen+l])
						sum, size = sum+p, size+math.Abs(p)
					}
				}
				require.InDelta(t, sum, float64(y[i*out+o]), 1e-6*size+1e-30, "%v row %d output %d", f, i, o)
			}
		}
	}
}
