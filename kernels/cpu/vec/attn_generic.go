package vec

import (
	"math"
	"unsafe"
)

// attnForwardGeneric is AttnForward in Go.
func attnForwardGeneric(args *AttnArgs) {
	state := floats(args.State, 2*args.M)
	for page := args.Page0; page < args.Page0+args.PageN; page++ {
		k := floats(pageAt(args.KPages, page), args.D*PageSize)
		v := floats(pageAt(args.VPages, page), args.D*PageSize)
		for i := int64(0); i < args.M; i++ {
			j0, j1 := visible(args.Start, args.Limit, i, page)
			if j0 >= j1 {
				continue
			}
			q := rowAt(args.Q, i, args.Group, args.QTok, args.QRow, args.D)
			out := rowAt(args.Out, i, args.Group, args.OutTok, args.OutRow, args.D)
			s, _ := scores(q, k, j0, j1, args.Scale, args.Softcap)
			attnRow(out, state[2*i:2*i+2], &s, v, len(q), j0, j1)
		}
	}
}

// attnScoresGeneric is AttnScores in Go.
func attnScoresGeneric(args *AttnScoresArgs) {
	s := floats(args.S, args.PageN*args.M*PageSize)
	for page := range args.PageN {
		k := floats(pageAt(args.KPages, args.Page0+page), args.D*PageSize)
		for i := range args.M {
			q := rowAt(args.Q, i, args.Group, args.QTok, args.QRow, args.D)
			for j := range int64(PageSize) {
				s[(page*args.M+i)*PageSize+j] = product(q, k, int(j))
			}
		}
	}
}

// attnValuesGeneric is AttnValues in Go.
func attnValuesGeneric(args *AttnValuesArgs) {
	state, products := floats(args.State, 2*args.M), floats(args.S, args.PageN*args.M*PageSize)
	for page := range args.PageN {
		v := floats(pageAt(args.VPages, args.Page0+page), (PageSize-1)*args.VRow+args.D)
		for i := range args.M {
			j0, j1 := visible(args.Start, args.Limit, i, args.Page0+page)
			if j0 >= j1 {
				continue
			}
			var s, slope lanes
			s.fill(float32(math.Inf(-1)))
			for j := j0; j < j1; j++ {
				s[j], slope[j] = score(products[(page*args.M+i)*PageSize+int64(j)], args.Scale, args.Softcap)
			}
			out := rowAt(args.Out, i, args.Group, args.OutTok, args.OutRow, args.D)
			attnRow(out, state[2*i:2*i+2], &s, v, int(args.VRow), j0, j1)
		}
	}
}

// attnRow adds a page of values to a row of the online softmax, given the
// scores s of the positions j0 … j1−1 and −Inf elsewhere. state is (m, l); a value's
// elements are vRow apart from those of the next.
func attnRow(out, state []float32, s *lanes, v []float32, vRow, j0, j1 int) {
	m, l := state[0], state[1]
	first := m == float32(math.Inf(-1))
	top, a := larger(s.max(), m), float32(1)
	if first {
		l = 0
	} else if top > m {
		a = Exp(m - top)
	}
	var p lanes
	for j := j0; j < j1; j++ {
		p[j] = Exp(s[j] - top)
	}
	state[0], state[1] = top, float32(l*a)+p.sum()
	for d := range out {
		acc := float32(0)
		if !first {
			acc = float32(out[d] * a)
		}
		for j := j0; j < j1; j++ {
			acc = fma32(p[j], v[j*vRow+d], acc)
		}
		out[d] = acc
	}
}

// attnFinishGeneric is AttnFinish in Go.
func attnFinishGeneric(args *AttnFinishArgs) {
	state, lse := floats(args.State, 2*args.M), floats(args.LSE, args.M)
	for i := int64(0); i < args.M; i++ {
		out := rowAt(args.Out, i, args.Group, args.OutTok, args.OutRow, args.D)
		m, l := state[2*i], state[2*i+1]
		if m == float32(math.Inf(-1)) && l == 0 {
			clear(out)
			lse[i] = m
			continue
		}
		for d := range out {
			out[d] /= l
		}
		lse[i] = m + Log(l)
	}
}

