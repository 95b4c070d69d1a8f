// Gemv: one row times packed panels.
#include "gemv.h"

typedef struct {
  const float *x;
  const uint8_t *w;
  float *y;
  int64_t k, p, panelbytes;
} GemvArgs;
SIZE(GemvArgs, 48);

// Panels advance together: one alone is a few chains, each waiting for its last
// multiply-add.
#if defined(__AVX512F__)
enum { FLIGHT = 4 };
#else
enum { FLIGHT = 2 };
#endif

INLINE void gemv(const int f, const GemvArgs *g) {
  product one = {g->x, g->w, g->y, g->k, g->panelbytes, 0, 0};
  sweep(f, f <= BF16 ? 4 : FLIGHT, 1, one, g->p);
}

#define GEMV(F) \
  void Gemv_##F(const GemvArgs *g) { gemv(F, g); }
EACH_FORMAT(GEMV)
