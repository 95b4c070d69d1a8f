package rng

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The known answers are those of the Random123 distribution (kat_vectors, philox4x32 10).
func TestBlockMatchesKnownAnswers(t *testing.T) {
	require.Equal(t, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, Source{}.Block(0, 0, 0, 0))
	const f = 0xffffffff
	require.Equal(t, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, Source{f, f}.Block(f, f, f, f))
	require.Equal(t, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		Source{0xa4093822, 0x299f31d0}.Block(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344))
}

func TestPurposesDiffer(t *testing.T) {
	require.NotEqual(t, New(1, "sample"), New(1, "shuffle"))
	require.NotEqual(t, New(1, "sample"), New(2, "sample"))
	require.Equal(t, New(7, "init"), New(7, "init"))
}

func TestUniformIsUniform(t *testing.T) {
	s := New(3, "test")
	var sum float64
	buckets := make([]int, 16)
	const n = 1 << 16
	for i := range uint32(n) {
		u := s.Uniform(i, 0, 0, 0)
		require.True(t, u >= 0 && u < 1)
		sum += u
		buckets[int(u*16)]++
	}
	require.InDelta(t, 0.5, sum/n, 0.005)
	for _, b := range buckets {
		require.InDelta(t, n/16, b, 300)
	}
}

func TestPermutationIsOne(t *testing.T) {
	s := New(5, "shuffle")
	a, b := s.Permutation(100, 0), s.Permutation(100, 1)
	require.NotEqual(t, a, b)
	require.Equal(t, a, s.Permutation(100, 0))
	slices.Sort(b)
	for i, v := range b {
		require.Equal(t, i, v)
	}
	require.Empty(t, s.Permutation(0, 0))
}

func TestBelowCoversEvenly(t *testing.T) {
	s := New(9, "test")
	var count [7]int
	for i := range uint32(70000) {
		count[s.Below(7, i, 0, 0)]++
	}
	for _, c := range count {
		require.InDelta(t, 10000, c, 450)
	}
}
