package vec

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"runtime/pprof"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"graft/kernels/quant"
)

// fenced is n float32 with a guard on either side, off bytes from any
// alignment that a vector could want.
type fenced struct {
	raw []byte
	off int
	n   int
}

const fenceBytes = 128

func fence(n, off int) fenced {
	g := fenced{raw: make([]byte, fenceBytes+off+4*n+fenceBytes), off: fenceBytes + off, n: n}
	for i := range g.raw {
		g.raw[i] = 0xa5
	}
	return g
}

func (g fenced) at(i int) unsafe.Pointer { return unsafe.Pointer(&g.raw[g.off+4*i]) }

func (g fenced) floats() []float32 { return unsafe.Slice((*float32)(g.at(0)), g.n) }

// requireSame compares two buffers and their guards bit for bit; any NaN is
// like another.
func requireSame(t *testing.T, want, got fenced, what string) {
	t.Helper()
	for i := range want.floats() {
		w, g := want.floats()[i], got.floats()[i]
		if math.Float32bits(w) != math.Float32bits(g) && (w == w || g == g) {
			require.Failf(t, "differs from Generic", "%s: element %d: want %x (%v), got %x (%v)", what, i, math.Float32bits(w), w, math.Float32bits(g), g)
		}
	}
	for i, b := range got.raw {
		if (i < got.off || i >= got.off+4*got.n) && b != 0xa5 {
			require.Failf(t, "guard overwritten", "%s: byte %d of %d..%d", what, i, got.off, got.off+4*got.n)
		}
	}
}

// fillFloats writes numbers of all sizes: common ones, or hard ones too.
func fillFloats(rng *rand.Rand, dst []float32, hard bool) {
	for i := range dst {
		dst[i] = float32(rng.NormFloat64())
		if hard && rng.IntN(4) == 0 {
			dst[i] = hardFloats(rng)
		}
		if hard && rng.IntN(500) == 0 {
			dst[i] = []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}[rng.IntN(3)]
		}
	}
}

func TestEveryPrimitiveIsInEveryTable(t *testing.T) {
	generic := reflect.ValueOf(*For(Generic))
	for _, isa := range Supported() {
		table := reflect.ValueOf(*For(isa))
		for i := range table.NumField() {
			name := table.Type().Field(i).Name
			check := func(name string, f, twin reflect.Value) {
				require.False(t, f.IsNil(), "%v: %s", isa, name)
				if isa != Generic {
					require.NotEqual(t, twin.Pointer(), f.Pointer(), "%v: %s is the Go twin", isa, name)
				}
			}
			switch field := table.Field(i); field.Kind() {
			case reflect.Func:
				check(name, field, generic.Field(i))
			case reflect.Array:
				for j := range field.Len() {
					if name == "Gemm8" && quant.Format(j).BlockLen() == 1 {
						require.True(t, field.Index(j).IsNil())
						continue
					}
					check(fmt.Sprint(name, " ", quant.Format(j)), field.Index(j), generic.Field(i).Index(j))
				}
			}
		}
	}
	require.Nil(t, For(ISA(99)))
	require.Equal(t, Generic, Supported()[len(Supported())-1])
}

func TestGemmEqualsGeneric(t *testing.T) {
	eachISA(t, func(t *testing.T, k *Kernels) {
		rng := rand.New(rand.NewPCG(11, 12))
		for trial := range 400 {
			m, p, n := rng.IntN(28), rng.IntN(7), rng.IntN(40)
			if trial < 28 {
				m, p, n = trial, 5, 7
			}
			pad, off := rng.IntN(5), 4*rng.IntN(16)
			g := GemmArgs{M: int64(m), P: int64(p), K: int64(n), Keep: int64(trial & 1)}
			switch rng.IntN(2) { // A by rows, or by columns as for dW
			case 0:
				g.ARow, g.ARed = int64(n+pad), 1
			case 1:
				g.ARow, g.ARed = 1, int64(m+pad)
			}
			switch rng.IntN(2) { // B as panels, or as rows
			case 0:
				g.BRed, g.BPanel = 16, int64(16*n+pad)
			case 1:
				g.BRed, g.BPanel = int64(16*p+pad), 16
			}
			switch rng.IntN(2) {
			case 0:
				g.CRow, g.CPanel = int64(16*p+pad), 16
			case 1:
				g.CRow, g.CPanel = 16, int64(16*m+pad)
			}
			a, b := fence((m+pad)*(n+pad)+1, off), fence(16*(p+1)*(n+pad+1), off^4)
			fillFloats(rng, a.floats(), trial&2 != 0)
			fillFloats(rng, b.floats(), trial&2 != 0)
			want, got := fence((16*p+pad)*(16*m+pad)+1, off^8), fence((16*p+pad)*(16*m+pad)+1, off^8)
			fillFloats(rng, want.floats(), trial&2 != 0)
			copy(got.floats(), want.floats())
			g.A, g.B = a.at(0), b.at(0)
			g.C = want.at(0)
			For(Generic).Gemm(&g)
			g.C = got.at(0)
			k.Gemm(&g)
			requireSame(t, want, got, fmt.Sprintf("%+v", g))
		}
	})
}

