package vec

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"graft/kernels/quant"
)

// randomRows returns out rows of in weights in format f with every code and
// scale possible, but no scale that is infinite or NaN.
func randomRows(rng *rand.Rand, f quant.Format, out, in int) []byte {
	raw := make([]byte, out*f.Bytes(in))
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	size := f.BlockBytes()
	for b := 0; b < len(raw); b += size {
		block := raw[b:][:size]
		switch f {
		case quant.F32:
			block[3] = block[3]&0x80 | 0x3f
		case quant.F16, quant.BF16:
			block[1] &^= 0x40
		case quant.Q6_K:
			block[209] &^= 0x40
		default:
			block[1] &^= 0x40
			block[3] &^= 0x40 // m or dmin; a code in the others
		}
	}
	return raw
}

func TestPackedWeightsDecodeAsQuantDecodeSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range quant.Formats() {
		in, out := 512, 29
		raw := randomRows(rng, f, out, in)
		panels := make([]byte, Panels(out)*PanelBytes(f, in))
		Pack(panels, f, out, in, raw)
		want, got := make([]float32, in), make([]float32, in*Lanes)
		for p := range Panels(out) {
			For(Generic).Decode[f](&DecodeArgs{
				Dst: unsafe.Pointer(&got[0]), Panel: unsafe.Pointer(&panels[p*PanelBytes(f, in)]), K: int64(in),
			})
			for lane := range Lanes {
				clear(want)
				if o := p*Lanes + lane; o < out {
					quant.Decode(want, f, raw[o*f.Bytes(in):][:f.Bytes(in)])
				}
				for k := range in {
					w, g := math.Float32bits(want[k]), math.Float32bits(got[k*Lanes+lane])
					if p*Lanes+lane >= out {
						g &^= 1 << 31
					}
					require.Equal(t, w, g, "%v panel %d lane %d k %d", f, p, lane, k)
				}
			}
		}
	}
}

func TestUnpackPanelInvertsPackPanel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, f := range quant.Formats() {
		in := 768
		raw := make([]byte, Lanes*f.Bytes(in))
		for i := range raw {
			raw[i] = byte(rng.Uint32())
		}
		var rows, back [][]byte
		for j := range Lanes {
			rows = append(rows, raw[j*f.Bytes(in):][:f.Bytes(in)])
			back = append(back, make([]byte, f.Bytes(in)))
		}
		panel := make([]byte, PanelBytes(f, in))
		PackPanel(panel, f, in, rows)
		UnpackPanel(back, f, in, panel)
		for j := range rows {
			require.True(t, bytes.Equal(rows[j], back[j]), "%v row %d", f, j)
			clear(back[j])
		}
		UnpackPanel(back[:5], f, in, panel)
		for j := range 5 {
			require.True(t, bytes.Equal(rows[j], back[j]), "%v row %d of five", f, j)
		}
	}
}

// FuzzPackPanel packs rows of any bytes into a panel that held something else:
// its weights are those that quant.Decode finds in the rows, those of missing
// rows are zero, and the rows come back.
func FuzzPackPanel(f *testing.F) {
	for i := range quant.Formats() {
		f.Add(uint8(i), uint16(1), uint8(Lanes), []byte{0, 0x3c, 0x5a, 0xff, 0x13})
		f.Add(uint8(i), uint16(515), uint8(7), []byte{0xa5, 0x31, 0x0f, 0x80, 0x77, 0x42, 0x01})
	}
	f.Fuzz(func(t *testing.T, format uint8, blocks uint16, n uint8, fill []byte) {
		fm := quant.Formats()[int(format)%len(quant.Formats())]
		in, rows := int(blocks)%(2048/fm.BlockLen())*fm.BlockLen(), make([][]byte, n%(Lanes+1))
		if len(fill) == 0 {
			return
		}
		at := 0
		for j := range rows {
			rows[j] = make([]byte, fm.Bytes(in))
			for i := range rows[j] {
				rows[j][i] = fill[at%len(fill)] + byte(at/len(fill)*37)
				at++
			}
		}
		panel := make([]byte, PanelBytes(fm, in))
		for i := range panel {
			panel[i] = 0xcc
		}
		PackPanel(panel, fm, in, rows)
		got, want := make([]float32, in*Lanes), make([]float32, in)
		if in > 0 {
			For(Generic).Decode[fm](&DecodeArgs{Dst: unsafe.Pointer(&got[0]), Panel: unsafe.Pointer(&panel[0]), K: int64(in)})
		}
		for lane := range Lanes {
			clear(want)
			if lane < len(rows) {
				quant.Decode(want, fm, rows[lane])
			}
			for k, w := range want {
				g := got[k*Lanes+lane]
				if lane < len(rows) && w == w { // NaN has many forms
					require.Equal(t, math.Float32bits(w), math.Float32bits(g), "%v lane %d k %d", fm, lane, k)
				} else if lane >= len(rows) {
					require.Zero(t, g, "%v: lane %d k %d of %d rows", fm, lane, k, len(rows))
				}
			}
		}
		back := make([][]byte, len(rows))
		for j := range back {
			back[j] = make([]byte, fm.Bytes(in))
		}
		UnpackPanel(back, fm, in, panel)
		for j := range rows {
			require.True(t, bytes.Equal(rows[j], back[j]), "%v row %d", fm, j)
		}
	})
}

func TestPanelBytes(t *testing.T) {
	for f, want := range map[quant.Format]int{
		quant.F32: 256 * 64, quant.F16: 256 * 32, quant.BF16: 256 * 32,
		quant.Q4_0: 8 * 288, quant.Q4_1: 8 * 320, quant.Q5_0: 8 * 352, quant.Q5_1: 8 * 384, quant.Q8_0: 8 * 544,
		quant.Q4_K: 2368, quant.Q5_K: 2880, quant.Q6_K: 3360,
	} {
		require.Equal(t, want, PanelBytes(f, 256), "%v", f)
	}
	require.Len(t, quant.Formats(), NumFormats)
	require.Panics(t, func() { PanelBytes(quant.Q4_K, 128) })
	require.Panics(t, func() { PackPanel(make([]byte, 288), quant.Q4_0, 32, make([][]byte, 17)) })
}

func BenchmarkPack(b *testing.B) {
	for _, f := range quant.Formats() {
		b.Run(f.String(), func(b *testing.B) {
			raw := randomRows(rand.New(rand.NewPCG(1, 2)), f, 64, 1024)
			panels := make([]byte, Panels(64)*PanelBytes(f, 1024))
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				Pack(panels, f, 64, 1024, raw)
			}
		})
	}
}
