// The packed formats, as panel.go describes them: where a group of k lies in a
// panel, its scales, and the values of its weights. `format` is always a
// constant; what does not concern it is compiled away. TURNED is no format of a
// file: the panels that Turn8 makes, on which a gradient runs back.
#ifndef FORMATS_H
#define FORMATS_H

#include "vec.h"

enum { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, TURNED };

#define EACH_FORMAT(X) X(F32) X(F16) X(BF16) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q4_K) X(Q5_K) X(Q6_K)

// Layout of a format: a panel is a run of blocks of block_k k in block_bytes
// bytes; a block is its head and a run of groups of group_k k that share their
// scales; a group is group_head bytes of scales, its codes, and their high bits.
INLINE int block_k(int f) { return f <= BF16 ? 8 : f >= Q4_K && f <= Q6_K ? 256 : 32; }
INLINE int group_k(int f) { return f <= BF16 ? 8 : f == Q6_K ? 16 : 32; }
INLINE int head(int f) {
  switch (f) {
  case Q4_0: case Q5_0: case Q8_0: case Q6_K: return 32;
  case Q4_1: case Q5_1: case Q4_K: case Q5_K: case TURNED: return 64;
  }
  return 0;
}
INLINE int group_head(int f) { return f == Q6_K ? 16 : f == Q4_K || f == Q5_K ? 32 : 0; }
INLINE int code_bytes(int f) { // of one k, high bits apart
  return f == F32 ? 64 : f <= BF16 ? 32 : f == Q8_0 || f == TURNED ? 16 : 8;
}
INLINE int high_bytes(int f) { // of one group
  return f == Q6_K || f == Q5_0 || f == Q5_1 || f == Q5_K ? 64 : 0;
}
INLINE int group_bytes(int f) { return group_head(f) + group_k(f) * code_bytes(f) + high_bytes(f); }
INLINE int block_bytes(int f) { return head(f) + block_k(f) / group_k(f) * group_bytes(f); }

// Where a weight is q·d + m (Q4_1, Q5_1, Q4_K, Q5_K), and where (q − zero)·d.
INLINE int has_min(int f) { return f == Q4_1 || f == Q5_1 || f == Q4_K || f == Q5_K; }
INLINE int zero(int f) { return f == Q4_0 ? 8 : f == Q5_0 ? 16 : f == Q6_K ? 32 : f == TURNED ? 64 : 0; }

typedef u32x16 u32x16_at __attribute__((aligned(1), may_alias));

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

// A quad is the codes of four k, a byte each, the 16 lanes side by side.
// quad returns those of quad n of a group, less their zero; quad_unsigned does not
// take it off.
INLINE u32x16 row64(const uint8_t *p) { return *(const u32x16_at *)p; }

// QUAD_UNSIGNED defines quad_unsigned for as many lanes as T has; group is where
// the group begins, moved on to the first of these lanes.
#define QUAD_UNSIGNED(name, T, row)                                          \
  INLINE T name(const int f, const uint8_t *group, const int n) {            \
    const uint8_t *codes = group + group_head(f);                            \
    if (f == Q8_0 || f == TURNED) return row(codes + 64 * n);                \
    T c = row(codes + 64 * (n / 2));                                         \
    c = (n % 2 ? c >> 4 : c) & 0x0f0f0f0f;                                   \
    if (high_bytes(f)) {                                                     \
      const int bits = f == Q6_K ? 2 : 1, left = 4 - n * bits;               \
      T h = row(codes + group_k(f) * code_bytes(f));                         \
      h = left >= 0 ? h << (left & 31) : h >> (-left & 31);                  \
      c |= h & (bits == 2 ? 0x30303030 : 0x10101010);                        \
    }                                                                        \
    return c;                                                                \
  }
QUAD_UNSIGNED(quad_unsigned, u32x16, row64)

INLINE u32x16 quad(const int f, const uint8_t *group, const int n) {
  typedef uint8_t u8x64 __attribute__((vector_size(64)));
  u32x16 c = quad_unsigned(f, group, n);
  return zero(f) ? (u32x16)((u8x64)c - (uint8_t)zero(f)) : c;
}

// code returns one k of a quad as float32.
INLINE f32x16 code(const int f, u32x16 quad, const int i) {
  if (has_min(f)) return __builtin_convertvector((i32x16)(i == 3 ? quad >> 24 : quad >> (8 * i) & 255), f32x16);
  return __builtin_convertvector((i32x16)(quad << (24 - 8 * i)) >> 24, f32x16);
}

typedef struct {
  f32x16 d, m; // m only if has_min
} scale;

// group_scale returns the scales of a group, folded with those of its block.
INLINE scale group_scale(const int f, const uint8_t *block, const uint8_t *group) {
  scale s = {0};
  if (f == TURNED) {
    s.d = load((const float *)block);
    return s;
  }
  s.d = half(block);
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