// TestGemmIsTheStatedChain checks the twin itself against the definition.
func TestGemmIsTheStatedChain(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	const m, p, n = 3, 2, 9
	a, b, c := fence(m*n, 0), fence(p*16*n, 0), fence(m*p*16, 0)
	fillFloats(rng, a.floats(), false)
	fillFloats(rng, b.floats(), false)
	for _, keep := range []int64{0, 1} {
		fillFloats(rng, c.floats(), false)
		before := append([]float32(nil), c.floats()...)
		For(Generic).Gemm(&GemmArgs{A: a.at(0), B: b.at(0), C: c.at(0), ARow: n, ARed: 1, BPanel: 16 * n, BRed: 16, CRow: 16 * p, CPanel: 16, M: m, P: p, K: n, Keep: keep})
		for i := range m {
			for o := range p * 16 {
				acc := before[i*16*p+o] * float32(keep)
				for r := range n {
					acc = exactFMA(a.floats()[i*n+r], b.floats()[o/16*16*n+r*16+o%16], acc)
				}
				require.Equal(t, acc, c.floats()[i*16*p+o])
			}
		}
	}
}

func TestGemvEqualsGeneric(t *testing.T) {
	eachISA(t, func(t *testing.T, k *Kernels) {
		for _, f := range quant.Formats() {
			rng := rand.New(rand.NewPCG(15, uint64(f)))
			for trial := range 24 {
				in := f.BlockLen() * (1 + rng.IntN(5))
				if f.BlockLen() == 1 {
					in = rng.IntN(40)
				}
				p := trial % 12
				panels := packed(rng, f, 16*p, in, trial%3 == 2)
				x, want, got := fence(in, 4*(trial%5)), fence(16*p, 4*(trial%7)), fence(16*p, 4*(trial%7))
				fillFloats(rng, x.floats(), trial%3 == 2)
				fillFloats(rng, want.floats(), trial%3 == 2)
				copy(got.floats(), want.floats())
				g := GemvArgs{X: x.at(0), W: unsafe.Pointer(&panels[trial%2]), K: int64(in), P: int64(p), PanelBytes: int64(PanelBytes(f, in))}
				copy(panels[trial%2:], panels)
				g.Y = want.at(0)
				For(Generic).Gemv[f](&g)
				g.Y = got.at(0)
				k.Gemv[f](&g)
				requireSame(t, want, got, fmt.Sprintf("%v in %d panels %d", f, in, p))
			}
		}
	})
}

func TestGemvRowsEqualsGeneric(t *testing.T) {
	eachISA(t, func(t *testing.T, k *Kernels) {
		for _, f := range quant.Formats() {
			rng := rand.New(rand.NewPCG(25, uint64(f)))
			for trial := range 18 {
				in := f.BlockLen() * (1 + rng.IntN(3))
				if f.BlockLen() == 1 {
					in = rng.IntN(40)
				}
				m, p := 2+trial%3, trial/3
				panels := packed(rng, f, 16*p, in, trial%3 == 2)
				xrow, yrow := in+trial%5, 16*p+trial%4
				x, want, got := fence(m*xrow, 4*(trial%5)), fence(m*yrow, 4*(trial%7)), fence(m*yrow, 4*(trial%7))
				fillFloats(rng, x.floats(), trial%4 == 2)
				fillFloats(rng, want.floats(), trial%4 == 2)
				copy(got.floats(), want.floats())
				g := GemvRowsArgs{X: x.at(0), W: unsafe.Pointer(&panels[0]), K: int64(in), P: int64(p), PanelBytes: int64(PanelBytes(f, in)), M: int64(m), XRow: int64(xrow), YRow: int64(yrow)}
				g.Y = want.at(0)
				For(Generic).GemvRows[f](&g)
				g.Y = got.at(0)
				k.GemvRows[f](&g)
				requireSame(t, want, got, fmt.Sprintf("%v in %d panels %d rows %d", f, in, p, m))
			}
		}
	})
}

