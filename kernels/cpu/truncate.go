package cpu

import (
	"math"
	"slices"
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/libm"
)

// candidate is a token that may be drawn.
type candidate struct {
	z  float32 // logit/temperature
	id int32
	p  float64 // exp(z − top), once weigh has been called
}

// byProbability orders the most probable first, the lower id first among equals.
func byProbability(a, b candidate) int {
	if a.z != b.z {
		if a.z > b.z {
			return -1
		}
		return 1
	}
	return int(a.id) - int(b.id)
}

func byID(a, b candidate) int { return int(a.id) - int(b.id) }

// drawTruncated draws from what min-p, then top-k, then top-p leave, as vLLM orders them: min-p
// keeps tokens of at least MinP times the largest probability; top-p keeps the fewest most probable
// tokens whose share of what is left reaches TopP. One token always stays.
func (w *worker) drawTruncated(raw unsafe.Pointer, top float64, vocab int, r *kernels.SampleRow) int {
	row := w.scratchRow(vocab)
	w.scaledRow(row, raw, vocab, r.InvT)
	z := floats(row, vocab)
	floor := math.Inf(-1)
	if r.MinP > 0 {
		floor = min(top, top+libm.Log(float64(r.MinP)))
	}
	low := ceil32(floor)
	switch {
	case r.TopK > 0:
		w.mostProbable(z, r.TopK, low)
		if r.TopP < 1 {
			w.cut(w.weigh(top)*float64(r.TopP), 0)
		}
		slices.SortFunc(w.candidates, byID)
	case r.TopP < 1:
		w.nucleus(z, float32(top), low, r.TopP)
	default:
		w.above(z, low, candidate{z: float32(math.Inf(-1))})
	}
	target, sum := float64(r.U*w.weigh(top)), 0.0
	for i := range w.candidates {
		if sum += w.candidates[i].p; sum > target {
			return int(w.candidates[i].id)
		}
	}
	return int(w.candidates[len(w.candidates)-1].id)
}

// weigh sets p of the candidates and returns the sum.
func (w *worker) weigh(top float64) float64 {
	sum := 0.0
	for i := range w.candidates {
		c := &w.candidates[i]
		c.p = libm.Exp(float64(c.z) - top)
		sum += c.p
	}
	return sum
}

// cut leaves the fewest first candidates, whose p are set, with which sum reaches want.
func (w *worker) cut(want, sum float64) {
	for i := range w.candidates {
		if sum += w.candidates[i].p; sum >= want {
			w.candidates = w.candidates[:i+1]
			return
		}
	}
}

// nucleusBins are the classes, 1/16 wide from the largest logit down, that nucleus adds masses up in.
// The last holds all that is smaller.
const nucleusBins = 512

func bin(top, z float32) int { return int(min(16*(top-z), nucleusBins-1)) }

// nucleus makes candidates, in order of id, of the fewest most probable tokens of at least low that
// together have the share topP. It sorts one bin only: the one where the sum over bins gets there.
func (w *worker) nucleus(z []float32, top, low, topP float32) {
	bins, total := &w.bins, 0.0
	clear(bins[:])
	for v := 0; v < len(z); v += kernels.VocabChunk {
		part := z[v:min(v+kernels.VocabChunk, len(z))]
		w.exp = vec.ExpArgs{Y: w.tile, X: unsafe.Pointer(&part[0]), N: int64(len(part)), Shift: top}
		w.k.Exp(&w.exp)
		for i, p := range floats(w.tile, len(part)) {
			if p > 0 && part[i] >= low {
				bins[bin(top, part[i])] += float64(p)
				total += float64(p)
			}
		}
	}
	want, sum, last := total*float64(topP), 0.0, 0
	for last < nucleusBins-1 && sum+bins[last] < want {
		sum += bins[last]
		last++
	}
	w.candidates = w.candidates[:0]
	for i, v := range z {
		if v >= low && bin(top, v) == last {
			w.candidates = append(w.candidates, candidate{z: v, id: int32(i)})
		}
	}
	slices.SortFunc(w.candidates, byProbability)
	w.weigh(float64(top))
	w.cut(want, sum)
	least := candidate{z: float32(math.Inf(-1))} // if rounding lets all together fall short
	if n := len(w.candidates); n > 0 {
		least = w.candidates[n-1]
	}
	w.above(z, low, least)
}

// above makes candidates, in order of id, of the tokens of at least low that are as probable as least
// or more.
func (w *worker) above(z []float32, low float32, least candidate) {
	w.candidates = w.candidates[:0]
	low = max(low, least.z)
	for i, v := range z {
		if v >= low && (v > least.z || v == least.z && int32(i) <= least.id) && v > float32(math.Inf(-1)) {
			w.candidates = append(w.candidates, candidate{z: v, id: int32(i)})
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

// mostProbable makes candidates of the n most probable tokens of at least low, the first first. It
// goes over z once and sorts only what has a chance.
func (w *worker) mostProbable(z []float32, n int, low float32) {
	w.candidates = w.candidates[:0]
	room := max(2*n, 64)
	least := float32(math.Inf(-1)) // the n-th so far
	for i, v := range z {
		if v > least && v >= low {
			w.candidates = append(w.candidates, candidate{z: v, id: int32(i)})
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
