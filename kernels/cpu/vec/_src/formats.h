// The packed formats, as panel.go describes them: where a group of k lies in a
// panel, its scales, and the values of its weights. `format` is always a
// constant; what does not concern it is compiled away.
#ifndef FORMATS_H
#define FORMATS_H

#include "vec.h"

enum { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

#define EACH_FORMAT(X) X(F32) X(F16) X(BF16) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q4_K) X(Q5_K) X(Q6_K)

// Layout of a format: a panel is a run of blocks of block_k k in block_bytes
// bytes; a block is its head and a run of groups of group_k k that share their
// scales; a group is group_head bytes of scales, its codes, and their high bits.
INLINE int block_k(int f) { return f <= BF16 ? 8 : f >= Q4_K ? 256 : 32; }
INLINE int group_k(int f) { return f <= BF16 ? 8 : f == Q6_K ? 16 : 32; }
INLINE int head(int f) {
  switch (f) {
  case Q4_0: case Q5_0: case Q8_0: case Q6_K: return 32;
  case Q4_1: case Q5_1: case Q4_K: case Q5_K: return 64;
  }
  return 0;
}
INLINE int group_head(int f) { return f == Q6_K ? 16 : f == Q4_K || f == Q5_K ? 32 : 0; }
INLINE int code_bytes(int f) { // of one k, high bits apart
  return f == F32 ? 64 : f <= BF16 ? 32 : f == Q8_0 ? 16 : 8;
}
INLINE int high_bytes(int f) { // of one group
  return f == Q6_K || f == Q5_0 || f == Q5_1 || f == Q5_K ? 64 : 0;
}
INLINE int group_bytes(int f) { return group_head(f) + group_k(f) * code_bytes(f) + high_bytes(f); }
INLINE int block_bytes(int f) { return head(f) + block_k(f) / group_k(f) * group_bytes(f); }

// Where a weight is q·d + m (Q4_1, Q5_1, Q4_K, Q5_K), and where (q − zero)·d.
INLINE int has_min(int f) { return f == Q4_1 || f == Q5_1 || f == Q4_K || f == Q5_K; }
INLINE int zero(int f) { return f == Q4_0 ? 8 : f == Q5_0 ? 16 : f == Q6_K ? 32 : 0; }

typedef uint8_t u8x32 __attribute__((vector_size(32)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef u8x32 u8x32_at __attribute__((aligned(1), may_alias));

INLINE f32x16 half(const uint8_t *p) { return __builtin_convertvector(*(const f16x16_at *)p, f32x16); }
INLINE f32x16 brain(const uint8_t *p) {
  return (f32x16)(__builtin_convertvector(*(const u16x16_at *)p, u32x16) << 16);
}
INLINE f32x16 unsigned16(const uint8_t *p) {
  return __builtin_convertvector(__builtin_convertvector(*(const u8x16_at *)p, i32x16), f32x16);
}
INLINE f32x16 signed16(const uint8_t *p) {
  return __builtin_convertvector(__builtin_convertvector(*(const i8x16_at *)p, i32x16), f32x16);
}

// plain returns the 16 weights of one k of a format without blocks.
INLINE f32x16 plain(const int f, const uint8_t *p) {
  return f == F32 ? load((const float *)p) : f == F16 ? half(p) : brain(p);
}

// Codes become float32 in two steps. stage writes those of a group as signed
// bytes, less their zero: bit fields are cheap to join 32 to a register. expand
// reads the 16 of one k back as float32, times ONE; scales carry 1/ONE. Both
// are powers of two, so nothing is rounded.
#if defined(__AVX2__) && !defined(__AVX512F__)
// A byte in the top of its lane is 2²⁴ times its value. One shuffle puts it
// there; widening it (vpmovsxbd) takes two or three steps on the same ports.
#include <immintrin.h>
#define ONE 0x1p24f
typedef __m256i spread;
INLINE spread spreader(void) {
  const char o = -1;
  spread s = _mm256_setr_epi8(o, o, o, 0, o, o, o, 1, o, o, o, 2, o, o, o, 3, o, o, o, 4, o, o, o, 5, o, o, o, 6, o, o, o, 7);
  __asm__("" : "+x"(s)); // hidden, or the compiler widens after all
  return s;
}
INLINE f32x16 expand(spread s, const int8_t *q) {
  typedef int64_t word __attribute__((aligned(1), may_alias));
  __m256 a = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(_mm256_set1_epi64x(*(const word *)q), s));
  __m256 b = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(_mm256_set1_epi64x(*(const word *)(q + 8)), s));
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#else
#define ONE 1.0f
typedef int spread;
INLINE spread spreader(void) { return 0; }
INLINE f32x16 expand(spread s, const int8_t *q) {
  (void)s;
  return signed16((const uint8_t *)q);
}
#endif

// staged is the place of k among staged codes: they are written 32 at a time,
// of k and k+2, then of k+1 and k+3. The codes of Q8_0 need no staging.
INLINE int staged(const int f, int k) { return f == Q8_0 ? k : (k & ~3) | (k & 1) << 1 | (k >> 1 & 1); }

// above returns what the high bits add to the codes of k and k+2 (odd = 0) or
// k+1 and k+3 (odd = 1), k a multiple of 4. Bits may stray from a byte into its
// neighbours, but not into the bits that are kept.
INLINE u8x32 above(const int f, const uint8_t *highs, const int k, const int odd) {
  const int bits = f == Q6_K ? 2 : 1;
  u8x16 row = *(const u8x16_at *)(highs + k * bits / 8 * 16);
  const int second = 2 * bits;
  u32x8 h = (u32x8)__builtin_shufflevector(row, row, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                                           0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  h = h >> (u32x8){0, 0, 0, 0, second, second, second, second};
  const int left = 4 - (k * bits % 8 + odd * bits); // from their place to bit 4
  h = left >= 0 ? h << (left & 31) : h >> (-left & 31);
  return (u8x32)h & (uint8_t)(bits == 2 ? 0x30 : 0x10);
}

INLINE void stage(const int f, int8_t *q, const uint8_t *group) {
  const uint8_t *codes = group + group_head(f), *highs = codes + group_k(f) * code_bytes(f);
  UNROLL for (int k = 0; k < group_k(f); k += 4) {
    u8x32 c = *(const u8x32_at *)(codes + k * code_bytes(f));
    u8x32 even = c & 15, odd = c >> 4;
    if (high_bytes(f)) {
      even |= above(f, highs, k, 0);
      odd |= above(f, highs, k, 1);
    }
    *(u8x32_at *)(q + 16 * k) = even - (uint8_t)zero(f);
    *(u8x32_at *)(q + 16 * k + 32) = odd - (uint8_t)zero(f);
  }
}

typedef struct {
  f32x16 d, m; // m only if has_min
} scale;

// group_scale returns the scales of a group, folded with those of its block.
INLINE scale group_scale(const int f, const uint8_t *block, const uint8_t *group) {
  scale s = {0};
  s.d = half(block) * (1 / ONE);
  if (has_min(f)) s.m = half(block + 32);
  if (f == Q4_K || f == Q5_K) {
    s.d *= unsigned16(group);
    s.m = -(s.m * unsigned16(group + 16));
  }
  if (f == Q6_K) s.d *= signed16(group);
  return s;
}

INLINE f32x16 weight(const int f, scale s, f32x16 q) { return has_min(f) ? fma(q, s.d, s.m) : q * s.d; }

#endif
