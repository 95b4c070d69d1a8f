// The row primitives: what each computes is said at its argument type in
// ../rows_*.go, and its Go twin is there too.
#include "lanes.h"
#include "rows.h"

// ROWS runs one body over whole vectors and once more over the rest: GET reads
// and PUT writes the vector at element i, LEFT is the lanes that the rest has, and
// CHAIN is a link in a reduction, which lanes without an element skip.
#define GET(p) (rest ? load_n((p) + i, n - i) : load((p) + i))
#define PUT(p, v) (rest ? store_n((p) + i, (v), n - i) : store((p) + i, (v)))
#define LEFT (lane() < (int)(n - i))
#define CHAIN(acc, next) ((acc) = rest ? pick(LEFT, (next), (acc)) : (next))
#define EACH(n, ...)                                                      \
	do {                                                              \
		long i = 0;                                               \
		ROLLED for (; i + 16 <= (n); i += 16) {                     \
			enum { rest = 0 };                                \
			__VA_ARGS__                                       \
		}                                                         \
		if (i < (n)) {                                            \
			enum { rest = 1 };                                \
			__VA_ARGS__                                       \
		}                                                         \
	} while (0)

INLINE float dot_row(const float *x, const float *y, long n) {
	f32x16 acc = {0};
	EACH(n, CHAIN(acc, fma(GET(x), GET(y), acc)););
	return sum16(acc);
}

void SumSquares(struct SumSquares *a) { a->sum = dot_row(a->x, a->x, a->n); }

void Dot(struct Dot *a) { a->sum = dot_row(a->x, a->y, a->n); }

void RMSNorm(struct RMSNorm *a) {
	float *y = a->y;
	const float *x = a->x, *w = a->w;
	const long n = a->n;
	float inv = 1.0f / __builtin_elementwise_sqrt(dot_row(x, x, n) / (float)n + a->eps);
	a->inv = inv;
	if (w)
		EACH(n, PUT(y, (GET(x) * splat(inv)) * GET(w)););
	else
		EACH(n, PUT(y, GET(x) * splat(inv)););
}

INLINE void norm_backward(struct RMSNormBackward *a, const _Bool weighted, const _Bool want_dw) {
	float *dx = a->dx, *dw = a->dw;
	const float *x = a->x, *w = a->w, *dy = a->dy;
	const long n = a->n, keep = a->keep == 1;
	const float inv = a->inv;
	f32x16 c = {0};
	EACH(n, f32x16 g = GET(dy); if (weighted) g = g * GET(w); CHAIN(c, fma(g, GET(x), c)););
	const float k = ((sum16(c) * inv) * inv) * inv / (float)n;
	EACH(n, f32x16 d = GET(dy); f32x16 g = d; if (weighted) g = d * GET(w); f32x16 xi = GET(x);
	     f32x16 v = fma(splat(-k), xi, splat(inv) * g); if (keep) v = GET(dx) + v;
	     if (want_dw) PUT(dw, fma(d, xi * splat(inv), GET(dw))); PUT(dx, v););
}

void RMSNormBackward(struct RMSNormBackward *a) {
	if (a->w) {
		if (a->dw)
			norm_backward(a, 1, 1);
		else
			norm_backward(a, 1, 0);
	} else if (a->dw)
		norm_backward(a, 0, 1);
	else
		norm_backward(a, 0, 0);
}

void SwiGLU(struct Gate *a) {
	float *y = a->y;
	const float *gp = a->g, *up = a->u;
	const long n = a->n;
	EACH(n, f32x16 g = GET(gp); PUT(y, (g * sigmoid16(g)) * GET(up)););
}

void GeGLU(struct Gate *a) {
	float *y = a->y;
	const float *gp = a->g, *up = a->u;
	const long n = a->n;
	EACH(n, f32x16 g = GET(gp); PUT(y, (g * gelu_gate16(g)) * GET(up)););
}

