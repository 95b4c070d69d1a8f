package quant

import "math"

// nearest returns x rounded to an integer, ties to even, within [lo, hi]; lo for NaN.
func nearest(x float32, lo, hi int) int {
	r := math.RoundToEven(float64(x))
	switch {
	case !(r > float64(lo)):
		return lo
	case r >= float64(hi):
		return hi
	}
	return int(r)
}

// fit32 finds a scale and a minimum ≥ 0 with x ≈ scale·q − minimum, q in
// [0, top], for the 32 elements of a sub-block, and writes q. It tries steps+1
// ranges of q, from top + first on in steps of a tenth, solves the least squares
// that the rounding gives, weighted by w, and keeps the best: ggml's
// make_qkx2_quants, in its order of float32 operations.
func fit32(q *[32]byte, x *[32]float32, w *[32]float32, top int, first float32, steps int) (scale, minimum float32) {
	lo, hi := bounds(x[:])
	var sumW, sumX float32
	for i, v := range x {
		sumW += w[i]
		sumX += float32(w[i] * v)
	}
	if lo > 0 {
		lo = 0
	}
	if hi == lo {
		*q = [32]byte{}
		return 0, -lo
	}
	span := hi - lo
	inv := float32(top) / span
	scale = 1 / inv
	quantize(q, x, inv, lo, top)
	best := misfit(q, x, w, scale, lo)
	var trial [32]byte
	for step := range steps + 1 {
		inv = (first + float32(0.1*float32(step)) + float32(top)) / span
		quantize(&trial, x, inv, lo, top)
		var sumL, sumL2, sumXL float32
		for i, v := range x {
			l := float32(trial[i])
			wl := float32(w[i] * l)
			sumL += wl
			sumL2 += float32(wl * l)
			sumXL += float32(wl * v)
		}
		det := float32(sumW*sumL2) - float32(sumL*sumL)
		if !(det > 0) {
			continue
		}
		s := (float32(sumW*sumXL) - float32(sumX*sumL)) / det
		m := (float32(sumL2*sumX) - float32(sumL*sumXL)) / det
		if m > 0 {
			m = 0
			s = sumXL / sumL2
		}
		if e := misfit(&trial, x, w, s, m); e < best {
			*q, best, scale, lo = trial, e, s, m
			// Later trials start from the new minimum, and so does their span.
			span = hi - lo
		}
	}
	return scale, -lo
}

// quantize writes the integers in [0, top] nearest to (x − lo)·inv.
func quantize(q *[32]byte, x *[32]float32, inv, lo float32, top int) {
	for i, v := range x {
		q[i] = byte(nearest(inv*(v-lo), 0, top))
	}
}

// misfit returns the weighted sum of the squares of scale·q + lo − x.
func misfit(q *[32]byte, x, w *[32]float32, scale, lo float32) float32 {
	var sum float32
	for i, v := range x {
		d := float32(scale*float32(q[i])) + lo - v
		sum += float32(w[i] * float32(d*d))
	}
	return sum
}

// encodeScaled does what Q4_K and Q5_K share: it writes d, dmin and the twelve
// bytes of 6-bit scales and minima to head and returns the integers.
func encodeScaled(head *[16]byte, x *[256]float32, top int, first float32, steps int) *[256]byte {
	q := new([256]byte)
	var scales, minima [8]float32
	var maxScale, maxMin float32
	for j := range 8 {
		sub := (*[32]float32)(x[32*j:])
		var squares float32
		for _, v := range sub {
			squares += float32(v * v)
		}
		rms := float32(math.Sqrt(float64(squares / 32)))
		var w [32]float32
		for i, v := range sub {
			w[i] = rms + abs(v)
		}
		scales[j], minima[j] = fit32((*[32]byte)(q[32*j:]), sub, &w, top, first, steps)
		maxScale, maxMin = max(maxScale, scales[j]), max(maxMin, minima[j])
	}
	var invScale, invMin float32
	if maxScale > 0 {
		invScale = 63 / maxScale
	}
	if maxMin > 0 {
		invMin = 63 / maxMin
	}
	s := (*[12]byte)(head[4:])
	for j := range 8 {
		sc := byte(nearest(invScale*scales[j], 0, 63))
		m := byte(nearest(invMin*minima[j], 0, 63))
		if j < 4 {
			s[j], s[j+4] = sc, m
			continue
		}
		s[j+4] = sc&15 | m<<4
		s[j-4] |= sc >> 4 << 6
		s[j] |= m >> 4 << 6
	}
	putHalf(head[:], maxScale/63)
	putHalf(head[2:], maxMin/63)
	d, dmin := halfAt(head[:]), halfAt(head[2:])
	for j := range 8 {
		sc, m := scaleMin(s, j)
		scale, minimum := d*float32(sc), float32(dmin*float32(m))
		if scale == 0 {
			continue // the integers of the search stay: they decode to −minimum
		}
		for i := 32 * j; i < 32*j+32; i++ {
			q[i] = byte(nearest((x[i]+minimum)/scale, 0, top))
		}
	}
	return q
}