// packed returns the panels of random weights and a spare byte; wild ones have
// scales that are infinite, NaN or subnormal.
func packed(rng *rand.Rand, f quant.Format, out, in int, wild bool) []byte {
	rows := randomRows(rng, f, out, in)
	if wild {
		for i := range rows {
			rows[i] = byte(rng.Uint32()) >> (rng.IntN(2) * 8)
		}
	}
	panels := make([]byte, Panels(out)*PanelBytes(f, in)+1)
	Pack(panels[:len(panels)-1], f, out, in, rows)
	return panels
}

func TestDecodeEqualsGeneric(t *testing.T) {
	eachISA(t, func(t *testing.T, k *Kernels) {
		for _, f := range quant.Formats() {
			rng := rand.New(rand.NewPCG(17, uint64(f)))
			for trial := range 24 {
				in := 256 * (1 + trial%3)
				panel := packed(rng, f, 16, in, trial%3 == 2)
				k0 := 32 * rng.IntN(in/32+1)
				n := 32 * rng.IntN((in-k0)/32+1)
				if f.BlockLen() == 1 {
					k0 = rng.IntN(in)
					n = rng.IntN(in - k0 + 1)
				}
				want, got := fence(16*n, 4*(trial%7)), fence(16*n, 4*(trial%7))
				d := DecodeArgs{Panel: unsafe.Pointer(&panel[trial%2]), K0: int64(k0), K: int64(n)}
				copy(panel[trial%2:], panel)
				d.Dst = want.at(0)
				For(Generic).Decode[f](&d)
				d.Dst = got.at(0)
				k.Decode[f](&d)
				requireSame(t, want, got, fmt.Sprintf("%v k %d+%d", f, k0, n))
			}
		}
	})
}

// TestGemvEqualsDecodeThenGemm is why a row has the same bits alone and among others.
func TestGemvEqualsDecodeThenGemm(t *testing.T) {
	for _, isa := range Supported() {
		k := For(isa)
		for _, f := range quant.Formats() {
			rng := rand.New(rand.NewPCG(19, uint64(f)))
			const p, in, m = 3, 256, 7
			panels := packed(rng, f, 16*p, in, false)
			x, tile := fence(m*in, 0), fence(p*in*16, 0)
			fillFloats(rng, x.floats(), true)
			many, one, few := fence(m*p*16, 0), fence(m*p*16, 0), fence(m*p*16, 0)
			clear(one.floats())
			clear(few.floats())
			for i := range p {
				k.Decode[f](&DecodeArgs{Dst: tile.at(i * in * 16), Panel: unsafe.Pointer(&panels[i*PanelBytes(f, in)]), K: in})
			}
			k.Gemm(&GemmArgs{A: x.at(0), B: tile.at(0), C: many.at(0), ARow: in, ARed: 1, BPanel: 16 * in, BRed: 16, CRow: 16 * p, CPanel: 16, M: m, P: p, K: in})
			for i := range m {
				k.Gemv[f](&GemvArgs{X: x.at(i * in), W: unsafe.Pointer(&panels[0]), Y: one.at(i * p * 16), K: in, P: p, PanelBytes: int64(PanelBytes(f, in))})
			}
			requireSame(t, many, one, fmt.Sprint(isa, f))
			for i, n := range map[int]int64{0: 3, 3: 4} {
				k.GemvRows[f](&GemvRowsArgs{X: x.at(i * in), W: unsafe.Pointer(&panels[0]), Y: few.at(i * p * 16), K: in, P: p, PanelBytes: int64(PanelBytes(f, in)), M: n, XRow: in, YRow: 16 * p})
			}
			requireSame(t, many, few, fmt.Sprint(isa, f, " rows"))
		}
	}
}