void SwiGLUBackward(struct GateBackward *a) {
	float *dg = a->dg, *du = a->du;
	const float *gp = a->g, *up = a->u, *dyp = a->dy;
	const long n = a->n;
	EACH(n, f32x16 g = GET(gp); f32x16 u = GET(up); f32x16 dy = GET(dyp); f32x16 s = sigmoid16(g);
	     f32x16 slope = s * fma(g, splat(1.0f) - s, splat(1.0f));
	     PUT(du, dy * (g * s)); PUT(dg, (dy * u) * slope););
}

void GeGLUBackward(struct GateBackward *a) {
	float *dg = a->dg, *du = a->du;
	const float *gp = a->g, *up = a->u, *dyp = a->dy;
	const long n = a->n;
	EACH(n, f32x16 g = GET(gp); f32x16 u = GET(up); f32x16 dy = GET(dyp); f32x16 s = gelu_gate16(g);
	     f32x16 dz = splat(1.5957691216057308f) * fma(splat((float)(3 * 0.044715)), g * g, splat(1.0f));
	     f32x16 slope = s * fma(g * (splat(1.0f) - s), dz, splat(1.0f));
	     PUT(du, dy * (g * s)); PUT(dg, (dy * u) * slope););
}

void Add(struct Add *a) {
	float *y = a->y;
	const float *x = a->x;
	const long n = a->n;
	EACH(n, PUT(y, GET(y) + GET(x)););
}

void Scale(struct Scaled *a) {
	float *y = a->y;
	const float *x = a->x;
	const long n = a->n;
	const f32x16 s = splat(a->a);
	EACH(n, PUT(y, s * GET(x)););
}

void Axpy(struct Scaled *a) {
	float *y = a->y;
	const float *x = a->x;
	const long n = a->n;
	const f32x16 s = splat(a->a);
	EACH(n, PUT(y, fma(s, GET(x), GET(y))););
}

void Mul(struct Mul *a) {
	float *y = a->y;
	const float *x = a->x, *z = a->z;
	const long n = a->n;
	EACH(n, PUT(y, GET(x) * GET(z)););
}

void Softcap(struct Scaled *a) {
	float *y = a->y;
	const float *x = a->x;
	const long n = a->n;
	const f32x16 cap = splat(a->a);
	EACH(n, PUT(y, cap * tanh16(GET(x) / cap)););
}

void SoftcapBackward(struct SoftcapBackward *a) {
	float *dx = a->dx;
	const float *y = a->y, *dy = a->dy;
	const long n = a->n;
	const f32x16 cap = splat(a->cap);
	EACH(n, f32x16 t = GET(y) / cap; PUT(dx, GET(dy) * fma(-t, t, splat(1.0f))););
}

void Exp(struct Scaled *a) {
	float *y = a->y;
	const float *x = a->x;
	const long n = a->n;
	const f32x16 shift = splat(a->a);
	EACH(n, PUT(y, exp16(GET(x) - shift)););
}

void AdamW(struct AdamW *a) {
	float *pp = a->p, *mp = a->m, *vp = a->v;
	const float *gp = a->g;
	const long n = a->n;
	EACH(n, f32x16 g = splat(a->grad_scale) * GET(gp);
	     f32x16 m = fma(splat(a->beta1), GET(mp), splat(a->rest1) * g);
	     f32x16 v = fma(splat(a->beta2), GET(vp), splat(a->rest2) * (g * g));
	     f32x16 denom = __builtin_elementwise_sqrt(v) / splat(a->root_bias2) + splat(a->eps);
	     f32x16 p = GET(pp) * splat(a->decay);
	     PUT(mp, m); PUT(vp, v); PUT(pp, fma(splat(-a->step), m / denom, p)););
}

// rotate turns the pair (x0, x1) by the angle whose cosine and sine are c, s.
#define ROTATE(FMA, y0, y1, x0, x1, c, s) \
	(y0) = FMA((x0), (c), -((x1) * (s))), (y1) = FMA((x0), (s), (x1) * (c))

