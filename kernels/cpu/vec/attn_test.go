package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// attention is one problem: queries, pages, gradients, and what the primitives
// made of them.
type attention struct {
	b                      *buffers
	M, D, pages            int
	group                  int
	qRow, qTok, oRow, oTok int
	scale, softcap         float32
	start, limit           []int32
	q, out, dout, dq       []float32
	state, lse, delta      []float32
	k, v, dk, dv           [][]float32 // by page
	kp, vp                 []unsafe.Pointer
	scratch                []float32
}

func newAttention(seed uint64, f fill, M, D, pages, group int) *attention {
	b := newBuffers(seed, f)
	a := &attention{b: b, M: M, D: D, pages: pages, group: group, scale: 0.3}
	a.qRow, a.oRow = D+b.rng.IntN(3), D+b.rng.IntN(3)
	a.qTok, a.oTok = group*a.qRow+b.rng.IntN(5), group*a.oRow+b.rng.IntN(5)
	toks := (M + group - 1) / group
	a.q, a.dq = b.floats(toks*a.qTok), b.floats(toks*a.qTok)
	a.out, a.dout = b.floats(toks*a.oTok), b.floats(toks*a.oTok)
	a.state, a.lse, a.delta = b.floats(2*M), b.floats(M), b.floats(M)
	for range pages {
		a.k, a.v = append(a.k, b.floats(16*D)), append(a.v, b.floats(16*D))
		a.dk, a.dv = append(a.dk, b.floats(16*D)), append(a.dv, b.floats(16*D))
		a.kp, a.vp = append(a.kp, pointer(a.k[len(a.k)-1])), append(a.vp, pointer(a.v[len(a.v)-1]))
	}
	a.scratch = make([]float32, AttnScratch(D))
	// Queries of consecutive tokens at the end of the pages, so that limits differ
	// by token, with a window for some and rows that see nothing.
	for i := range M {
		end := max(16*pages-b.rng.IntN(20)-toks+i/group, 0)
		first := 0
		switch b.rng.IntN(6) {
		case 0:
			first = b.rng.IntN(end + 1)
		case 1:
			first = end
		}
		if i > 0 && i%group != 0 && b.rng.IntN(4) > 0 {
			first, end = int(a.start[i-1]), int(a.limit[i-1])
		}
		a.start, a.limit = append(a.start, int32(first)), append(a.limit, int32(end))
		a.state[2*i], a.state[2*i+1] = float32(math.Inf(-1)), 0
	}
	return a
}

func pointer(x []float32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }

// rowsFrom returns the operands of rows from i on, which starts a token.
func (a *attention) rowsFrom(i int) (q, o int) { return i / a.group * a.qTok, i / a.group * a.oTok }

func (a *attention) forward(k *Kernels, row, rows, page, pages int) {
	q, o := a.rowsFrom(row)
	k.AttnForward(&AttnArgs{Q: pointer(a.q[q:]), Out: pointer(a.out[o:]), KPages: unsafe.Pointer(&a.kp[0]), VPages: unsafe.Pointer(&a.vp[0]),
		Start: unsafe.Pointer(&a.start[row]), Limit: unsafe.Pointer(&a.limit[row]), State: pointer(a.state[2*row:]),
		QRow: int64(a.qRow), QTok: int64(a.qTok), OutRow: int64(a.oRow), OutTok: int64(a.oTok), Group: int64(a.group),
		M: int64(rows), D: int64(a.D), Page0: int64(page), PageN: int64(pages), Scale: a.scale, Softcap: a.softcap})
}

func (a *attention) finish(k *Kernels) {
	k.AttnFinish(&AttnFinishArgs{Out: pointer(a.out), State: pointer(a.state), LSE: pointer(a.lse),
		OutRow: int64(a.oRow), OutTok: int64(a.oTok), Group: int64(a.group), M: int64(a.M), D: int64(a.D)})
}

func (a *attention) backwardQ(k *Kernels, row, rows, page, pages int) {
	q, o := a.rowsFrom(row)
	k.AttnBackwardQ(&AttnBackwardQArgs{Q: pointer(a.q[q:]), DQ: pointer(a.dq[q:]), DOut: pointer(a.dout[o:]),
		KPages: unsafe.Pointer(&a.kp[0]), VPages: unsafe.Pointer(&a.vp[0]),
		Start: unsafe.Pointer(&a.start[row]), Limit: unsafe.Pointer(&a.limit[row]),
		LSE: pointer(a.lse[row:]), Delta: pointer(a.delta[row:]), Scratch: pointer(a.scratch),
		QRow: int64(a.qRow), QTok: int64(a.qTok), OutRow: int64(a.oRow), OutTok: int64(a.oTok), Group: int64(a.group),
		M: int64(rows), D: int64(a.D), Page0: int64(page), PageN: int64(pages), Scale: a.scale, Softcap: a.softcap})
}