func TestProductsAllocateNothing(t *testing.T) {
	const in, p = 256, 2
	for _, isa := range Supported() {
		k := For(isa)
		for _, f := range quant.Formats() {
			w := packed(rand.New(rand.NewPCG(1, 2)), f, 16*p, in, false)
			x, y, tile := fence(4*in, 0), fence(4*16*p, 0), fence(16*in, 0)
			clear(x.floats())
			clear(y.floats())
			one := &GemvArgs{X: x.at(0), W: unsafe.Pointer(&w[0]), Y: y.at(0), K: in, P: p, PanelBytes: int64(PanelBytes(f, in))}
			few := &GemvRowsArgs{X: x.at(0), W: one.W, Y: y.at(0), K: in, P: p, PanelBytes: one.PanelBytes, M: 4, XRow: in, YRow: 16 * p}
			decode := &DecodeArgs{Dst: tile.at(0), Panel: one.W, K: in}
			many := &GemmArgs{A: x.at(0), B: tile.at(0), C: y.at(0), ARow: in, ARed: 1, BRed: 16, CRow: 16, M: 4, P: 1, K: in}
			blocks := make([]quant.ActivationBlock, 4*in/quant.ActivationLen)
			round := &Quantize8Args{X: x.at(0), Q: unsafe.Pointer(&blocks[0]), N: 4 * in, Largest: quant.ActivationTop}
			eight := &Gemm8Args{X: round.Q, W: one.W, Y: y.at(0), K: in, P: p, PanelBytes: one.PanelBytes, M: 1, XRow: in / 32 * 48, YRow: in}
			require.Zero(t, testing.AllocsPerRun(3, func() {
				k.Gemv[f](one)
				k.GemvRows[f](few)
				k.Decode[f](decode)
				k.Gemm(many)
				k.Quantize8(round)
				if f.BlockLen() > 1 {
					k.Gemm8[f](eight)
				}
			}), "%v %v", isa, f)
		}
	}
}

// TestStubsOnSmallStacks calls the function with the largest frame from fresh
// goroutines at many depths, so that every stub meets a stack that must grow,
// while the collector runs and the profiler interrupts.
func TestStubsOnSmallStacks(t *testing.T) {
	const in, p = 256, 4
	if pprof.StartCPUProfile(io.Discard) == nil { // unless one runs already
		defer pprof.StopCPUProfile()
	}
	for _, isa := range Supported() {
		k := For(isa)
		w := packed(rand.New(rand.NewPCG(1, 2)), quant.Q6_K, 16*p, in, false)
		x, want := fence(in, 0), fence(16*p, 0)
		fillFloats(rand.New(rand.NewPCG(3, 4)), x.floats(), false)
		gemv := func(y fenced) {
			k.Gemv[quant.Q6_K](&GemvArgs{X: x.at(0), W: unsafe.Pointer(&w[0]), Y: y.at(0), K: in, P: p, PanelBytes: int64(PanelBytes(quant.Q6_K, in))})
		}
		clear(want.floats())
		gemv(want)
		results := make(chan fenced)
		for depth := range 60 {
			go func() {
				y := fence(16*p, 0)
				clear(y.floats())
				below(depth, func() { gemv(y) })
				results <- y
			}()
			if depth%10 == 0 {
				runtime.GC()
			}
		}
		for range 60 {
			requireSame(t, want, <-results, isa.String())
		}
	}
}

// below calls f with depth frames of about 100 bytes under it.
//
//go:noinline
func below(depth int, f func()) byte {
	var room [64]byte
	if depth == 0 {
		f()
		return 0
	}
	room[depth] = below(depth-1, f)
	return room[depth] + room[0]
}

func TestTranspose16(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for _, isa := range Supported() {
		for trial := range 20 {
			n, dstPad, srcPad := trial%4, trial%3, trial%5
			src := fence(16*n*(16+srcPad)+1, 4*(trial%9))
			fillFloats(rng, src.floats(), false)
			dstRow, srcRow := 16*n+dstPad, 16+srcPad
			want, got := fence(16*dstRow+1, 4*(trial%6)), fence(16*dstRow+1, 4*(trial%6))
			for i := range 16 * n {
				for j := range 16 {
					want.floats()[j*dstRow+i] = src.floats()[i*srcRow+j]
				}
			}
			For(isa).Transpose16(&TransposeArgs{Dst: got.at(0), Src: src.at(0), DstRow: int64(dstRow), SrcRow: int64(srcRow), N: int64(n)})
			requireSame(t, want, got, fmt.Sprint(isa, n))
		}
	}
}
