// GemvRows: two to four rows times packed panels. From five rows on decoding
// into a tile for Gemm is faster.
#include "gemv.h"

typedef struct {
  const float *x;
  const uint8_t *w;
  float *y;
  int64_t k, p, panelbytes;
  int64_t m, xrow, yrow;
} GemvRowsArgs;
SIZE(GemvRowsArgs, 72);

// The rows are chains enough, but for the widest vectors.
#if defined(__AVX512F__)
enum { FLIGHT = 2 };
#else
enum { FLIGHT = 1 };
#endif

INLINE void gemvrows(const int f, const GemvRowsArgs *g) {
  product rows = {g->x, g->w, g->y, g->k, g->panelbytes, g->xrow, g->yrow};
  switch (g->m) {
  case 2: sweep(f, FLIGHT, 2, rows, g->p); break;
  case 3: sweep(f, FLIGHT, 3, rows, g->p); break;
  case 4: sweep(f, FLIGHT, 4, rows, g->p); break;
  }
}

#define GEMVROWS(F) \
  void GemvRows_##F(const GemvRowsArgs *g) { gemvrows(F, g); }
EACH_FORMAT(GEMVROWS)