func (a *attention) backwardKV(k *Kernels, row, rows, page int) {
	q, o := a.rowsFrom(row)
	k.AttnBackwardKV(&AttnBackwardKVArgs{Q: pointer(a.q[q:]), DOut: pointer(a.dout[o:]),
		K: a.kp[page], DK: pointer(a.dk[page]), V: a.vp[page], DV: pointer(a.dv[page]),
		Start: unsafe.Pointer(&a.start[row]), Limit: unsafe.Pointer(&a.limit[row]),
		LSE: pointer(a.lse[row:]), Delta: pointer(a.delta[row:]), Scratch: pointer(a.scratch),
		QRow: int64(a.qRow), QTok: int64(a.qTok), OutRow: int64(a.oRow), OutTok: int64(a.oTok), Group: int64(a.group),
		M: int64(rows), D: int64(a.D), Page: int64(page), Scale: a.scale, Softcap: a.softcap})
}

// run does everything in whole calls.
func (a *attention) run(k *Kernels) {
	a.forward(k, 0, a.M, 0, a.pages)
	a.finish(k)
	for i := range a.M {
		o := i/a.group*a.oTok + i%a.group*a.oRow
		a.delta[i] = dot(a.out[o:o+a.D], a.dout[o:o+a.D])
	}
	a.backwardQ(k, 0, a.M, 0, a.pages)
	for p := range a.pages {
		a.backwardKV(k, 0, a.M, p)
	}
}

// poison makes keys and values NaN that no row sees, or that row i does not see
// if i is not negative.
func (a *attention) poison(row int) {
	for pos := range 16 * a.pages {
		seen := false
		for i := range a.M {
			if (row < 0 || i == row) && int(a.start[i]) <= pos && pos < int(a.limit[i]) {
				seen = true
			}
		}
		if seen {
			continue
		}
		for d := range a.D {
			a.k[pos/16][d*16+pos%16] = float32(math.NaN())
			a.v[pos/16][pos%16*a.D+d] = float32(math.NaN())
		}
	}
}

func TestAttentionEqualsGeneric(t *testing.T) {
	fills := map[string]fill{
		"ordinary": ordinary,
		"large":    func(rng *rand.Rand) float32 { return 9 * ordinary(rng) },
		"wide":     func(rng *rand.Rand) float32 { return min(max(wide(rng), -1e9), 1e9) },
		"extreme": func(rng *rand.Rand) float32 {
			if rng.IntN(40) == 0 {
				return extreme(rng)
			}
			return ordinary(rng)
		},
	}
	eachISA(t, func(t *testing.T, k *Kernels) {
		for kind, f := range fills {
			for _, D := range []int{1, 5, 8, 20, 24, 32, 64, 80, 96, 128, 256} {
				for seed := range uint64(6) {
					rng := rand.New(rand.NewPCG(seed, uint64(D)))
					M, pages, group := 1+rng.IntN(14), 1+rng.IntN(3), 1+rng.IntN(5)
					if seed == 0 {
						M, group = 45, 3 // more rows than AttnBackwardKV has scores for at a time
					}
					want, got := newAttention(seed, f, M, D, pages, group), newAttention(seed, f, M, D, pages, group)
					if seed%2 == 1 {
						want.softcap, got.softcap = 5, 5
					}
					want.poison(-1)
					got.poison(-1)
					want.run(For(Generic))
					got.run(k)
					requireSameBits(t, want.b, got.b, fmt.Sprintf("%s M=%d D=%d pages=%d group=%d seed=%d", kind, M, D, pages, group, seed))
				}
			}
		}
	})
}

func TestAttentionIgnoresWhatIsExcluded(t *testing.T) {
	for _, isa := range Supported() {
		k := For(isa)
		for seed := range uint64(8) {
			// NaN that no row sees leaves every bit as it is.
			want, got := newAttention(seed, ordinary, 13, 24, 3, 3), newAttention(seed, ordinary, 13, 24, 3, 3)
			got.poison(-1)
			want.run(k)
			got.run(k)
			for p := range got.pages { // the poisoned inputs differ, of course
				copy(got.k[p], want.k[p])
				copy(got.v[p], want.v[p])
			}
			requireSameBits(t, want.b, got.b, isa.String())

			// NaN that other rows see does not reach a row that does not.
			for row := range want.M {
				got = newAttention(seed, ordinary, 13, 24, 3, 3)
				got.poison(row)
				got.run(k)
				q, o := row/3*want.qTok+row%3*want.qRow, row/3*want.oTok+row%3*want.oRow
				require.Equal(t, want.out[o:o+24], got.out[o:o+24], "%s row %d", isa, row)
				require.Equal(t, want.dq[q:q+24], got.dq[q:q+24], "%s row %d", isa, row)
				require.Equal(t, want.lse[row], got.lse[row], "%s row %d", isa, row)
			}
		}
	}
}

