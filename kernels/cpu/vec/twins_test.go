package vec

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// guard is the number of NaN on either side of a buffer under test.
const guard = 19

// fill is a way of choosing values.
type fill func(*rand.Rand) float32

func ordinary(rng *rand.Rand) float32 { return float32(rng.NormFloat64()) }

// wide has every magnitude, subnormals among them, and zeros.
func wide(rng *rand.Rand) float32 {
	if rng.IntN(8) == 0 {
		return float32(math.Copysign(0, rng.Float64()-0.5))
	}
	return float32(math.Copysign(math.Ldexp(1+rng.Float64(), rng.IntN(277)-149), rng.Float64()-0.5))
}

// extreme has infinities and NaN among other values.
func extreme(rng *rand.Rand) float32 {
	switch rng.IntN(12) {
	case 0:
		return float32(math.Inf(1))
	case 1:
		return float32(math.Inf(-1))
	case 2:
		return float32(math.NaN())
	case 3:
		return wide(rng)
	}
	return float32(30 * rng.NormFloat64())
}

// buffers hands out buffers filled from one seed, between guards and off any
// alignment, and remembers them with the numbers that a primitive returned.
type buffers struct {
	rng     *rand.Rand
	fill    fill
	all     [][]float32
	results []float32
}

func newBuffers(seed uint64, f fill) *buffers {
	return &buffers{rng: rand.New(rand.NewPCG(seed, 7)), fill: f}
}

func (b *buffers) floats(n int) []float32 {
	whole := make([]float32, n+2*guard)
	for i := range whole {
		whole[i] = float32(math.NaN())
	}
	x := whole[guard : guard+n]
	for i := range x {
		x[i] = b.fill(b.rng)
	}
	b.all = append(b.all, whole)
	return x
}

func (b *buffers) vector(n int) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b.floats(n))) }

func (b *buffers) result(x ...float32) { b.results = append(b.results, x...) }

// requireSameBits compares everything that two runs left, guards included. One
// NaN is as good as another.
func requireSameBits(t *testing.T, want, got *buffers, msg string) {
	t.Helper()
	same := func(name string, want, got []float32) {
		require.Len(t, got, len(want), name)
		for i := range want {
			w, g := want[i], got[i]
			if math.Float32bits(w) != math.Float32bits(g) && (w == w || g == g) {
				require.Failf(t, "different bits", "%s: %s element %d: %v (%08x), Generic %v (%08x)",
					msg, name, i, g, math.Float32bits(g), w, math.Float32bits(w))
			}
		}
	}
	for i := range want.all {
		same(fmt.Sprintf("buffer %d (after %d guards)", i, guard), want.all[i], got.all[i])
	}
	same("results", want.results, got.results)
}

// eachISA runs f for every implementation but Generic.
func eachISA(t *testing.T, f func(t *testing.T, k *Kernels)) {
	for _, isa := range Supported() {
		if isa != Generic {
			t.Run(isa.String(), func(t *testing.T) { f(t, For(isa)) })
		}
	}
}

// TestBitsAreTheSameEverywhere pins what the rows and attention compute from one
// seed, since comparing two implementations on one machine does not compare
// machines. A changed definition changes the number, and every adapter trained
// before is then no longer reproducible.
func TestBitsAreTheSameEverywhere(t *testing.T) {
	const want = 0xf718fcc673ebcbb9
	uniform := func(rng *rand.Rand) float32 { return float32(4*rng.Float64() - 2) }
	for _, isa := range Supported() {
		k, hash := For(isa), fnv.New64a()
		sum := func(b *buffers) {
			for _, x := range append(b.all, b.results) {
				for _, v := range x {
					if v != v {
						v = float32(math.NaN())
					}
					hash.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
				}
			}
		}
		names := make([]string, 0, len(rowCases))
		for name := range rowCases {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			for n := 1; n < 100; n += 7 {
				b := newBuffers(uint64(n), uniform)
				rowCases[name](k, b, n)
				sum(b)
			}
		}
		for seed := range uint64(8) {
			a := newAttention(seed, uniform, 5+int(seed), 20+4*int(seed), 3, 3)
			a.softcap = float32(seed % 2 * 3)
			a.run(k)
			sum(a.b)
		}
		require.Equal(t, uint64(want), hash.Sum64(), "%s: %#x", isa, hash.Sum64())
	}
}
