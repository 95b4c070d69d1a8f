// A lane vector is 16 float32, whatever the registers are: one zmm, two ymm or
// four q. Everything here is its Go twin in math32.go, operation by operation.
#ifndef LANES_H
#define LANES_H

#include "vec.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x2 __attribute__((vector_size(8)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef f32x8 f32x8_at __attribute__((aligned(4), may_alias));

#define LOW(v) __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7)
#define HIGH(v) __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)

INLINE f32x8 half(const float *p) { return *(const f32x8_at *)p; }
INLINE f32x16 bits(i32x16 v) { return __builtin_bit_cast(f32x16, v); }
INLINE i32x16 word(f32x16 v) { return __builtin_bit_cast(i32x16, v); }

// larger is a where a > b, else b, also for NaN; pick is a where mask is set.
// C has ?: for the vectors of OpenCL only.
#define LARGER(n)                                                                   \
	typedef float choice##n __attribute__((ext_vector_type(n)));                   \
	INLINE f32x##n larger##n(f32x##n a, f32x##n b) {                            \
		return (f32x##n)((choice##n)a > (choice##n)b ? (choice##n)a : (choice##n)b);    \
	}
LARGER(16)
LARGER(8)
LARGER(4)
LARGER(2)

INLINE f32x16 pick(i32x16 mask, f32x16 a, f32x16 b) {
	typedef int32_t choice __attribute__((ext_vector_type(16)));
	return (f32x16)((choice)mask ? (choice16)a : (choice16)b);
}