func TestAttentionSplitsAnywhere(t *testing.T) {
	const M, D, pages, group = 24, 40, 4, 2
	for _, isa := range Supported() {
		k := For(isa)
		for seed := range uint64(4) {
			want := newAttention(seed, ordinary, M, D, pages, group)
			want.run(k)
			for split := 1; split < pages; split++ {
				got := newAttention(seed, ordinary, M, D, pages, group)
				copy(got.delta, want.delta)
				row := 2 * split // rows are split too
				for _, r := range [][2]int{{row, M - row}, {0, row}} {
					got.forward(k, r[0], r[1], 0, split)
					got.forward(k, r[0], r[1], split, pages-split)
				}
				got.finish(k)
				for _, r := range [][2]int{{0, row}, {row, M - row}} {
					got.backwardQ(k, r[0], r[1], 0, split)
					got.backwardQ(k, r[0], r[1], split, pages-split)
					for p := range pages {
						got.backwardKV(k, r[0], r[1], p)
					}
				}
				requireSameBits(t, want.b, got.b, fmt.Sprintf("%s split at %d", isa, split))
			}
		}
	}
}

// Scores by pages, values by elements: together they are AttnForward.
func TestAttentionInTwoPasses(t *testing.T) {
	eachISA(t, func(t *testing.T, k *Kernels) {
		for _, D := range []int{1, 8, 20, 48, 64, 256} {
			for seed := range uint64(8) {
				rng := rand.New(rand.NewPCG(seed, uint64(D)))
				M, pages, group := 1+rng.IntN(30), 1+rng.IntN(5), 1+rng.IntN(5)
				want, got := newAttention(seed, ordinary, M, D, pages, group), newAttention(seed, ordinary, M, D, pages, group)
				want.softcap, got.softcap = float32(seed%2)*5, float32(seed%2)*5
				want.poison(-1)
				got.poison(-1)
				want.forward(For(Generic), 0, M, 0, pages)
				from := rng.IntN(pages) // where the calls are cut
				products := make([]float32, pages*M*PageSize)
				got.products(k, products, from, pages-from)
				got.products(k, products, 0, from)
				d := rng.IntN(D)
				for _, part := range [][2]int{{d, D - d}, {0, d}} {
					for i := range M {
						got.state[2*i], got.state[2*i+1] = float32(math.Inf(-1)), 0
					}
					got.values(k, products, part[0], part[1], 0, from)
					got.values(k, products, part[0], part[1], from, pages-from)
				}
				if d == 0 { // the second part had no elements, and states that ran all the same
					require.Equal(t, want.state, got.state)
				}
				copy(got.state, want.state)
				requireSameBits(t, want.b, got.b, fmt.Sprintf("M=%d D=%d pages=%d group=%d seed=%d cut at %d, %d", M, D, pages, group, seed, from, d))
			}
		}
	})
}

func (a *attention) products(k *Kernels, s []float32, page, pages int) {
	k.AttnScores(&AttnScoresArgs{Q: pointer(a.q), KPages: unsafe.Pointer(&a.kp[0]), S: pointer(s[page*a.M*PageSize:]),
		QRow: int64(a.qRow), QTok: int64(a.qTok), Group: int64(a.group), M: int64(a.M), D: int64(a.D), Page0: int64(page), PageN: int64(pages)})
}

func (a *attention) values(k *Kernels, s []float32, d0, d, page, pages int) {
	vp := make([]unsafe.Pointer, len(a.vp))
	for i := range vp {
		vp[i] = unsafe.Add(a.vp[i], 4*d0)
	}
	k.AttnValues(&AttnValuesArgs{S: pointer(s[page*a.M*PageSize:]), Out: pointer(a.out[d0:]), VPages: unsafe.Pointer(&vp[0]),
		Start: unsafe.Pointer(&a.start[0]), Limit: unsafe.Pointer(&a.limit[0]), State: pointer(a.state),
		OutRow: int64(a.oRow), OutTok: int64(a.oTok), Group: int64(a.group), M: int64(a.M), D: int64(d), VRow: int64(a.D),
		Page0: int64(page), PageN: int64(pages), Scale: a.scale, Softcap: a.softcap})
}

func TestAttentionWithoutSightIsZero(t *testing.T) {
	for _, isa := range Supported() {
		a := newAttention(1, ordinary, 1, 20, 2, 1)
		a.start[0], a.limit[0] = 7, 7
		before := slices.Clone(a.dq)
		a.run(For(isa))
		require.Equal(t, make([]float32, 20), a.out[:20], isa.String())
		require.Equal(t, float32(math.Inf(-1)), a.lse[0])
		require.Equal(t, before, a.dq)
	}
}

