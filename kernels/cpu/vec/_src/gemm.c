// Gemm, the one product of tiles, and Transpose16.
#include "vec.h"

typedef struct {
  const float *a, *b;
  float *c;
  int64_t arow, ared, bpanel, bred, crow, cpanel;
  int64_t m, p, k, keep;
} GemmArgs;
SIZE(GemmArgs, 104);

// The register block: ROWS rows by PANELS panels, all of its sums in registers.
// A rest just above ROWS begins with EVEN rows. Two rows take PAIR panels, one
// row takes four, to have enough chains in flight.
//
// A pointer leads RUN rows, and APART hides where it comes from: the compiler
// makes the address of each row from that of the row before, and with registers
// so wide a step would wait for those additions instead of its multiply-adds.
#if defined(__AVX512F__)
enum { ROWS = 12, PANELS = 2, EVEN = 8, PAIR = 4, RUN = 3 };
#define APART(p) __asm__("" : "+r"(p))
#else
enum { ROWS = 6, PANELS = 1, EVEN = 4, PAIR = 2, RUN = ROWS };
#define APART(p)
#endif

// block computes rows × panels of C at c.
INLINE void block(const GemmArgs *g, const float *a, const float *b, float *c, const int rows, const int panels) {
  const int64_t arow = g->arow, ared = g->ared, bpanel = g->bpanel, bred = g->bred;
  f32x16 acc[ROWS][4];
  UNROLL for (int i = 0; i < rows; i++) {
    UNROLL for (int p = 0; p < panels; p++)
      acc[i][p] = g->keep ? load(c + i * g->crow + p * g->cpanel) : splat(0);
  }
  const float *run[ROWS / RUN];
  UNROLL for (int i = 0; i < rows; i += RUN) run[i / RUN] = a + i * arow;
  ROLLED for (int64_t r = g->k; r > 0; r--) {
    f32x16 w[4];
    UNROLL for (int p = 0; p < panels; p++) w[p] = load(b + p * bpanel);
    UNROLL for (int i = 0; i < rows; i++) {
      f32x16 x = splat(run[i / RUN][i % RUN * arow]);
      UNROLL for (int p = 0; p < panels; p++) acc[i][p] = fma(x, w[p], acc[i][p]);
    }
    UNROLL for (int i = 0; i < rows; i += RUN) {
      run[i / RUN] += ared;
      APART(run[i / RUN]);
    }
    b += bred;
  }
  UNROLL for (int i = 0; i < rows; i++) {
    UNROLL for (int p = 0; p < panels; p++) store(c + i * g->crow + p * g->cpanel, acc[i][p]);
  }
}

#define CASE(n) case n: block(g, a, b, c, n, panels); break

// strip computes all rows of `panels` panels: whole register blocks, and for a
// rest of few rows, whose chains would wait for each other, two blocks of
// medium height instead of one whole and one low.
INLINE void strip(const GemmArgs *g, const float *b, float *c, const int panels) {
  const float *a = g->a;
  int64_t m = g->m;
  while (m > 0) {
    int64_t rows = m >= ROWS + EVEN || m == ROWS ? ROWS : m > ROWS ? EVEN : m;
    switch (rows) {
#if defined(__AVX512F__)
      CASE(12); CASE(11); CASE(10); CASE(9); CASE(8); CASE(7);
#endif
      CASE(6); CASE(5); CASE(4); CASE(3); CASE(2); CASE(1);
    }
    m -= rows;
    a += rows * g->arow;
    c += rows * g->crow;
  }
}

void Gemm(const GemmArgs *g) {
  const float *b = g->b;
  float *c = g->c;
  int64_t p = g->p;
#define STRIPS(n, each) \
  for (; p >= n; p -= n) { \
    each; \
    b += n * g->bpanel; \
    c += n * g->cpanel; \
  }
  if (g->m == 1) STRIPS(4, block(g, g->a, b, c, 1, 4))
  if (g->m == 2) STRIPS(PAIR, block(g, g->a, b, c, 2, PAIR))
  if (PANELS > 1) STRIPS(PANELS, strip(g, b, c, PANELS))
  STRIPS(1, strip(g, b, c, 1))
}

typedef struct {
  float *dst;
  const float *src;
  int64_t dstrow, srcrow, n;
} TransposeArgs;
SIZE(TransposeArgs, 40);

#if defined(__aarch64__)
enum { TILE = 4 };
#else
enum { TILE = 8 };
#endif
typedef float tile __attribute__((vector_size(4 * TILE)));
typedef tile tile_at __attribute__((aligned(4), may_alias));

// transpose turns one TILE × TILE tile by interleaving pairs, then pairs of
// pairs, then (where the vector has two of them) halves of 128 bits.
INLINE void transpose(float *dst, int64_t dstrow, const float *src, int64_t srcrow) {
  tile r[TILE], t[TILE];
  UNROLL for (int i = 0; i < TILE; i++) r[i] = *(const tile_at *)(src + i * srcrow);
#if defined(__aarch64__)
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
  t[0] = LOW(r[0], r[2]);
  t[1] = HIGH(r[0], r[2]);
  t[2] = LOW(r[1], r[3]);
  t[3] = HIGH(r[1], r[3]);
  r[0] = LOW(t[0], t[2]);
  r[1] = HIGH(t[0], t[2]);
  r[2] = LOW(t[1], t[3]);
  r[3] = HIGH(t[1], t[3]);
#else
  UNROLL for (int i = 0; i < 8; i += 2) {
    t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  UNROLL for (int i = 0; i < 8; i += 4) {
    r[i] = __builtin_shufflevector(t[i], t[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    r[i + 1] = __builtin_shufflevector(t[i], t[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    r[i + 2] = __builtin_shufflevector(t[i + 1], t[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    r[i + 3] = __builtin_shufflevector(t[i + 1], t[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    t[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    t[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  UNROLL for (int i = 0; i < 8; i++) r[i] = t[i];
#endif
  UNROLL for (int i = 0; i < TILE; i++) *(tile_at *)(dst + i * dstrow) = r[i];
}

void Transpose16(const TransposeArgs *t) {
  ROLLED for (int64_t i = 0; i < LANES * t->n; i += TILE) {
    ROLLED for (int64_t j = 0; j < LANES; j += TILE)
      transpose(t->dst + j * t->dstrow + i, t->dstrow, t->src + i * t->srcrow + j, t->srcrow);
  }
}