INLINE i32x16 lane(void) { return (i32x16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }

// load_n reads the first n < 16 lanes, and zeros for the rest; store_n writes
// the first n. Neither touches memory beyond.
#if defined(__AVX512F__)
INLINE f32x16 load_n(const float *p, long n) { return (f32x16)_mm512_maskz_loadu_ps((1u << n) - 1, p); }
INLINE void store_n(float *p, f32x16 v, long n) { _mm512_mask_storeu_ps(p, (1u << n) - 1, (__m512)v); }
#elif defined(__AVX2__)
INLINE f32x16 load_n(const float *p, long n) {
	i32x16 m = lane() < (int)n;
	f32x8 lo = (f32x8)_mm256_maskload_ps(p, (__m256i)LOW(m));
	f32x8 hi = (f32x8)_mm256_maskload_ps(p + 8, (__m256i)HIGH(m));
	return __builtin_shufflevector(lo, hi, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
INLINE void store_n(float *p, f32x16 v, long n) {
	i32x16 m = lane() < (int)n;
	_mm256_maskstore_ps(p, (__m256i)LOW(m), (__m256)LOW(v));
	_mm256_maskstore_ps(p + 8, (__m256i)HIGH(m), (__m256)HIGH(v));
}
#else
INLINE f32x16 load_n(const float *p, long n) {
	float t[16] __attribute__((aligned(64)));
	f32x8 zero = {0};
	*(f32x8 *)t = zero;
	*(f32x8 *)(t + 8) = zero;
	long i = 0;
	if (n >= 8) {
		*(f32x8 *)t = *(const f32x8_at *)p;
		i = 8;
	}
	ROLLED for (; i < n; i++) t[i] = p[i];
	return *(f32x16 *)t;
}
INLINE void store_n(float *p, f32x16 v, long n) {
	float t[16] __attribute__((aligned(64)));
	long i = 0;
	if (n >= 8) {
		*(f32x8_at *)p = LOW(v);
		i = 8;
	}
	*(f32x16 *)t = v;
	ROLLED for (; i < n; i++) p[i] = t[i];
}
#endif

// sum16 and max16 are the fixed tree over the lanes.
#define FOLD(OP, v)                                                                                   \
	f32x8 a = LOW(v), a2 = HIGH(v);                                                               \
	a = OP(a, a2, 8);                                                                             \
	f32x4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3), b2 = __builtin_shufflevector(a, a, 4, 5, 6, 7); \
	b = OP(b, b2, 4);                                                                             \
	f32x2 c = __builtin_shufflevector(b, b, 0, 1), c2 = __builtin_shufflevector(b, b, 2, 3);      \
	c = OP(c, c2, 2);
#define PLUS(a, b, n) (a) + (b)
#define LARGER_OF(a, b, n) larger##n(a, b)
INLINE float sum16(f32x16 v) {
	FOLD(PLUS, v)
	return c[0] + c[1];
}
INLINE float max16(f32x16 v) {
	FOLD(LARGER_OF, v)
	return c[0] > c[1] ? c[0] : c[1];
}

INLINE f32x16 exp16(f32x16 x) {
	const f32x16 bias = splat(0x1.8p+23f);
	x = larger16(splat(-104.0f), x); // keeps NaN
	x = pick(splat(89.0f) < x, splat(89.0f), x);
	f32x16 t = fma(x, splat(0x1.715476p+0f), bias);
	f32x16 n = t - bias;
	f32x16 r = fma(-n, splat(0x1.62e4p-1f), x);
	r = fma(-n, splat(0x1.7f7d1cp-20f), r);
	f32x16 p = fma(splat(0x1.6a23c8p-10f), r, splat(0x1.123a2p-7f));
	p = fma(p, r, splat(0x1.5558f4p-5f));
	p = fma(p, r, splat(0x1.555492p-3f));
	p = fma(p, r, splat(0x1.fffffcp-2f));
	p = fma(p, r, splat(1.0f));
	p = fma(p, r, splat(1.0f));
	i32x16 i = word(t) - word(bias);
	i32x16 h = i >> 1;
	p = p * bits((h + 127) << 23);
	return p * bits((i - h + 127) << 23);
}

INLINE f32x16 log16(f32x16 x) {
	const f32x16 inf = splat(__builtin_inff());
	i32x16 small = x < splat(0x1p-126f);
	f32x16 y = pick(small, x * splat(0x1p23f), x);
	i32x16 u = word(y) + (0x3f800000 - 0x3f3504f3);
	i32x16 e = ((u >> 23) & 0x1ff) - (127 + (small & 23));
	f32x16 ef = __builtin_convertvector(e, f32x16);
	f32x16 f = bits((u & 0x007fffff) + 0x3f3504f3) - splat(1.0f);
	f32x16 p = fma(splat(-0x1.422d3ep-4f), f, splat(0x1.07c47ep-3f));
	p = fma(p, f, splat(-0x1.0cce2ap-3f));
	p = fma(p, f, splat(0x1.226f6cp-3f));
	p = fma(p, f, splat(-0x1.547abcp-3f));
	p = fma(p, f, splat(0x1.99a592p-3f));
	p = fma(p, f, splat(-0x1.000216p-2f));
	p = fma(p, f, splat(0x1.55554ap-2f));
	f32x16 ff = f * f;
	f32x16 z = (p * f) * ff;
	z = fma(ef, splat(0x1.0bfbe8p-15f), z);
	z = fma(splat(-0.5f), ff, z);
	z = fma(ef, splat(0x1.62ep-1f), f + z);
	z = pick(x > splat(0.0f), z, splat(__builtin_nanf("")));
	z = pick(x == splat(0.0f), -inf, z);
	return pick(x == inf, inf, z);
}

INLINE f32x16 sigmoid16(f32x16 x) { return splat(1.0f) / (splat(1.0f) + exp16(-x)); }

INLINE f32x16 tanh16(f32x16 x) {
	f32x16 a = bits(word(x) & 0x7fffffff);
	f32x16 u = x * x;
	f32x16 p = fma(splat(-0x1.78b57cp-8f), u, splat(0x1.52b91ep-6f));
	p = fma(p, u, splat(-0x1.b84fp-5f));
	p = fma(p, u, splat(0x1.11078ap-3f));
	p = fma(p, u, splat(-0x1.555534p-2f));
	p = fma(p * u, x, x);
	f32x16 t = splat(1.0f) - splat(2.0f) / (exp16(a + a) + splat(1.0f));
	t = pick(a < splat(0.625f), p, t);
	return bits(word(t) | (word(x) & INT32_MIN));
}

// gelu_gate16 is σ(2√(2/π)·(x + 0.044715x³)).
INLINE f32x16 gelu_gate16(f32x16 x) {
	f32x16 inner = fma(splat(0.044715f) * (x * x), x, x);
	return sigmoid16(splat(1.5957691216057308f) * inner);
}

#endif
