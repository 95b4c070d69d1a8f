package vec

import "unsafe"

// Attention reads keys and values of one kv head from pages of 16 positions. A
// K page is [D, 16] float32 (lane = position), a V page [16, D]. Position j of
// logical page p is 16p + j. Query row i sees the positions from Start[i] up to
// but not including Limit[i]; the others are excluded for it: they contribute
// nothing, and their keys and values may be anything, NaN included, where no
// row sees them.
//
// M query rows are visited in one call, such as the query heads of a GQA group
// for some tokens: row i lies (i/Group)·Tok + (i mod Group)·Row elements from
// the base, with Group, Tok and Row for all row operands alike in a call
// (QTok, QRow for queries; OutTok, OutRow for outputs and their gradients).
// D is anything from 1; multiples of 8 are fastest. Each row's results depend
// on that row alone.

// PageSize is the number of positions in a page.
const PageSize = Lanes

// AttnArgs describes the visit of pages Page0 … Page0+PageN−1 with an online
// softmax. For each page in order and each row i that sees a position of it,
// over the positions j that it sees:
//
//	s[j] = (chain over d of fma(Q[d], K[d][j], acc) from 0)·Scale, capped by Softcap·tanh(s/Softcap)
//	m'   = max(m, max s), a = e^(m−m')  (if m is −Inf: l = 0, Out = 0, a = 1)
//	p[j] = e^(s[j]−m'), 0 if excluded
//	l    = l·a + tree sum of p
//	Out[d] = chain over j of fma(p[j], V[j][d], acc) from Out[d]·a
//
// State holds (m, l) of each row between calls and starts as (−Inf, 0); Out
// needs no start. Pages may be split over calls anywhere. AttnFinish ends it.
type AttnArgs struct {
	Q, Out         unsafe.Pointer // M rows of [D] float32
	KPages, VPages unsafe.Pointer // base addresses of the pages, by logical page
	Start, Limit   unsafe.Pointer // [M] int32
	State          unsafe.Pointer // [M, 2] float32
	QRow, QTok     int64
	OutRow, OutTok int64
	Group          int64 // ≥ 1
	M, D           int64
	Page0, PageN   int64 // first page, number of pages
	Scale          float32
	Softcap        float32 // 0: none
}

// AttnScoresArgs describes the products with keys of pages Page0 … Page0+PageN−1,
// for every position of a page whether a row sees it or not:
//
//	S[page − Page0][i][j] = chain over d of fma(Q[d], K[d][j], acc) from 0
//
// With AttnValues it makes up AttnForward, bit for bit: pages of the first may be
// shared out among threads, and elements of the second.
type AttnScoresArgs struct {
	Q            unsafe.Pointer // M rows of [D] float32
	KPages       unsafe.Pointer // base addresses of the pages, by logical page
	S            unsafe.Pointer // [PageN, M, 16] float32
	QRow, QTok   int64
	Group        int64
	M, D         int64
	Page0, PageN int64
}

// AttnValuesArgs describes AttnForward given the products S with keys, for D of the
// VRow elements of a value: Out and VPages begin at the first of them.
// State is that of these elements alone, and moves on as in AttnForward.
type AttnValuesArgs struct {
	S, Out         unsafe.Pointer // [PageN, M, 16], and M rows of [D] float32
	VPages         unsafe.Pointer // addresses in the pages, by logical page
	Start, Limit   unsafe.Pointer // [M] int32
	State          unsafe.Pointer // [M, 2] float32
	OutRow, OutTok int64
	Group          int64
	M, D           int64
	VRow           int64
	Page0, PageN   int64
	Scale          float32
	Softcap        float32
}

// AttnFinishArgs describes the end of AttnForward: Out = Out/l and
// LSE = m + log l. A row that saw nothing gets Out = 0 and LSE = −Inf.
type AttnFinishArgs struct {
	Out            unsafe.Pointer // M rows of [D] float32
	State          unsafe.Pointer // [M, 2] float32
	LSE            unsafe.Pointer // [M] float32
	OutRow, OutTok int64
	Group          int64
	M, D           int64
}

// AttnBackwardQArgs describes the gradient of the queries over pages Page0 …
// Page0+PageN−1. For each page in order and each row, over the positions j that
// it sees, with s[j] as in the forward:
//
//	p  = e^(s−LSE)
//	dp = chain over d of fma(DOut[d], V[j][d], acc) from 0
//	ds = (p·(dp−Delta))·Scale, with a Softcap ((p·(dp−Delta))·fma(−t, t, 1))·Scale, t = tanh
//	DQ[d] = chain over j of fma(ds, K[d][j], acc) from DQ[d]
//
// DQ is added to. Pages may be split over calls anywhere.
type AttnBackwardQArgs struct {
	Q, DQ          unsafe.Pointer // M rows of [D] float32, strides QRow and QTok
	DOut           unsafe.Pointer // M rows of [D] float32, strides OutRow and OutTok
	KPages, VPages unsafe.Pointer // base addresses of the pages, by logical page
	Start, Limit   unsafe.Pointer // [M] int32
	LSE            unsafe.Pointer // [M] float32, from AttnFinish
	Delta          unsafe.Pointer // [M] float32, Σ DOut·Out
	Scratch        unsafe.Pointer // [AttnScratch(D)] float32
	QRow, QTok     int64
	OutRow, OutTok int64
	Group          int64
	M, D           int64
	Page0, PageN   int64
	Scale          float32
	Softcap        float32
}

// AttnBackwardKVArgs describes the gradients of one page of keys and values,
// from M query rows. With p and ds as in AttnBackwardQArgs, for the positions j
// that row i sees:
//
//	DV[j][d] = chain over rows i of fma(p, DOut[i][d], acc) from DV[j][d]
//	DK[d][j] = chain over rows i of fma(ds, Q[i][d], acc) from DK[d][j]
//
// DK and DV are added to, and stay as they are where no row sees the position.
// Rows may be split over calls anywhere.
type AttnBackwardKVArgs struct {
	Q            unsafe.Pointer // M rows of [D] float32, strides QRow and QTok
	DOut         unsafe.Pointer // M rows of [D] float32, strides OutRow and OutTok
	K, DK        unsafe.Pointer // [D, 16] float32
	V, DV        unsafe.Pointer // [16, D] float32
	Start, Limit unsafe.Pointer // [M] int32
	LSE          unsafe.Pointer // [M] float32
	Delta        unsafe.Pointer // [M] float32
	Scratch      unsafe.Pointer // [AttnScratch(D)] float32

	QRow, QTok     int64
	OutRow, OutTok int64
	Group          int64
	M, D           int64
	Page           int64 // logical number of the page
	Scale          float32
	Softcap        float32
}

// AttnScratch returns the number of float32 that the attention backward needs
// as scratch for heads of D elements.
func AttnScratch(D int) int { return 2*PageSize*D + 2*PageSize*attnRun }

// attnRun is the number of query rows whose scores are in Scratch at a time.
const attnRun = 32
