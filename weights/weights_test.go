package weights

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/kernels/ref"
)

func TestArenaEnforcesItsLimit(t *testing.T) {
	a := NewArena(ref.New(), 1000)
	defer a.Close()
	m, err := a.Alloc("weights", 600)
	require.NoError(t, err)
	_, err = a.Alloc("pages", 401)
	require.ErrorContains(t, err, "pages needs 401 bytes, but 600 of the planned 1000 are in use")
	_, err = a.Alloc("pages", 400)
	require.NoError(t, err)
	require.Equal(t, []Span{{"pages", 400}, {"weights", 600}}, a.Spans())
	a.Free(m)
	require.EqualValues(t, 400, a.Used())
	require.EqualValues(t, 1000, a.Peak())
	require.Equal(t, []Span{{"pages", 400}}, a.Spans())
	require.Panics(t, func() { a.Free(m) }, "freed twice")
	a.Free(nil)
}

func TestCarverCountsWhatItCuts(t *testing.T) {
	layout := func(c *Carver) []kernels.Tensor {
		return []kernels.Tensor{c.Tensor(kernels.F32, 3, 5), c.Tensor(kernels.I32, 1, 1), c.Tensor(kernels.F64, 2, 2)}
	}
	count := NewCarver(nil)
	layout(count)
	require.EqualValues(t, 3*64, count.Bytes())
	a := NewArena(ref.New(), 0)
	defer a.Close()
	m, err := a.Alloc("scratch", count.Bytes())
	require.NoError(t, err)
	cut := NewCarver(m)
	tensors := layout(cut)
	require.Equal(t, count.Bytes(), cut.Bytes())
	for i := range tensors[0].F32() {
		tensors[0].F32()[i] = 7
	}
	require.Zero(t, tensors[1].I32()[0], "tensors overlap")
	require.Zero(t, tensors[2].F64()[0])
}

func TestScale(t *testing.T) {
	require.EqualValues(t, 2, Scale(16, 8, false))
	require.EqualValues(t, float32(16/math.Sqrt(8)), Scale(16, 8, true))
}

func TestAdapterLiesInOnePiece(t *testing.T) {
	b := ref.New()
	a := NewArena(b, 0)
	defer a.Close()
	q := &Linear{Name: "q", Site: 0, W: kernels.Weight{Out: 24, In: 10}}
	v := &Linear{Name: "v", Site: 2, W: kernels.Weight{Out: 8, In: 10}}
	ad, err := NewAdapter(a, 7, 3, []SiteRank{{q, 4, 8}, {v, 2, 8}}, false, true)
	require.NoError(t, err)
	require.Nil(t, ad.Pair(1))
	require.Equal(t, 16, ad.MaxCols())
	require.EqualValues(t, 2, ad.Pair(0).Scale)
	require.EqualValues(t, 4, ad.Pair(2).Scale)
	require.Equal(t, ad.Params().Cols, ad.Grads().Cols)
	one := func(w kernels.Weight, value float32) {
		raw := make([]byte, 4*w.Out*w.In)
		for i := range w.Out * w.In {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(value))
		}
		b.Pack(w, 0, raw)
	}
	one(ad.Pair(0).A, 1)
	one(ad.Pair(2).B, 1)
	var sum float32
	for _, x := range ad.Params().F32() {
		sum += x
	}
	require.EqualValues(t, 4*10+8*2, sum, "the flat view shows every parameter")

	other, err := NewAdapter(a, 8, 3, []SiteRank{{q, 4, 8}, {v, 2, 8}}, false, false)
	require.NoError(t, err)
	require.Nil(t, other.Trained())
	ad.Version = 9
	other.CopyParams(ad)
	require.Equal(t, ad.Params().F32(), other.Params().F32())
	require.EqualValues(t, 9, other.Version)
}

func TestAdapterRefusesNonsense(t *testing.T) {
	a := NewArena(ref.New(), 0)
	defer a.Close()
	l := &Linear{Name: "q", W: kernels.Weight{Out: 8, In: 8}}
	for _, sites := range [][]SiteRank{nil, {{l, 0, 1}}, {{l, MaxRank + 1, 1}}, {{l, 1, 1}, {l, 1, 1}}} {
		_, err := NewAdapter(a, 1, 1, sites, false, false)
		require.Error(t, err)
	}
	require.Zero(t, a.Used(), "a refused adapter takes nothing")
}

