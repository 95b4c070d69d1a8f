package cpu

import (
	"cmp"
	"math"
	"slices"
	"unsafe"

	"graft/kernels"
	"graft/kernels/libm"
)

// candidate is a token that may be drawn, with its logit/temperature.
type candidate struct {
	z  float32
	id int32
}

// byProbability orders the most probable first, the lower id first among equals.
func byProbability(a, b candidate) int {
	if c := cmp.Compare(b.z, a.z); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

func byID(a, b candidate) int { return cmp.Compare(a.id, b.id) }

// drawTruncated draws from what min-p, then top-k, then top-p leave, as vLLM orders them: min-p
// keeps tokens of at least MinP times the largest probability; top-p keeps the fewest most probable
// tokens whose share of what is left reaches TopP. One token always stays.
func (w *worker) drawTruncated(raw unsafe.Pointer, states []chunkState, vocab int, r *kernels.SampleRow) int {
	p := w.scratchRow(vocab)
	w.scaledRow(p, raw, vocab, r.InvT)
	z, top := floats(p, vocab), largest(states)
	floor := math.Inf(-1)
	if r.MinP > 0 {
		floor = min(top, top+libm.Log(float64(r.MinP)))
	}
	switch {
	case r.TopK > 0:
		w.mostProbable(z, r.TopK, floor)
		w.nucleus(w.total(top), top, r.TopP)
	case r.TopP >= 1:
		w.above(z, floor)
	case r.MinP > 0:
		w.above(z, floor)
		slices.SortFunc(w.candidates, byProbability)
		w.nucleus(w.total(top), top, r.TopP)
	default:
		total := 0.0
		for _, c := range states {
			total += mass(c, top)
		}
		w.likely(z, top, total*float64(r.TopP))
		w.nucleus(total, top, r.TopP)
	}
	slices.SortFunc(w.candidates, byID)
	target, sum := float64(r.U*w.total(top)), 0.0
	for _, c := range w.candidates {
		if sum += libm.Exp(float64(c.z) - top); sum > target {
			return int(c.id)
		}
	}
	return int(w.candidates[len(w.candidates)-1].id)
}

// above makes candidates of the tokens of at least floor, in order of id.
func (w *worker) above(z []float32, floor float64) {
	w.candidates = w.candidates[:0]
	low := ceil32(floor)
	for i, v := range z {
		if v >= low && v > float32(math.Inf(-1)) {
			w.candidates = append(w.candidates, candidate{v, int32(i)})
		}
	}
}

// ceil32 is the least float32 that is not below x.
func ceil32(x float64) float32 {
	v := float32(x)
	if float64(v) < x {
		return math.Nextafter32(v, float32(math.Inf(1)))
	}
	return v
}

// mostProbable makes candidates of the n most probable tokens of at least floor, the first first. It
// goes over z once and sorts only what has a chance.
func (w *worker) mostProbable(z []float32, n int, floor float64) {
	w.candidates = w.candidates[:0]
	room := max(2*n, 64)
	low, least := ceil32(floor), float32(math.Inf(-1)) // least: the n-th so far
	for i, v := range z {
		if v > least && v >= low {
			w.candidates = append(w.candidates, candidate{v, int32(i)})
			if len(w.candidates) == room {
				slices.SortFunc(w.candidates, byProbability)
				w.candidates = w.candidates[:n]
				least = w.candidates[n-1].z
			}
		}
	}
	slices.SortFunc(w.candidates, byProbability)
	w.candidates = w.candidates[:min(n, len(w.candidates))]
}

// likely makes candidates, most probable first, of enough tokens to hold the mass want of
// Σ exp(z − top), and rarely of many more.
func (w *worker) likely(z []float32, top, want float64) {
	for depth := 6.0; ; depth *= 2 {
		if depth > 100 {
			depth = math.Inf(1)
		}
		w.above(z, top-depth)
		if w.total(top) >= want || math.IsInf(depth, 1) {
			slices.SortFunc(w.candidates, byProbability)
			return
		}
	}
}

// total is Σ exp(z − top) of the candidates, in their order.
func (w *worker) total(top float64) float64 {
	sum := 0.0
	for _, c := range w.candidates {
		sum += libm.Exp(float64(c.z) - top)
	}
	return sum
}

// nucleus leaves the fewest first candidates whose share of total reaches topP.
func (w *worker) nucleus(total, top float64, topP float32) {
	if topP >= 1 {
		return
	}
	sum, want := 0.0, total*float64(topP)
	for i, c := range w.candidates {
		if sum += libm.Exp(float64(c.z) - top); sum >= want {
			w.candidates = w.candidates[:i+1]
			return
		}
	}
}
