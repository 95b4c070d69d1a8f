// Attention over pages of 16 positions: what is computed is said at the argument
// types in ../attn_args.go, the Go twin is ../attn_generic.go.
//
// Rows are taken in blocks that see the same positions of the page, ROWS at a
// time in the products. A block's scores have lane = position, its products with values lane =
// element; both are small matrix products whose accumulators stay in registers,
// and the softmax between them passes through memory.
#include "lanes.h"
#include "attn.h"

#define PAGE 16
#define RUN 32 // attnRun in ../attn_args.go
#if defined(__AVX512F__)
#define ROWS 8
#else
#define ROWS 6
#endif
#define PAIR (2 * ROWS) // at most 16, so that one vector holds a number a row

// rows walks the M rows of a call without dividing by the group.
struct rows {
	const int *start, *limit;
	long first;            // position of the page's first lane
	long qrow, qtok, outrow, outtok, group;
	long i, m, g, q, out;  // row, rows, head in the group, offsets of the row
	int j0, j1;            // positions of the page that the row sees
};

INLINE void see(struct rows *r) {
	long a = r->start[r->i] - r->first, b = r->limit[r->i] - r->first;
	r->j0 = a < 0 ? 0 : a > PAGE ? PAGE : (int)a;
	r->j1 = b < 0 ? 0 : b > PAGE ? PAGE : (int)b;
}

INLINE void step(struct rows *r) {
	r->i++, r->g++;
	r->q += r->qrow, r->out += r->outrow;
	if (r->g == r->group) {
		r->g = 0;
		r->q += r->qtok - r->group * r->qrow;
		r->out += r->outtok - r->group * r->outrow;
	}
}

// block collects the next rows, up to n, that see the same positions j0 … j1−1,
// at least one of them; 0 at the end.
struct block {
	long i; // first row
	int n, j0, j1;
	long q[RUN], out[RUN];
};

INLINE int next(struct rows *r, struct block *b, int n) {
	ROLLED for (; r->i < r->m; step(r)) {
		see(r);
		if (r->j0 < r->j1) break;
	}
	b->n = 0;
	if (r->i >= r->m) return 0;
	b->i = r->i, b->j0 = r->j0, b->j1 = r->j1;
	do {
		b->q[b->n] = r->q, b->out[b->n] = r->out;
		b->n++;
		step(r);
		if (r->i >= r->m || b->n >= n) break;
		see(r);
	} while (r->j0 == b->j0 && r->j1 == b->j1);
	return b->n;
}

INLINE i32x16 seen(const struct block *b) {
	return (lane() >= b->j0) & (lane() < b->j1);
}

// OF calls f with a constant for its first argument, n or ROWS if n is more.
#if ROWS == 8
#define OF(n, f, ...)                                                     \
	switch (n) {                                                      \
	case 1: f(1, __VA_ARGS__); break;                                 \
	case 2: f(2, __VA_ARGS__); break;                                 \
	case 3: f(3, __VA_ARGS__); break;                                 \
	case 4: f(4, __VA_ARGS__); break;                                 \
	case 5: f(5, __VA_ARGS__); break;                                 \
	case 6: f(6, __VA_ARGS__); break;                                 \
	case 7: f(7, __VA_ARGS__); break;                                 \
	default: f(8, __VA_ARGS__);                                       \
	}
#else
#define OF(n, f, ...)                                                     \
	switch (n) {                                                      \
	case 1: f(1, __VA_ARGS__); break;                                 \
	case 2: f(2, __VA_ARGS__); break;                                 \
	case 3: f(3, __VA_ARGS__); break;                                 \
	case 4: f(4, __VA_ARGS__); break;                                 \
	case 5: f(5, __VA_ARGS__); break;                                 \
	default: f(6, __VA_ARGS__);                                       \
	}
#endif

// A page is a few kilobytes anywhere in memory, which no hardware prefetcher
// sees coming: the first block of a page asks for the next page line by line,
// ahead elements further, with 0 for nothing to ask for.
#define FETCH(p)                                                          \
	do {                                                              \
		if (!__builtin_constant_p(ahead)) __builtin_prefetch((p) + ahead); \
	} while (0)

