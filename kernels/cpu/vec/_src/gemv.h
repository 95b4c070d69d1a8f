// The product of a few rows with packed panels, decoded in registers: what Gemv
// and GemvRows share. A weight is decoded once for all rows.
#ifndef GEMV_H
#define GEMV_H

#include "formats.h"

typedef struct {
  const float *x;
  const uint8_t *w;
  float *y;
  int64_t k, panelbytes; // panelbytes from one panel to the next
  int64_t xrow, yrow;    // elements between rows
} product;

enum { MAXPANELS = 4, MAXROWS = 4 };

// quantized multiplies m rows by n panels.
INLINE void quantized(const int f, const int n, const int m, const product *g) {
  const float *x = g->x;
  const uint8_t *w = g->w;
  const int64_t next = g->panelbytes;
  f32x16 acc[MAXPANELS][MAXROWS];
  UNROLL for (int p = 0; p < n; p++) {
    UNROLL for (int i = 0; i < m; i++) acc[p][i] = load(g->y + i * g->yrow + 16 * p);
  }
  ROLLED for (int64_t k = g->k; k > 0; k -= block_k(f)) {
    const uint8_t *group = w + head(f);
    ROLLED for (int b = 0; b < block_k(f) / group_k(f); b++) {
      scale scales[MAXPANELS];
      UNROLL for (int p = 0; p < n; p++) scales[p] = group_scale(f, w + p * next, group + p * next);
      UNROLL for (int j = 0; j < group_k(f) / 4; j++) {
        u32x16 c[MAXPANELS];
        UNROLL for (int p = 0; p < n; p++) c[p] = quad(f, group + p * next, j);
        UNROLL for (int t = 0; t < 4; t++) {
          UNROLL for (int p = 0; p < n; p++) {
            f32x16 v = weight(f, scales[p], code(f, c[p], t));
            UNROLL for (int i = 0; i < m; i++) acc[p][i] = fma(splat(x[i * g->xrow + t]), v, acc[p][i]);
          }
        }
        x += 4;
      }
      group += group_bytes(f);
    }
    w += block_bytes(f);
  }
  UNROLL for (int p = 0; p < n; p++) {
    UNROLL for (int i = 0; i < m; i++) store(g->y + i * g->yrow + 16 * p, acc[p][i]);
  }
}

// unquantized does the same for a format without blocks.
INLINE void unquantized(const int f, const int n, const int m, const product *g) {
  const float *x = g->x;
  const uint8_t *w = g->w;
  f32x16 acc[MAXPANELS][MAXROWS];
  UNROLL for (int p = 0; p < n; p++) {
    UNROLL for (int i = 0; i < m; i++) acc[p][i] = load(g->y + i * g->yrow + 16 * p);
  }
#pragma clang loop unroll_count(4)
  for (int64_t k = g->k; k > 0; k--) {
    UNROLL for (int p = 0; p < n; p++) {
      f32x16 v = plain(f, w + p * g->panelbytes);
      UNROLL for (int i = 0; i < m; i++) acc[p][i] = fma(splat(x[i * g->xrow]), v, acc[p][i]);
    }
    w += code_bytes(f);
    x++;
  }
  UNROLL for (int p = 0; p < n; p++) {
    UNROLL for (int i = 0; i < m; i++) store(g->y + i * g->yrow + 16 * p, acc[p][i]);
  }
}

// sweep goes over all panels, n at a time, then one by one.
INLINE void sweep(const int f, const int n, const int m, product g, int64_t panels) {
  ROLLED for (; panels >= n; panels -= n) {
    f <= BF16 ? unquantized(f, n, m, &g) : quantized(f, n, m, &g);
    g.w += n * g.panelbytes;
    g.y += n * 16;
  }
  if (n == 1) return;
  ROLLED for (; panels > 0; panels--) {
    f <= BF16 ? unquantized(f, 1, m, &g) : quantized(f, 1, m, &g);
    g.w += g.panelbytes;
    g.y += 16;
  }
}

#endif
