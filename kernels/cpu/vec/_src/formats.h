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

INLINE f32x16 half(const uint8_t *p) { return __builtin_convertvector(*(const f16x16_at *)p, f32x16); }
INLINE i32x16 bytes(const uint8_t *p) { return __builtin_convertvector(*(const u8x16_at *)p, i32x16); }
INLINE i32x16 sbytes(const uint8_t *p) { return __builtin_convertvector(*(const i8x16_at *)p, i32x16); }
INLINE f32x16 tofloat(i32x16 v) { return __builtin_convertvector(v, f32x16); }

typedef struct {
  f32x16 d, m; // m only if has_min
} scale;

// group_scale returns the scales of a group, folded with those of its block.
INLINE scale group_scale(const int f, const uint8_t *block, const uint8_t *group) {
  scale s = {0};
  if (f <= BF16) return s;
  s.d = half(block);
  if (has_min(f)) s.m = half(block + 32);
  if (f == Q4_K || f == Q5_K) {
    s.d *= tofloat(bytes(group));
    s.m = -(s.m * tofloat(bytes(group + 16)));
  }
  if (f == Q6_K) s.d *= tofloat(sbytes(group));
  return s;
}

INLINE f32x16 weight(const int f, scale s, i32x16 q) {
  return has_min(f) ? fma(tofloat(q), s.d, s.m) : tofloat(q - zero(f)) * s.d;
}

// two decodes the weights of k and k+1 of a group, k even and below group_k.
INLINE void two(const int f, scale s, const uint8_t *group, const int64_t k, f32x16 w[2]) {
  const uint8_t *codes = group + group_head(f) + k * code_bytes(f);
  const uint8_t *highs = group + group_head(f) + group_k(f) * code_bytes(f);
  i32x16 q, h, a, b;
  switch (f) {
  case F32:
    w[0] = load((const float *)codes);
    w[1] = load((const float *)codes + 16);
    return;
  case F16:
    w[0] = half(codes);
    w[1] = half(codes + 32);
    return;
  case BF16:
    w[0] = (f32x16)(__builtin_convertvector(*(const u16x16_at *)codes, u32x16) << 16);
    w[1] = (f32x16)(__builtin_convertvector(*(const u16x16_at *)(codes + 32), u32x16) << 16);
    return;
  case Q8_0:
    w[0] = weight(f, s, sbytes(codes));
    w[1] = weight(f, s, sbytes(codes + 16));
    return;
  }
  q = bytes(codes);
  a = q & 15;
  b = q >> 4;
  if (f == Q5_0 || f == Q5_1 || f == Q5_K) {
    h = bytes(highs + k / 8 * 16) >> (int)(k % 8);
    a |= (h & 1) << 4;
    b |= (h & 2) << 3;
  }
  if (f == Q6_K) {
    h = bytes(highs + k / 4 * 16) >> (int)(k % 4 * 2);
    a |= (h & 3) << 4;
    b |= (h & 12) << 2;
  }
  w[0] = weight(f, s, a);
  w[1] = weight(f, s, b);
}

#endif