// attnBackwardQGeneric is AttnBackwardQ in Go.
func attnBackwardQGeneric(args *AttnBackwardQArgs) {
	lse, delta := floats(args.LSE, args.M), floats(args.Delta, args.M)
	for page := args.Page0; page < args.Page0+args.PageN; page++ {
		k := floats(pageAt(args.KPages, page), args.D*PageSize)
		v := floats(pageAt(args.VPages, page), args.D*PageSize)
		for i := int64(0); i < args.M; i++ {
			j0, j1 := visible(args.Start, args.Limit, i, page)
			if j0 >= j1 {
				continue
			}
			q := rowAt(args.Q, i, args.Group, args.QTok, args.QRow, args.D)
			dq := rowAt(args.DQ, i, args.Group, args.QTok, args.QRow, args.D)
			dout := rowAt(args.DOut, i, args.Group, args.OutTok, args.OutRow, args.D)
			s, slope := scores(q, k, j0, j1, args.Scale, args.Softcap)
			_, ds := scoreGrads(&s, &slope, dout, v, j0, j1, lse[i], delta[i], args.Scale)
			for d := range dq {
				for j := j0; j < j1; j++ {
					dq[d] = fma32(ds[j], k[d*PageSize+j], dq[d])
				}
			}
		}
	}
}

// attnBackwardKVGeneric is AttnBackwardKV in Go.
func attnBackwardKVGeneric(args *AttnBackwardKVArgs) {
	lse, delta := floats(args.LSE, args.M), floats(args.Delta, args.M)
	size := args.D * PageSize
	k, v, dk, dv := floats(args.K, size), floats(args.V, size), floats(args.DK, size), floats(args.DV, size)
	D := int(args.D)
	for i := int64(0); i < args.M; i++ {
		j0, j1 := visible(args.Start, args.Limit, i, args.Page)
		if j0 >= j1 {
			continue
		}
		q := rowAt(args.Q, i, args.Group, args.QTok, args.QRow, args.D)
		dout := rowAt(args.DOut, i, args.Group, args.OutTok, args.OutRow, args.D)
		s, slope := scores(q, k, j0, j1, args.Scale, args.Softcap)
		p, ds := scoreGrads(&s, &slope, dout, v, j0, j1, lse[i], delta[i], args.Scale)
		for j := j0; j < j1; j++ {
			for d := 0; d < D; d++ {
				dv[j*D+d] = fma32(p[j], dout[d], dv[j*D+d])
				dk[d*PageSize+j] = fma32(ds[j], q[d], dk[d*PageSize+j])
			}
		}
	}
}

// scores returns the scaled and capped scores of q against the positions j0 …
// j1−1 of a K page, −Inf elsewhere, and the derivative of the cap, 1 without.
func scores(q, k []float32, j0, j1 int, scale, softcapAt float32) (s, slope lanes) {
	s.fill(float32(math.Inf(-1)))
	slope.fill(1)
	for j := j0; j < j1; j++ {
		s[j], slope[j] = score(product(q, k, j), scale, softcapAt)
	}
	return s, slope
}

// product is a query times the key at position j of a page.
func product(q, k []float32, j int) float32 {
	acc := float32(0)
	for d := range q {
		acc = fma32(q[d], k[d*PageSize+j], acc)
	}
	return acc
}

// score is a product scaled and capped, and its slope by the product, Scale aside.
func score(product, scale, softcapAt float32) (s, slope float32) {
	s = float32(product * scale)
	if softcapAt == 0 {
		return s, 1
	}
	t := Tanh(s / softcapAt)
	return float32(softcapAt * t), fma32(-t, t, 1)
}

// scoreGrads returns the probabilities p of the positions j0 … j1−1 and the
// gradients ds at their unscaled scores.
func scoreGrads(s, slope *lanes, dout, v []float32, j0, j1 int, lse, delta, scale float32) (p, ds lanes) {
	D := len(dout)
	for j := j0; j < j1; j++ {
		dp := float32(0)
		for d := range dout {
			dp = fma32(dout[d], v[j*D+d], dp)
		}
		p[j] = Exp(s[j] - lse)
		ds[j] = float32(float32(float32(p[j]*(dp-delta))*slope[j]) * scale)
	}
	return p, ds
}

// visible returns the positions j0 … j1−1 of a page that row i sees.
func visible(start, limit unsafe.Pointer, i, page int64) (j0, j1 int) {
	first := page * PageSize
	j0 = int(max(int64(*(*int32)(unsafe.Add(start, 4*i)))-first, 0))
	j1 = int(min(int64(*(*int32)(unsafe.Add(limit, 4*i)))-first, PageSize))
	return j0, j1
}

// pageAt returns the base address of a logical page.
func pageAt(pages unsafe.Pointer, page int64) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Add(pages, page*int64(unsafe.Sizeof(pages))))
}

// rowAt returns row i of M rows laid out in groups.
func rowAt(base unsafe.Pointer, i, group, tok, row, D int64) []float32 {
	return floats(unsafe.Add(base, 4*(i/group*tok+i%group*row)), D)
}