// fake is a source of one matrix and one vector.
type fake struct{ fail bool }

func (fake) Names() []string { return []string{"m", "v"} }

func (fake) Shape(name string) (quant.Format, int, int, bool, error) {
	switch name {
	case "m":
		return quant.F32, 33, 32, true, nil
	case "v":
		return quant.F32, 1, 32, true, nil
	}
	return 0, 0, 0, false, nil
}

func (f fake) Rows(name string, row, n int, dst []byte) error {
	if f.fail {
		return errors.New("disk gone")
	}
	for i := 0; i < len(dst)/4; i++ {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(float32(row*32+i)))
	}
	return nil
}

func TestLoaderPacksAndConverts(t *testing.T) {
	b := ref.New()
	for _, format := range []quant.Format{quant.F32, quant.F16, quant.Q8_0} {
		a := NewArena(b, 0)
		l := &Loader{Arena: a, Source: fake{}, Format: &format}
		w, _, err := l.Matrix("m", 33, 32)
		require.NoError(t, err)
		v, _, err := l.Vector("v", 32, true)
		require.NoError(t, err)
		require.NoError(t, l.Wait())
		require.Equal(t, format, w.Format)
		raw := make([]byte, format.Bytes(33*32))
		b.Unpack(raw, w, 0)
		got := make([]float32, 33*32)
		quant.Decode(got, format, raw)
		for i, x := range got {
			require.InDelta(t, i, x, 5, "%s", format)
		}
		require.EqualValues(t, 32, v.F32()[31], "1 was added")
		a.Close()
	}
}

func TestLoaderNamesWhatIsWrong(t *testing.T) {
	a := NewArena(ref.New(), 0)
	defer a.Close()
	l := &Loader{Arena: a, Source: fake{}}
	_, _, err := l.Matrix("absent", 1, 1)
	require.ErrorContains(t, err, `"absent" is missing`)
	_, _, err = l.Matrix("m", 32, 33)
	require.ErrorContains(t, err, `"m" is [33 32], its configuration wants [32 33]`)
	_, _, err = l.Vector("v", 31, false)
	require.ErrorContains(t, err, `"v" is F32 [32], want 31`)
	l.Source = fake{fail: true}
	_, _, err = l.Matrix("m", 33, 32)
	require.NoError(t, err)
	require.ErrorContains(t, l.Wait(), "disk gone")
}

// blocks is a source of one matrix in any format, which is never read.
type blocks struct{ format quant.Format }

func (blocks) Names() []string { return []string{"m"} }

func (b blocks) Shape(string) (quant.Format, int, int, bool, error) {
	return b.format, 32, 256, true, nil
}

func (blocks) Rows(string, int, int, []byte) error { panic("nobody waits for it") }

func TestLoaderMarksWhatIsStoredInBlocks(t *testing.T) {
	plain := []quant.Format{quant.F32, quant.F16, quant.BF16}
	for _, file := range quant.Formats() {
		for _, c := range []struct {
			name    string
			to      *quant.Format
			trained bool
			stored  quant.Format
		}{
			{"as it is", nil, false, file},
			{"as F16", new(quant.F16), false, quant.F16},
			{"as Q8_0", new(quant.Q8_0), false, quant.Q8_0},
			{"trained", nil, true, quant.F32},
			{"trained, whatever was asked for", new(quant.Q8_0), true, quant.F32},
		} {
			for _, p := range []kernels.Precision{kernels.PrecisionF32, kernels.PrecisionInt8} {
				a := NewArena(ref.New(), 0)
				l := &Loader{Arena: a, Source: blocks{file}, Format: c.to, Trained: c.trained, Precision: p}
				w, dw, err := l.Matrix("m", 32, 256)
				require.NoError(t, err)
				require.Equal(t, c.stored, w.Format, "%s %s", file, c.name)
				want := p
				if slices.Contains(plain, c.stored) {
					want = kernels.PrecisionF32
				}
				require.Equal(t, want, w.Precision, "%s %s", file, c.name)
				require.Equal(t, kernels.PrecisionF32, dw.Precision)
				require.Equal(t, want == kernels.PrecisionInt8, w.Rounds())
				a.Close()
			}
		}
	}
}