// dots: s[r][j] = chain over d of fma(x[r][d], page[d][j], acc) from 0.
INLINE void dots(const int n, float *s, const float *x, const long *off, const float *page, long d, long ahead) {
	const float *row[ROWS];
	f32x16 acc[ROWS];
	UNROLL for (int r = 0; r < n; r++) row[r] = x + off[r], acc[r] = (f32x16){0};
	ROLLED for (long i = 0; i < d; i++) {
		f32x16 k = load(page + PAGE * i);
		FETCH(page + PAGE * i);
		UNROLL for (int r = 0; r < n; r++) acc[r] = fma(splat(row[r][i]), k, acc[r]);
	}
	UNROLL for (int r = 0; r < n; r++) store(s + PAGE * r, acc[r]);
}

// mix: y[r][d] = chain over j0 ≤ j < j1 of fma(p[r][j], page[j][d], acc) from
// y[r][d]·a[r].
INLINE void mix_part(const int n, const int wide, const long rest, float *y, const long *off, const float *a,
		     const float *p, const float *page, long vrow, int j0, int j1, long ahead) {
	f32x16 acc[ROWS][4];
	UNROLL for (int r = 0; r < n; r++)
		UNROLL for (int c = 0; c < wide; c++) {
			float *at = y + off[r] + 16 * c;
			acc[r][c] = (rest ? load_n(at, rest) : load(at)) * splat(a[r]);
		}
	page += j0 * vrow, p += j0;
	ROLLED for (int j = j0; j < j1; j++, page += vrow, p++) {
		UNROLL for (int c = 0; c < wide; c++) {
			f32x16 v = rest ? load_n(page + 16 * c, rest) : load(page + 16 * c);
			FETCH(page + 16 * c);
			UNROLL for (int r = 0; r < n; r++) acc[r][c] = fma(splat(p[PAGE * r]), v, acc[r][c]);
		}
	}
	UNROLL for (int r = 0; r < n; r++)
		UNROLL for (int c = 0; c < wide; c++) {
			float *at = y + off[r] + 16 * c;
			if (rest) store_n(at, acc[r][c], rest);
			else store(at, acc[r][c]);
		}
}

INLINE void mix_half(const int n, float *y, const long *off, const float *a, const float *p, const float *page,
		     long vrow, int j0, int j1) {
	f32x8 acc[ROWS];
	UNROLL for (int r = 0; r < n; r++) acc[r] = half(y + off[r]) * a[r];
	page += j0 * vrow, p += j0;
	ROLLED for (int j = j0; j < j1; j++, page += vrow, p++) {
		f32x8 v = half(page);
		UNROLL for (int r = 0; r < n; r++) acc[r] = __builtin_elementwise_fma(LOW(splat(p[PAGE * r])), v, acc[r]);
	}
	UNROLL for (int r = 0; r < n; r++) *(f32x8_at *)(y + off[r]) = acc[r];
}

// The page's rows are vrow elements apart, of which d are taken.
INLINE void mix(const int n, float *y, const long *off, const float *a, const float *p, const float *page, long d,
		long vrow, int j0, int j1, long ahead) {
	const int wide = n == 1 ? 4 : n <= 3 ? 2 : 1; // enough chains to hide latency
	long i = 0;
	ROLLED for (; i + 16 * wide <= d; i += 16 * wide)
		mix_part(n, wide, 0, y + i, off, a, p, page + i, vrow, j0, j1, ahead);
	if (wide > 1)
		ROLLED for (; i + 16 <= d; i += 16) mix_part(n, 1, 0, y + i, off, a, p, page + i, vrow, j0, j1, ahead);
	if (i + 8 <= d) mix_half(n, y + i, off, a, p, page + i, vrow, j0, j1), i += 8;
	if (i < d) mix_part(n, 1, d - i, y + i, off, a, p, page + i, vrow, j0, j1, ahead);
}

