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

// STEP is the number of k that share a byte of high bits; within it the code is
// straight, so that shifts are constants.
enum { STEP = 8 };

INLINE void panels(const int f, const int n, const GemvArgs *g, const uint8_t *w, float *y) {
  const float *x = g->x;
  f32x16 acc[FLIGHT];
  UNROLL for (int p = 0; p < n; p++) acc[p] = load(y + 16 * p);
  int64_t k = g->k;
  ROLLED for (; k >= block_k(f); k -= block_k(f)) {
    const uint8_t *group = w + head(f);
    ROLLED for (int i = 0; i < block_k(f) / group_k(f); i++) {
      scale s[FLIGHT];
      UNROLL for (int p = 0; p < n; p++) s[p] = group_scale(f, w + p * g->panelbytes, group + p * g->panelbytes);
      ROLLED for (int64_t j = 0; j < group_k(f); j += STEP) {
        UNROLL for (int t = 0; t < STEP; t += 2) {
          UNROLL for (int p = 0; p < n; p++) {
            f32x16 v[2];
            two(f, s[p], group + p * g->panelbytes, j + t, v);
            acc[p] = fma(splat(x[t]), v[0], acc[p]);
            acc[p] = fma(splat(x[t + 1]), v[1], acc[p]);
          }
        }
        x += STEP;
      }
      group += group_bytes(f);
    }
    w += block_bytes(f);
  }
  if (f <= BF16) { // any K: the last few one by one
    ROLLED for (; k > 0; k--) {
      UNROLL for (int p = 0; p < n; p++) {
        const uint8_t *at = w + p * g->panelbytes;
        f32x16 v = f == F32 ? load((const float *)at) : f == F16 ? half(at)
          : (f32x16)(__builtin_convertvector(*(const u16x16_at *)at, u32x16) << 16);
        acc[p] = fma(splat(*x), v, acc[p]);
      }
      w += code_bytes(f);
      x++;
    }
  }
  UNROLL for (int p = 0; p < n; p++) store(y + 16 * p, acc[p]);
}

INLINE void gemv(const int f, const GemvArgs *g) {
  const uint8_t *w = g->w;
  float *y = g->y;
  int64_t p = g->p;
  ROLLED for (; p >= FLIGHT; p -= FLIGHT) {
    panels(f, FLIGHT, g, w, y);
    w += FLIGHT * g->panelbytes;
    y += FLIGHT * 16;
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
