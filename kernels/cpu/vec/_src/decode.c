// Decode: part of a packed panel as float32, for the products of many rows.
#include "formats.h"

typedef struct {
  float *dst;
  const uint8_t *panel;
  int64_t k0, k;
} DecodeArgs;
SIZE(DecodeArgs, 32);

INLINE void unquantized(const int f, const DecodeArgs *d) {
  const uint8_t *at = d->panel + d->k0 * code_bytes(f);
  float *dst = d->dst;
#pragma clang loop unroll_count(4)
  for (int64_t k = d->k; k > 0; k--) {
    store(dst, plain(f, at));
    at += code_bytes(f);
    dst += 16;
  }
}

// quantized decodes group by group; 32 k are one group or two.
INLINE void quantized(const int f, const DecodeArgs *d) {
  float *dst = d->dst;
  ROLLED for (int64_t k = d->k0; k < d->k0 + d->k; k += group_k(f)) {
    const uint8_t *block = d->panel + k / block_k(f) * block_bytes(f);
    const uint8_t *group = block + head(f) + k % block_k(f) / group_k(f) * group_bytes(f);
    const scale sc = group_scale(f, block, group);
    UNROLL for (int j = 0; j < group_k(f) / 4; j++) {
      u32x16 c = quad(f, group, j);
      UNROLL for (int t = 0; t < 4; t++) store(dst + 16 * t, weight(f, sc, code(f, c, t)));
      dst += 16 * 4;
    }
  }
}

#define DECODE(F) \
  void Decode_##F(const DecodeArgs *d) { F <= BF16 ? unquantized(F, d) : quantized(F, d); }
EACH_FORMAT(DECODE)