// softmax turns the products p of a block into scores and then probabilities,
// moves the states of its rows on, and sets drop to what their outputs are to be
// multiplied by. Outputs that begin here, of d elements, are cleared.
INLINE void softmax(float *p, float *drop, const struct block *b, float *state, float *y, long d, float scale, float softcap) {
	const f32x16 low = splat(-__builtin_inff()), zero = {0};
	const i32x16 mask = seen(b);
	float top[PAIR];
	int moved = 0;
	state += 2 * b->i;
	store(drop, zero);
	ROLLED for (int r = 0; r < b->n; r++) {
		f32x16 s = load(p + PAGE * r) * splat(scale);
		if (softcap != 0.0f) s = splat(softcap) * tanh16(s / splat(softcap));
		s = pick(mask, s, low);
		store(p + PAGE * r, s);
		float m = state[2 * r], t = max16(s);
		t = t > m ? t : m;
		top[r] = t;
		if (m == -__builtin_inff()) {
			float *out = y + b->out[r];
			long i = 0;
			ROLLED for (; i + 16 <= d; i += 16) store(out + i, zero);
			if (i < d) store_n(out + i, zero, d - i);
			state[2 * r + 1] = 0.0f;
		} else if (t > m) {
			drop[r] = m - t;
			moved = 1;
		}
	}
	store(drop, moved ? exp16(load(drop)) : splat(1.0f));
	ROLLED for (int r = 0; r < b->n; r++) {
		f32x16 e = pick(mask, exp16(load(p + PAGE * r) - splat(top[r])), zero);
		store(p + PAGE * r, e);
		state[2 * r] = top[r];
		state[2 * r + 1] = state[2 * r + 1] * drop[r] + sum16(e);
	}
}

void AttnForward(struct AttnForward *a) {
	float p[PAIR * PAGE] __attribute__((aligned(64))), drop[PAGE] __attribute__((aligned(64)));
	struct block b;
	const long d = a->d;
	ROLLED for (long page = a->page0; page < a->page0 + a->pagen; page++) {
		struct rows rows = {a->start, a->limit, page * PAGE, a->qrow, a->qtok, a->outrow, a->outtok,
				    a->group, 0, a->m, 0, 0, 0, 0, 0};
		const float *kp = a->kpages[page], *vp = a->vpages[page];
		const _Bool last = page + 1 == a->page0 + a->pagen;
		long kahead = last ? 0 : a->kpages[page + 1] - kp, vahead = last ? 0 : a->vpages[page + 1] - vp;
		while (next(&rows, &b, PAIR)) {
			ROLLED for (int r = 0; r < b.n; r += ROWS)
				OF(b.n - r, dots, p + PAGE * r, a->q, b.q + r, kp, d, kahead)
			softmax(p, drop, &b, a->state, a->out, d, a->scale, a->softcap);
			ROLLED for (int r = 0; r < b.n; r += ROWS)
				OF(b.n - r, mix, a->out, b.out + r, drop + r, p + PAGE * r, vp, d, d, b.j0, b.j1, vahead)
			kahead = vahead = 0;
		}
	}
}

// AttnScores and AttnValues are the two halves of AttnForward: the products with
// keys can then be shared out by pages, and those with values by elements.
void AttnScores(struct AttnScores *a) {
	long off[ROWS], at = 0, g = 0;
	const long d = a->d;
	ROLLED for (long r = 0; r < a->m; r += ROWS) {
		const long n = a->m - r < ROWS ? a->m - r : ROWS;
		ROLLED for (long i = 0; i < n; i++) {
			off[i] = at, at += a->qrow;
			if (++g == a->group) g = 0, at += a->qtok - a->group * a->qrow;
		}
		ROLLED for (long page = 0; page < a->pagen; page++) {
			const float *kp = a->kpages[a->page0 + page];
			long ahead = r || page + 1 == a->pagen ? 0 : a->kpages[a->page0 + page + 1] - kp;
			OF(n, dots, a->s + PAGE * (page * a->m + r), a->q, off, kp, d, ahead)
		}
	}
}

void AttnValues(struct AttnValues *a) {
	float p[PAIR * PAGE] __attribute__((aligned(64))), drop[PAGE] __attribute__((aligned(64)));
	struct block b;
	const long d = a->d;
	ROLLED for (long page = 0; page < a->pagen; page++) {
		struct rows rows = {a->start, a->limit, (a->page0 + page) * PAGE, 0, 0, a->outrow, a->outtok,
				    a->group, 0, a->m, 0, 0, 0, 0, 0};
		const float *vp = a->vpages[a->page0 + page], *s = a->s + PAGE * page * a->m;
		long ahead = page + 1 == a->pagen ? 0 : a->vpages[a->page0 + page + 1] - vp;
		while (next(&rows, &b, PAIR)) {
			ROLLED for (int r = 0; r < b.n; r++) store(p + PAGE * r, load(s + PAGE * (b.i + r)));
			softmax(p, drop, &b, a->state, a->out, d, a->scale, a->softcap);
			ROLLED for (int r = 0; r < b.n; r += ROWS)
				OF(b.n - r, mix, a->out, b.out + r, drop + r, p + PAGE * r, vp, d, a->vrow, b.j0, b.j1, ahead)
			ahead = 0;
		}
	}
}

