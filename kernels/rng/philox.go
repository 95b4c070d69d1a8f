// Package rng is counter-based randomness: a draw is a pure function of a seed, a purpose and four
// counters, so it does not depend on who draws first, on batches or on threads. There is no state.
//
// The function is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
package rng

import "math/bits"

// Source is one stream of draws.
type Source struct{ k0, k1 uint32 }

// New makes the stream of a seed for a purpose ("sample", "shuffle", "init"); different purposes
// with one seed are independent.
func New(seed uint64, purpose string) Source {
	h := uint64(14695981039346656037) // FNV-1a
	for _, c := range []byte(purpose) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	w := Source{uint32(seed), uint32(seed >> 32)}.Block(uint32(h), uint32(h>>32), 0x67726166, 0x74)
	return Source{w[0], w[1]}
}

// Block returns the 128 bits at four counters.
func (s Source) Block(a, b, c, d uint32) [4]uint32 {
	k0, k1 := s.k0, s.k1
	for range 10 {
		h0, l0 := bits.Mul32(0xD2511F53, a)
		h1, l1 := bits.Mul32(0xCD9E8D57, c)
		a, b, c, d = h1^b^k0, l1, h0^d^k1, l0
		k0 += 0x9E3779B9
		k1 += 0xBB67AE85
	}
	return [4]uint32{a, b, c, d}
}

// Uniform is a draw in [0, 1) with 53 random bits.
func (s Source) Uniform(a, b, c, d uint32) float64 {
	w := s.Block(a, b, c, d)
	return float64(uint64(w[0])<<21|uint64(w[1])>>11) * 0x1p-53
}

// Below is a uniform integer in [0, n), n ≥ 1, by multiplication with rejection.
func (s Source) Below(n uint32, a, b, c uint32) uint32 {
	for try := uint32(0); ; try++ {
		hi, lo := bits.Mul32(s.Block(a, b, c, try)[0], n)
		if lo >= -n%n {
			return hi
		}
	}
}

// Permutation is a random order of 0..n−1 (Fisher–Yates), a function of stream and epoch.
func (s Source) Permutation(n int, epoch uint32) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	for i := n - 1; i > 0; i-- {
		j := s.Below(uint32(i+1), epoch, uint32(i), 0x7065726d)
		out[i], out[j] = out[j], out[i]
	}
	return out
}
