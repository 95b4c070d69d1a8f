// Decode: part of a packed panel as float32, for the products of many rows.
#include "formats.h"

typedef struct {
  float *dst;
  const uint8_t *panel;
  int64_t k0, k;
} DecodeArgs;
SIZE(DecodeArgs, 32);

// plain decodes a format that has no blocks, one k at a time.
INLINE void plain(const int f, const DecodeArgs *d) {
  const uint8_t *at = d->panel + d->k0 * code_bytes(f);
  float *dst = d->dst;
  ROLLED for (int64_t k = d->k; k > 0; k--) {
    store(dst, f == F32 ? load((const float *)at) : f == F16 ? half(at)
      : (f32x16)(__builtin_convertvector(*(const u16x16_at *)at, u32x16) << 16));
    at += code_bytes(f);
    dst += 16;
  }
}

// blocks decodes a quantized format, 32 k at a time: one or two groups.
INLINE void blocks(const int f, const DecodeArgs *d) {
  enum { STEP = 8 };
  float *dst = d->dst;
  ROLLED for (int64_t k = d->k0; k < d->k0 + d->k; k += group_k(f)) {
    const uint8_t *block = d->panel + k / block_k(f) * block_bytes(f);
    const uint8_t *group = block + head(f) + k % block_k(f) / group_k(f) * group_bytes(f);
    scale s = group_scale(f, block, group);
    ROLLED for (int64_t j = 0; j < group_k(f); j += STEP) {
      UNROLL for (int t = 0; t < STEP; t += 2) {
        f32x16 v[2];
        two(f, s, group, j + t, v);
        store(dst + 16 * t, v[0]);
        store(dst + 16 * t + 16, v[1]);
      }
      dst += 16 * STEP;
    }
  }
}

#define DECODE(F) \
  void Decode_##F(const DecodeArgs *d) { F <= BF16 ? plain(F, d) : blocks(F, d); }
EACH_FORMAT(DECODE)