void AttnFinish(struct AttnFinish *a) {
	const long d = a->d;
	long out = 0, g = 0;
	ROLLED for (long r = 0; r < a->m; r++) {
		float *y = a->out + out, m = a->state[2 * r], l = a->state[2 * r + 1];
		const _Bool blind = m == -__builtin_inff() && l == 0.0f;
	const f32x16 div = splat(l), zero = {0};
		long i = 0;
		ROLLED for (; i + 16 <= d; i += 16) store(y + i, blind ? zero : load(y + i) / div);
		if (i < d) store_n(y + i, blind ? zero : load_n(y + i, d - i) / div, d - i);
		a->lse[r] = blind ? m : m + log16(div)[0];
		out += a->outrow;
		if (++g == a->group) g = 0, out += a->outtok - a->group * a->outrow;
	}
}

// transpose8 turns 8 rows of 8 into 8 columns.
INLINE void transpose8(float *y, long yrow, const float *x, long xrow) {
	f32x8 r[8], t[8];
	UNROLL for (int i = 0; i < 8; i++) r[i] = *(const f32x8_at *)(x + i * xrow);
	UNROLL for (int i = 0; i < 8; i += 2) {
		t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
		t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
	}
	UNROLL for (int i = 0; i < 8; i += 4)
		UNROLL for (int k = 0; k < 2; k++) {
			r[i + 2 * k] = __builtin_shufflevector(t[i + k], t[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
			r[i + 2 * k + 1] = __builtin_shufflevector(t[i + k], t[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
		}
	UNROLL for (int i = 0; i < 4; i++) {
		*(f32x8_at *)(y + i * yrow) = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
		*(f32x8_at *)(y + (i + 4) * yrow) = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
	}
}

// turn writes the transpose of x [m, n] to y [n, m].
INLINE void turn(float *y, const float *x, long m, long n) {
	long m8 = m & -8, n8 = n & -8;
	ROLLED for (long i = 0; i < m8; i += 8)
		ROLLED for (long k = 0; k < n8; k += 8) transpose8(y + k * m + i, m, x + i * n + k, n);
	ROLLED for (long i = 0; i < m; i++)
		ROLLED for (long k = i < m8 ? n8 : 0; k < n; k++) y[k * m + i] = x[i * n + k];
}

// grads turns the products s and dp of a block into probabilities and the
// gradients at the unscaled scores, zero where a position is not seen.
INLINE void grads(float *s, float *dp, const struct block *b, const float *lse, const float *delta, float scale,
		  float softcap) {
	const i32x16 mask = seen(b);
	const f32x16 zero = {0};
	ROLLED for (int r = 0; r < b->n; r++) {
		f32x16 x = load(s + PAGE * r) * splat(scale), slope = splat(1.0f);
		if (softcap != 0.0f) {
			f32x16 t = tanh16(x / splat(softcap));
			slope = fma(-t, t, slope);
			x = splat(softcap) * t;
		}
		f32x16 p = exp16(x - splat(lse[b->i + r]));
		f32x16 ds = ((p * (load(dp + PAGE * r) - splat(delta[b->i + r]))) * slope) * splat(scale);
		store(s + PAGE * r, pick(mask, p, zero));
		store(dp + PAGE * r, pick(mask, ds, zero));
	}
}

void AttnBackwardQ(struct AttnBackwardQ *a) {
	const long d = a->d;
	float *kt = a->scratch, *vt = kt + PAGE * d, *s = vt + PAGE * d, *ds = s + RUN * PAGE;
	float one[ROWS];
	struct block b;
	UNROLL for (int r = 0; r < ROWS; r++) one[r] = 1.0f;
	ROLLED for (long page = a->page0; page < a->page0 + a->pagen; page++) {
		struct rows rows = {a->start, a->limit, page * PAGE, a->qrow, a->qtok, a->outrow, a->outtok,
				    a->group, 0, a->m, 0, 0, 0, 0, 0};
		const float *kp = a->kpages[page];
		int turned = 0;
		while (next(&rows, &b, ROWS)) {
			if (!turned) {
				turn(kt, kp, d, PAGE);
				turn(vt, a->vpages[page], PAGE, d);
				turned = 1;
			}
			OF(b.n, dots, s, a->q, b.q, kp, d, 0)
			OF(b.n, dots, ds, a->dout, b.out, vt, d, 0)
			grads(s, ds, &b, a->lse, a->delta, a->scale, a->softcap);
			OF(b.n, mix, a->dq, b.q, one, ds, kt, d, d, b.j0, b.j1, 0)
		}
	}
}

// add_keys: dk[i][j] for n elements i = chain over rows r of fma(ds[r][j], q[r][i], acc).
INLINE void add_keys(const int n, float *dk, const float *ds, const float *q, const long *off, int rows, i32x16 mask) {
	f32x16 acc[ROWS];
	UNROLL for (int i = 0; i < n; i++) acc[i] = load(dk + PAGE * i);
	ROLLED for (int r = 0; r < rows; r++) {
		f32x16 v = load(ds + PAGE * r);
		const float *x = q + off[r];
		UNROLL for (int i = 0; i < n; i++) acc[i] = fma(v, splat(x[i]), acc[i]);
	}
	UNROLL for (int i = 0; i < n; i++) store(dk + PAGE * i, pick(mask, acc[i], load(dk + PAGE * i)));
}

// add_values: dv[j][·] for n positions j and 16 elements, or rest, = chain over
// rows r of fma(p[r][j], dout[r][·], acc).
INLINE void add_values(const int n, const long rest, float *dv, long d, const float *p, const float *dout,
		       const long *off, int rows) {
	f32x16 acc[ROWS];
	UNROLL for (int j = 0; j < n; j++) acc[j] = rest ? load_n(dv + j * d, rest) : load(dv + j * d);
	ROLLED for (int r = 0; r < rows; r++) {
		f32x16 v = rest ? load_n(dout + off[r], rest) : load(dout + off[r]);
		UNROLL for (int j = 0; j < n; j++) acc[j] = fma(splat(p[PAGE * r + j]), v, acc[j]);
	}
	UNROLL for (int j = 0; j < n; j++) {
		if (rest) store_n(dv + j * d, acc[j], rest);
		else store(dv + j * d, acc[j]);
	}
}

INLINE void add_values_half(const int n, float *dv, long d, const float *p, const float *dout, const long *off,
			    int rows) {
	f32x8 acc[ROWS];
	UNROLL for (int j = 0; j < n; j++) acc[j] = half(dv + j * d);
	ROLLED for (int r = 0; r < rows; r++) {
		f32x8 v = half(dout + off[r]);
		UNROLL for (int j = 0; j < n; j++)
			acc[j] = __builtin_elementwise_fma(LOW(splat(p[PAGE * r + j])), v, acc[j]);
	}
	UNROLL for (int j = 0; j < n; j++) *(f32x8_at *)(dv + j * d) = acc[j];
}

INLINE void add_values_all(const int n, float *dv, long d, const float *p, const float *dout, const long *off,
			   int rows) {
	long i = 0;
	ROLLED for (; i + 16 <= d; i += 16) add_values(n, 0, dv + i, d, p, dout + i, off, rows);
	if (i + 8 <= d) add_values_half(n, dv + i, d, p, dout + i, off, rows), i += 8;
	if (i < d) add_values(n, d - i, dv + i, d, p, dout + i, off, rows);
}

void AttnBackwardKV(struct AttnBackwardKV *a) {
	const long d = a->d;
	float *vt = a->scratch + PAGE * d, *p = vt + PAGE * d, *ds = p + RUN * PAGE;
	struct block b;
	struct rows rows = {a->start, a->limit, a->page * PAGE, a->qrow, a->qtok, a->outrow, a->outtok,
			    a->group, 0, a->m, 0, 0, 0, 0, 0};
	int turned = 0;
	while (next(&rows, &b, RUN)) {
		if (!turned) turn(vt, a->v, PAGE, d);
		turned = 1;
		ROLLED for (int r = 0; r < b.n; r += ROWS) {
			OF(b.n - r, dots, p + PAGE * r, a->q, b.q + r, a->k, d, 0)
			OF(b.n - r, dots, ds + PAGE * r, a->dout, b.out + r, vt, d, 0)
		}
		grads(p, ds, &b, a->lse, a->delta, a->scale, a->softcap);
		const i32x16 mask = seen(&b);
		ROLLED for (long i = 0; i < d; i += ROWS)
			OF(d - i, add_keys, a->dk + PAGE * i, ds, a->q + i, b.q, b.n, mask)
		ROLLED for (int j = b.j0; j < b.j1; j += ROWS)
			OF(b.j1 - j, add_values_all, a->dv + j * d, d, p + j, a->dout, b.out, b.n)
	}
}