// softmaxAttention is the textbook in float64: the output [D] and the
// log-sum-exp of row i.
func (a *attention) softmaxAttention(i int) (out []float64, lse float64) {
	q := a.q[i/a.group*a.qTok+i%a.group*a.qRow:]
	var s []float64
	sum := 0.0
	for pos := int(a.start[i]); pos < int(a.limit[i]); pos++ {
		x := 0.0
		for d := range a.D {
			x += float64(q[d]) * float64(a.k[pos/16][d*16+pos%16])
		}
		x *= float64(a.scale)
		if c := float64(a.softcap); c != 0 {
			x = c * math.Tanh(x/c)
		}
		s = append(s, x)
		sum += math.Exp(x)
	}
	lse = math.Log(sum)
	out = make([]float64, a.D)
	for n, x := range s {
		pos := int(a.start[i]) + n
		for d := range out {
			out[d] += math.Exp(x-lse) * float64(a.v[pos/16][pos%16*a.D+d])
		}
	}
	return out, lse
}

// loss is Σ dout·out in float64.
func (a *attention) loss() float64 {
	sum := 0.0
	for i := range a.M {
		out, _ := a.softmaxAttention(i)
		for d, y := range out {
			sum += y * float64(a.dout[i/a.group*a.oTok+i%a.group*a.oRow+d])
		}
	}
	return sum
}

func TestAttentionFollowsSoftmaxAndItsDerivative(t *testing.T) {
	for _, softcap := range []float32{0, 2} {
		a := newAttention(5, ordinary, 7, 12, 3, 2)
		a.softcap = softcap
		grads := append(append([][]float32{a.dq}, a.dk...), a.dv...)
		for _, g := range grads {
			clear(g)
		}
		a.run(For(Generic))
		for i := range a.M {
			if a.start[i] == a.limit[i] {
				continue
			}
			want, lse := a.softmaxAttention(i)
			require.InDelta(t, lse, a.lse[i], 3e-6*(1+math.Abs(lse)))
			for d := range want {
				// float32 scores of size 5 err by 1e-6, and so do probabilities.
				require.InDelta(t, want[d], a.out[i/a.group*a.oTok+i%a.group*a.oRow+d], 5e-6)
			}
		}
		for n, x := range append(append([][]float32{a.q}, a.k...), a.v...) {
			for _, at := range []int{0, 3, 11, 17, 30, 50} {
				if at >= len(x) {
					continue
				}
				old, h := x[at], float32(1.0/256) // central differences err by h² here
				x[at] = old + h
				up, above := a.loss(), x[at]
				x[at] = old - h
				down, below := a.loss(), x[at]
				x[at] = old
				require.InDelta(t, (up-down)/float64(above-below), grads[n][at], 2e-4, "softcap %v input %d element %d", softcap, n, at)
			}
		}
	}
}

// align moves keys and values to where an arena has them, at cache lines.
func (a *attention) align() {
	for p := range a.pages {
		for _, at := range []*unsafe.Pointer{&a.kp[p], &a.vp[p]} {
			mem := make([]float32, 16*a.D+16)
			page := mem[(64-uintptr(pointer(mem))%64)%64/4:][:16*a.D]
			copy(page, floats(*at, int64(len(page))))
			*at = pointer(page)
		}
	}
}

func BenchmarkAttention(b *testing.B) {
	for _, isa := range Supported() {
		for _, c := range []struct{ M, D, pages int }{{1, 64, 16}, {3, 64, 16}, {7, 64, 16}, {7, 128, 8}, {48, 24, 8}, {48, 64, 4}, {48, 128, 2}, {96, 256, 1}} {
			if isa == Generic && c.M != 3 {
				continue
			}
			a := newAttention(1, ordinary, c.M, c.D, c.pages, c.M)
			for i := range a.start {
				a.start[i], a.limit[i] = 0, int32(16*c.pages)
			}
			a.align()
			k := For(isa)
			a.run(k)
			work := 2e-9 * float64(c.M*c.D*c.pages*16)
			each := func(name string, products float64, f func()) {
				b.Run(fmt.Sprintf("%s/%s/M=%d/D=%d/pages=%d", name, isa, c.M, c.D, c.pages), func(b *testing.B) {
					for b.Loop() {
						f()
					}
					b.ReportMetric(work*products*float64(b.N)/b.Elapsed().Seconds(), "GFLOP/s")
				})
			}
			each("Forward", 2, func() { a.forward(k, 0, c.M, 0, c.pages) })
			each("BackwardQ", 3, func() { a.backwardQ(k, 0, c.M, 0, c.pages) })
			each("BackwardKV", 4, func() {
				for p := range c.pages {
					a.backwardKV(k, 0, c.M, p)
				}
			})
			runtime.KeepAlive(a)
		}
	}
}