func encodeQ4_K(b *[144]byte, x *[256]float32) {
	q := encodeScaled((*[16]byte)(b[:]), x, 15, -1, 20)
	for c := range 4 {
		for l := range 32 {
			b[16+32*c+l] = q[64*c+l] | q[64*c+32+l]<<4
		}
	}
}

func encodeQ5_K(b *[176]byte, x *[256]float32) {
	q := encodeScaled((*[16]byte)(b[:]), x, 31, -0.5, 15)
	clear(b[16:48])
	for c := range 4 {
		for l := range 32 {
			q0, q1 := q[64*c+l], q[64*c+32+l]
			b[48+32*c+l] = q0&15 | q1<<4
			b[16+l] |= q0>>4<<(2*c) | q1>>4<<(2*c+1)
		}
	}
}

// fit16 finds a scale with x ≈ scale·q, q in [−32, 31], for the 16 elements of a
// sub-block of Q6_K: ggml's make_qx_quants with weights x².
func fit16(x *[16]float32) (scale float32) {
	most := extreme(x[:])
	if abs(most) < tiny {
		return 0
	}
	var best float32
	for step := -10; step <= 9; step++ { // −10 stands for the start, at exactly 32 levels
		levels := float32(32)
		if step >= -9 {
			if step == 0 {
				continue
			}
			levels = 32 + float32(0.1*float32(step))
		}
		inv := -levels / most
		var sumLX, sumL2 float32
		for _, v := range x {
			l := float32(nearest(inv*v, -32, 31))
			w := float32(v * v)
			sumLX += float32(float32(w*v) * l)
			sumL2 += float32(float32(w*l) * l)
		}
		if step == -10 {
			if sumL2 != 0 {
				scale = sumLX / sumL2
			}
			best = scale * sumLX
			continue
		}
		if sumL2 > 0 && float32(sumLX*sumLX) > float32(best*sumL2) {
			scale = sumLX / sumL2
			best = scale * sumLX
		}
	}
	return scale
}

// tiny is the magnitude below which a group counts as zeros (GROUP_MAX_EPS of ggml).
const tiny = 1e-15

func encodeQ6_K(b *[210]byte, x *[256]float32) {
	var scales [16]float32
	for k := range scales {
		scales[k] = fit16((*[16]float32)(x[16*k:]))
	}
	*b = [210]byte{}
	most := extreme(scales[:])
	if abs(most) < tiny {
		return // a block of zero bytes is zeros, for its scale is 0
	}
	inv := -128 / most
	putHalf(b[208:], 1/inv)
	d := halfAt(b[208:])
	var q [256]byte
	for k := range scales {
		sc := nearest(inv*scales[k], -128, 127)
		b[192+k] = byte(int8(sc))
		scale := d * float32(sc)
		for i := 16 * k; i < 16*k+16; i++ {
			q[i] = 32
			if scale != 0 {
				q[i] = byte(nearest(x[i]/scale, -32, 31) + 32)
			}
		}
	}
	for h := range 2 {
		low, high, half := b[64*h:], b[128+32*h:], q[128*h:]
		for l := range 32 {
			q0, q1, q2, q3 := half[l], half[l+32], half[l+64], half[l+96]
			low[l] = q0&15 | q2<<4
			low[l+32] = q1&15 | q3<<4
			high[l] = q0>>4 | q1>>4<<2 | q2>>4<<4 | q3>>4<<6
		}
	}
}