INLINE void rope_neox(float *y, const float *x, const float *cos, const float *sin, long n, const _Bool inverse) {
	const f32x16 sign = splat(inverse ? -0.0f : 0.0f);
	EACH(n, f32x16 c = GET(cos); f32x16 s = bits(word(GET(sin)) ^ word(sign)); f32x16 x0 = GET(x); f32x16 x1 = GET(x + n);
	     f32x16 y0; f32x16 y1; ROTATE(fma, y0, y1, x0, x1, c, s); PUT(y, y0); PUT(y + n, y1););
}

INLINE void rope_pairs(float *y, const float *x, const float *cos, const float *sin, long n, const _Bool inverse) {
	const f32x16 sign = splat(inverse ? -0.0f : 0.0f);
	long i = 0;
	ROLLED for (; i + 16 <= n; i += 16) {
		f32x16 c = load(cos + i), s = bits(word(load(sin + i)) ^ word(sign));
		f32x16 a = load(x + 2 * i), b = load(x + 2 * i + 16), y0, y1;
		f32x16 x0 = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
		f32x16 x1 = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
		ROTATE(fma, y0, y1, x0, x1, c, s);
		store(y + 2 * i, __builtin_shufflevector(y0, y1, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
		store(y + 2 * i + 16, __builtin_shufflevector(y0, y1, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
	}
	ROLLED for (; i < n; i++) {
		float c = cos[i], s = inverse ? -sin[i] : sin[i];
		float x0 = x[2 * i], x1 = x[2 * i + 1];
		ROTATE(__builtin_elementwise_fma, y[2 * i], y[2 * i + 1], x0, x1, c, s);
	}
}

void RoPE(struct RoPE *a) {
	const long d = a->d, r = a->r;
	ROLLED for (long h = 0; h < a->heads; h++) {
		float *y = a->y + h * a->yrow;
		const float *x = a->x + h * a->xrow;
		if (a->neox == 1)
			rope_neox(y, x, a->cos, a->sin, r / 2, a->inverse == 1);
		else
			rope_pairs(y, x, a->cos, a->sin, r / 2, a->inverse == 1);
		if (y != x && r < d) {
			const long n = d - r;
			y += r, x += r;
			EACH(n, PUT(y, GET(x)););
		}
	}
}

void LogSumExpChunk(struct LogSumExpChunk *a) {
	const float *z = a->z;
	const long n = a->n;
	const f32x16 low = splat(-__builtin_inff());
	f32x16 top = low, l = {0}, e = {0};
	EACH(n, f32x16 v = GET(z); CHAIN(top, larger16(v, top)););
	float m = max16(top);
	a->max = m;
	const f32x16 shift = splat(m == -__builtin_inff() ? 0.0f : m);
	EACH(n, f32x16 v = GET(z); f32x16 p = exp16(v - shift); v = pick(p == splat(0.0f), splat(0.0f), v);
	     CHAIN(l, l + p); CHAIN(e, fma(p, v, e)););
	a->sum = sum16(l);
	a->sumz = sum16(e);
}

void SoftmaxGrad(struct SoftmaxGrad *a) {
	float *dz = a->dz;
	const float *z = a->z;
	const long n = a->n;
	EACH(n, f32x16 lp = GET(z) - splat(a->lse); f32x16 p = exp16(lp); lp = pick(p == splat(0.0f), splat(0.0f), lp);
	     PUT(dz, -((p * fma(splat(a->h), lp + splat(a->entropy), splat(a->g))) * splat(a->inv_t))););
}

void ArgMax(struct ArgMax *a) {
	const float *x = a->x;
	const long n = a->n;
	const f32x16 low = splat(-__builtin_inff());
	f32x16 top = low;
	i32x16 at = {0}, here = lane();
	EACH(n, f32x16 v = GET(x); if (rest) v = pick(LEFT, v, low);
	     i32x16 above = v > top; top = pick(above, v, top); at = (i32x16)pick(above, (f32x16)here, (f32x16)at); here = here + 16;);
	float best = -__builtin_inff();
	int index = 0;
	UNROLL for (int i = 0; i < 16; i++) {
		if (top[i] > best || (top[i] == best && at[i] < index)) {
			best = top[i];
			index = at[i];
		}
	}
	a->index = index;
	a->max = best == -__builtin_inff() ? best : x[index]; // of two zeros the first
}
