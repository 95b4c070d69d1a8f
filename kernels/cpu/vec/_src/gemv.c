// Gemv: one row times packed panels, decoded in registers.
#include "formats.h"

typedef struct {
  const float *x;
  const uint8_t *w;
  float *y;
  int64_t k, p, panelbytes;
} GemvArgs;
SIZE(GemvArgs, 48);

// FLIGHT panels advance together: a panel alone is a few chains, each waiting
// for its last multiply-add.
#if defined(__AVX512F__)
enum { FLIGHT = 4 };
#else
enum { FLIGHT = 2 };
#endif

// quantized multiplies x by n panels.
INLINE void quantized(const int f, const int n, const GemvArgs *g, const uint8_t *w, float *y) {
  enum { STEP = 8 };
  int8_t room[FLIGHT][32 * 16] __attribute__((aligned(32)));
  const spread s = spreader();
  const float *x = g->x;
  const int64_t next = g->panelbytes;
  f32x16 acc[FLIGHT];
  UNROLL for (int p = 0; p < n; p++) acc[p] = load(y + 16 * p);
  ROLLED for (int64_t k = g->k; k > 0; k -= block_k(f)) {
    const uint8_t *group = w + head(f);
    ROLLED for (int i = 0; i < block_k(f) / group_k(f); i++) {
      scale scales[FLIGHT];
      const int8_t *q[FLIGHT];
      UNROLL for (int p = 0; p < n; p++) {
        scales[p] = group_scale(f, w + p * next, group + p * next);
        q[p] = f == Q8_0 ? (const int8_t *)group + p * next : room[p];
        if (f != Q8_0) stage(f, room[p], group + p * next);
      }
      ROLLED for (int j = 0; j < group_k(f); j += STEP) {
        UNROLL for (int t = 0; t < STEP; t++) {
          f32x16 xt = splat(x[t]);
          UNROLL for (int p = 0; p < n; p++)
            acc[p] = fma(xt, weight(f, scales[p], expand(s, q[p] + 16 * (j + staged(f, t)))), acc[p]);
        }
        x += STEP;
      }
      group += group_bytes(f);
    }
    w += block_bytes(f);
  }
  UNROLL for (int p = 0; p < n; p++) store(y + 16 * p, acc[p]);
}

// unquantized does the same for a format without blocks.
INLINE void unquantized(const int f, const int n, const GemvArgs *g, const uint8_t *w, float *y) {
  const float *x = g->x;
  f32x16 acc[4];
  UNROLL for (int p = 0; p < n; p++) acc[p] = load(y + 16 * p);
#pragma clang loop unroll_count(4)
  for (int64_t k = g->k; k > 0; k--) {
    f32x16 xt = splat(*x++);
    UNROLL for (int p = 0; p < n; p++) acc[p] = fma(xt, plain(f, w + p * g->panelbytes), acc[p]);
    w += code_bytes(f);
  }
  UNROLL for (int p = 0; p < n; p++) store(y + 16 * p, acc[p]);
}

INLINE void panels(const int f, const int n, const GemvArgs *g, const uint8_t *w, float *y) {
  f <= BF16 ? unquantized(f, n, g, w, y) : quantized(f, n, g, w, y);
}

INLINE void gemv(const int f, const GemvArgs *g) {
  const int flight = f <= BF16 ? 4 : FLIGHT;
  const uint8_t *w = g->w;
  float *y = g->y;
  int64_t p = g->p;
  ROLLED for (; p >= flight; p -= flight) {
    panels(f, flight, g, w, y);
    w += flight * g->panelbytes;
    y += flight * 16;
  }
  ROLLED for (; p > 0; p--) {
    panels(f, 1, g, w, y);
    w += g->panelbytes;
    y += 16;
  }
}

#define GEMV(F) \
  void Gemv_##F(const GemvArgs *g) { gemv(F, g); }
EACH_FORMAT(GEMV)
