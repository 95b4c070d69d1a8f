// Products under the int8 contract: rows of activations in blocks of 32 codes,
// and packed panels of quantized weights. Sums of products of codes are integers
// and exact, so each instruction set takes the instructions that it has.
#include "formats.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

typedef struct {
  float scale, sum;
  int32_t half[2];
  int8_t q[32];
} activations; // quant.ActivationBlock
SIZE(activations, 48);

typedef int32_t word __attribute__((aligned(1), may_alias));

// A part is the codes of four k, side by side, of as many lanes as a register
// holds; sums16 and sums32 have two sums, or one, a lane.
#if defined(__AVX512F__)
enum { PARTS = 1, TALL = 12 };
typedef __m512i part;
typedef int32_t i32xpart __attribute__((vector_size(64)));
INLINE part all(int32_t n) { return _mm512_set1_epi32(n); }
INLINE part pairs(part c, part x) { return _mm512_maddubs_epi16(c, x); }
INLINE part plus16(part a, part b) { return _mm512_add_epi16(a, b); }
INLINE part widen(part a) { return _mm512_madd_epi16(a, _mm512_set1_epi16(1)); }
#elif defined(__AVX2__)
enum { PARTS = 2, TALL = 4 };
typedef __m256i part;
typedef int32_t i32xpart __attribute__((vector_size(32)));
INLINE part all(int32_t n) { return _mm256_set1_epi32(n); }
INLINE part pairs(part c, part x) { return _mm256_maddubs_epi16(c, x); }
INLINE part plus16(part a, part b) { return _mm256_add_epi16(a, b); }
INLINE part widen(part a) { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }
#else
enum { PARTS = 4, TALL = 4 };
typedef int32x4_t part;
typedef int32_t i32xpart __attribute__((vector_size(16)));
INLINE part all(int32_t n) { return vdupq_n_s32(n); }
INLINE part pairs(part c, part x) {
  int8x16_t a = vreinterpretq_s8_s32(c), b = vreinterpretq_s8_s32(x);
  return vreinterpretq_s32_s16(vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)));
}
INLINE part plus16(part a, part b) {
  return vreinterpretq_s32_s16(vaddq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
}
INLINE part widen(part a) { return vpaddlq_s16(vreinterpretq_s16_s32(a)); }
#endif

INLINE part four(const int8_t *q) { return all(*(const word *)q); }

// Where there is an instruction that adds four products to a lane, dot is it,
// and the codes of Q8_0 are read less BIAS so that they have the sign it wants.
#if defined(__AVX512VNNI__)
#define DOT 1
#define BIAS 128
INLINE part dot(part sum, part c, part x) { return _mm512_dpbusd_epi32(sum, c, x); }
#elif defined(__AVXVNNI__)
#define DOT 1
#define BIAS 128
INLINE part dot(part sum, part c, part x) { return _mm256_dpbusd_avx_epi32(sum, c, x); }
#elif defined(__ARM_FEATURE_DOTPROD)
#define DOT 1
#define BIAS 0
INLINE part dot(part sum, part c, part x) { return vdotq_s32(sum, vreinterpretq_s8_s32(c), vreinterpretq_s8_s32(x)); }
#else
#define DOT 0
#define BIAS 128
INLINE part dot(part sum, part c, part x) { (void)c; (void)x; return sum; }
#endif

// KEEP stops the compiler from adding in another order, for which it would keep
// all products of a group at once, and spill them.
#if defined(__x86_64__)
#define KEEP(v) __asm__("" : "+v"(v))
#else
#define KEEP(v) __asm__("" : "+w"(v))
#endif

typedef union {
  u32x16 u;
  part p[PARTS];
} lanes;

// span is the quads whose pairs of products a 16-bit sum holds: 2·127·code each, and 2·63·127 on
// panels of Turn8, which meet gradients.
INLINE int span(int f) { return f == TURNED || f == Q6_K ? 2 : high_bytes(f) ? 4 : 8; }

// bias is what the codes are above their value, as the sums are made.
INLINE int bias(int f) { return f == Q8_0 ? BIAS : zero(f); }

// unbias is what to add to the sum of a group's products for their bias.
INLINE int32_t unbias(const int f, const activations *r, const int at) {
  if (f == TURNED) return r->half[0]; // as Quantize8 leaves it
  return -bias(f) * (group_k(f) == 16 ? r->half[at / 16] : r->half[0] + r->half[1]);
}

#define ROW(i) ((const activations *)((const char *)x + (i) * xrow))
#define EACH UNROLL for (int i = 0; i < m; i++) UNROLL for (int p = 0; p < PARTS; p++)

// group_sums makes the sums of products of one group's codes
// for m rows; `at` is the group's first code in the rows' blocks x. Where DOT
// adds to them, they begin with what makes up for the bias. A byte of Q8_0 is
// too much for sums of 16 bits, so there it is two nibbles.
INLINE void group_sums(const int f, const int m, part sums[TALL][PARTS], const uint8_t *group, const activations *x,
                       const int64_t xrow, const int at) {
  const int split = f == Q8_0 && !DOT, run = DOT ? group_k(f) / 4 : span(f);
  EACH sums[i][p] = DOT && bias(f) ? all(unbias(f, ROW(i), at)) : (part){0};
  UNROLL for (int n0 = 0; n0 < group_k(f) / 4; n0 += run) {
    part low[TALL][PARTS], high[TALL][PARTS];
    EACH low[i][p] = high[i][p] = (part){0};
    UNROLL for (int n = n0; n < n0 + run; n++) {
      lanes c = {quad_unsigned(f, group, n)}, h = {0};
      if (f == Q8_0) c.u ^= BIAS * 0x01010101u;
      if (split) {
        h.u = c.u >> 4 & 0x0f0f0f0f;
        c.u &= 0x0f0f0f0f;
      }
      UNROLL for (int i = 0; i < m; i++) {
        part q = four(ROW(i)->q + at + 4 * n);
        UNROLL for (int p = 0; p < PARTS; p++) {
          if (DOT) {
            sums[i][p] = dot(sums[i][p], c.p[p], q);
            continue;
          }
          low[i][p] = plus16(low[i][p], pairs(c.p[p], q));
          KEEP(low[i][p]);
          if (!split) continue;
          high[i][p] = plus16(high[i][p], pairs(h.p[p], q));
          KEEP(high[i][p]);
        }
      }
    }
    if (DOT) continue;
    EACH {
      i32xpart v = (i32xpart)sums[i][p] + (i32xpart)widen(low[i][p]);
      if (split) v += (i32xpart)widen(high[i][p]) << 4;
      sums[i][p] = (part)v;
    }
  }
}

// add_group adds to the chains of m rows what one group of k gives; x is the
// block of the first row.
INLINE void add_group(const int f, const int m, f32x16 *acc, const uint8_t *group, scale s, const activations *x,
                      const int64_t xrow, const int at) {
  part sums[TALL][PARTS];
  group_sums(f, m, sums, group, x, xrow, at);
  UNROLL for (int i = 0; i < m; i++) {
    lanes t;
    UNROLL for (int p = 0; p < PARTS; p++) t.p[p] = sums[i][p];
    i32x16 v = (i32x16)t.u;
    const activations *r = ROW(i);
    if (!DOT && bias(f)) v += unbias(f, r, at);
    acc[i] = fma(__builtin_convertvector(v, f32x16), s.d * r->scale, acc[i]);
    if (has_min(f)) acc[i] = fma(s.m, splat(r->sum), acc[i]);
  }
}

typedef struct {
  const activations *x;
  const uint8_t *w;
  float *y;
  int64_t k, p, panelbytes;
  int64_t m, xrow, yrow; // xrow in bytes
  int64_t keep;
} Gemm8Args;
SIZE(Gemm8Args, 80);

// Weights come from memory in one stream, which processors fetch a page at a
// time at best. Asking for what is AHEAD, in the pass of the first rows, made a
// row a fifth faster; half the distance and twice the distance did less.
enum { AHEAD = 4096 };
INLINE void fetch(const uint8_t *p, const int n) {
  UNROLL for (int i = 0; i < n; i += 64) __builtin_prefetch(p + i);
}

// rows8 is m rows times one panel.
INLINE void rows8(const int f, const int m, const Gemm8Args *g, const activations *x, const uint8_t *w, float *y) {
  f32x16 acc[TALL];
  const int first = x == g->x;
  UNROLL for (int i = 0; i < m; i++) acc[i] = g->keep ? load(y + i * g->yrow) : splat(0);
  ROLLED for (int64_t k = g->k; k > 0; k -= block_k(f)) {
    const uint8_t *group = w + head(f);
    ROLLED for (int b = 0; b < block_k(f) / 32; b++) {
      if (f != TURNED && first) fetch(group + AHEAD, head(f) * 32 / block_k(f) + 32 / group_k(f) * group_bytes(f));
      UNROLL for (int at = 0; at < 32; at += group_k(f)) {
        add_group(f, m, acc, group, group_scale(f, w, group), x, g->xrow, at);
        group += group_bytes(f);
      }
      x++;
    }
    w += block_bytes(f);
  }
  UNROLL for (int i = 0; i < m; i++) store(y + i * g->yrow, acc[i]);
}

// Many rows: on registers of 8 lanes the two halves of a panel one after the
// other, so that the sums of TALLEST rows stay in registers and a code is read
// for all of them.
#if defined(__AVX2__) && !defined(__AVX512F__) && !DOT
enum { TALLEST = 8 };
#define TALL_ROWS
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef u32x8 u32x8_at __attribute__((aligned(1), may_alias));
typedef float f32x8 __attribute__((vector_size(32)));
typedef f32x8 f32x8_at __attribute__((aligned(4), may_alias));
INLINE u32x8 row32(const uint8_t *p) { return *(const u32x8_at *)p; }

QUAD_UNSIGNED(half_quad, u32x8, row32)

// half_sums is group_sums of one half of the lanes.
INLINE void half_sums(const int f, const int m, part *sums, const uint8_t *group, const activations *x,
                      const int64_t xrow, const int at) {
  const int split = f == Q8_0, run = span(f);
  UNROLL for (int n0 = 0; n0 < group_k(f) / 4; n0 += run) {
    part low[TALLEST], high[TALLEST];
    UNROLL for (int n = n0; n < n0 + run; n++) {
      u32x8 c = half_quad(f, group, n), h = c;
      if (split) {
        c ^= 0x80808080u;
        h = c >> 4 & 0x0f0f0f0f;
        c &= 0x0f0f0f0f;
      }
      UNROLL for (int i = 0; i < m; i++) {
        const part q = four(ROW(i)->q + at + 4 * n);
        part v = pairs((part)c, q);
        low[i] = n == n0 ? v : plus16(low[i], v);
        KEEP(low[i]);
        if (!split) continue;
        v = pairs((part)h, q);
        high[i] = n == n0 ? v : plus16(high[i], v);
        KEEP(high[i]);
      }
    }
    UNROLL for (int i = 0; i < m; i++) {
      i32xpart v = (i32xpart)widen(low[i]);
      if (split) v += (i32xpart)widen(high[i]) << 4;
      sums[i] = n0 ? (part)((i32xpart)sums[i] + v) : (part)v;
      KEEP(sums[i]);
    }
  }
}

INLINE void tall_group(const int f, const int m, float acc[TALLEST][16], const uint8_t *w, const uint8_t *group,
                       const activations *x, const int64_t xrow, const int at) {
  float d[16] __attribute__((aligned(64))), min[16] __attribute__((aligned(64)));
  const scale s = group_scale(f, w, group);
  store(d, s.d);
  if (has_min(f)) store(min, s.m);
  ROLLED for (long p = 0; p < 2; p++) {
    part sums[TALLEST];
    half_sums(f, m, sums, group + 32 * p, x, xrow, at);
    UNROLL for (int i = 0; i < m; i++) {
      const activations *r = ROW(i);
      i32xpart v = (i32xpart)sums[i];
      if (bias(f)) v += unbias(f, r, at);
      f32x8 a = *(f32x8 *)&acc[i][8 * p];
      a = __builtin_elementwise_fma(__builtin_convertvector(v, f32x8), *(f32x8 *)&d[8 * p] * r->scale, a);
      if (has_min(f)) {
        const float sum = r->sum;
        a = __builtin_elementwise_fma(*(f32x8 *)&min[8 * p], (f32x8){sum, sum, sum, sum, sum, sum, sum, sum}, a);
      }
      *(f32x8 *)&acc[i][8 * p] = a;
    }
  }
}

INLINE void tall8(const int f, const int m, const Gemm8Args *g, const activations *x, const uint8_t *w, float *y) {
  float acc[TALLEST][16] __attribute__((aligned(64)));
  const int first = x == g->x;
  UNROLL for (int i = 0; i < m; i++) store(acc[i], g->keep ? load(y + i * g->yrow) : splat(0));
  ROLLED for (int64_t k = g->k; k > 0; k -= block_k(f)) {
    const uint8_t *group = w + head(f);
    ROLLED for (int b = 0; b < block_k(f) / 32; b++) {
      if (f != TURNED && first) fetch(group + AHEAD, head(f) * 32 / block_k(f) + 32 / group_k(f) * group_bytes(f));
      UNROLL for (int at = 0; at < 32; at += group_k(f)) {
        tall_group(f, m, acc, w, group, x, g->xrow, at);
        group += group_bytes(f);
      }
      x++;
    }
    w += block_bytes(f);
  }
  UNROLL for (int i = 0; i < m; i++) store(y + i * g->yrow, load(acc[i]));
}

// What gains: formats whose codes take work to read, or two sums each. Fewer rows than shortest
// are as well off in rows8.
INLINE int tallest(const int f) { return f == Q8_0 ? 6 : high_bytes(f) || f == TURNED ? 8 : 0; }
INLINE int shortest(const int f) { return f == Q8_0 ? 3 : 5; }
#define TALL_CASE(n) case n: if (n <= tallest(f) && n >= shortest(f)) tall8(f, n, g, x, w, y); break
#endif

#if defined(__AVX512VNNI__)
INLINE int together(const int f) { return f == Q4_K || f == Q5_K || f == Q5_0 || f == Q5_1 ? 8 : TALL; }
#elif defined(__AVX512F__)
INLINE int together(const int f) { (void)f; return 8; }
#else
INLINE int together(const int f) { (void)f; return TALL; }
#endif
#define CASE(n) case n: if (n <= together(f)) rows8(f, n, g, x, w, y); break

INLINE void gemm8(const int f, const Gemm8Args *g) {
  const uint8_t *w = g->w;
  ROLLED for (int64_t p = 0; p < g->p; p++) {
    const activations *x = g->x;
    float *y = g->y + 16 * p;
    int64_t m = g->m;
#ifdef TALL_ROWS
    const int high = tallest(f);
    ROLLED while (high && m >= shortest(f)) {
      const int64_t n = m <= high ? m : m < 2 * high ? (m + 1) / 2 : high;
      switch (n) {
        TALL_CASE(8); TALL_CASE(7); TALL_CASE(6); TALL_CASE(5); TALL_CASE(4); TALL_CASE(3);
      }
      x = (const activations *)((const char *)x + n * g->xrow);
      y += n * g->yrow;
      m -= n;
    }
#endif
    const int most = together(f);
    ROLLED while (m > 0) { // a rest that is not whole goes with the rows before it, half and half
      const int64_t n = m <= most ? m : m < 2 * most ? (m + 1) / 2 : most;
      switch (n) {
#if defined(__AVX512F__)
        CASE(12); CASE(11); CASE(10); CASE(9); CASE(8); CASE(7); CASE(6); CASE(5);
#endif
        CASE(4); CASE(3); CASE(2); CASE(1);
      }
      x = (const activations *)((const char *)x + n * g->xrow);
      y += n * g->yrow;
      m -= n;
    }
    w += g->panelbytes;
  }
}

#define GEMM8(F) \
  void Gemm8_##F(const Gemm8Args *g) { gemm8(F, g); }
GEMM8(Q4_0) GEMM8(Q4_1) GEMM8(Q5_0) GEMM8(Q5_1) GEMM8(Q8_0) GEMM8(Q4_K) GEMM8(Q5_K) GEMM8(Q6_K)

void GemmTurned(const Gemm8Args *g) { gemm8(TURNED, g); }

typedef struct {
  const float *w;
  uint8_t *panel;
  int64_t row, n;
} Turn8Args;
SIZE(Turn8Args, 32);

// Turn8 rounds n runs of 32 rows of 16 weights, a scale for each lane of a run.
void Turn8(const Turn8Args *g) {
  const float *w = g->w;
  uint8_t *block = g->panel;
  ROLLED for (int64_t n = g->n; n > 0; n--, w += 32 * g->row, block += block_bytes(TURNED)) {
    i32x16 top = {0};
    const float *r = w;
    ROLLED for (int i = 0; i < 32; i++, r += g->row)
      top = __builtin_elementwise_max(top, (i32x16)load(r) & 0x7fffffff);
    const f32x16 most = (f32x16)top;
    const i32x16 finite = top < 0x7f800000, counts = finite & (most >= splat(0x1p-100f));
    const f32x16 inverse = (f32x16)((i32x16)(splat(63.0f) / most) & counts);
    store((float *)block, (f32x16)(((i32x16)(most / splat(63.0f)) & counts) | (~finite & 0x7fc00000)));
    const f32x16 magic = splat(0x1.8p+23f); // its last bit is one, so that adding rounds to integers
    r = w;
    ROLLED for (int q = 0; q < 8; q++) {
      u32x16 word = {0};
      UNROLL for (int i = 0; i < 4; i++, r += g->row) {
        const f32x16 x = (f32x16)((i32x16)load(r) & counts);
        word |= (u32x16)((i32x16)fma(x, inverse, magic) - ((i32x16)magic - zero(TURNED))) << (8 * i);
      }
      *(u32x16_at *)(block + head(TURNED) + 64 * q) = word;
    }
  }
}

typedef struct {
  const float *x;
  activations *q;
  int64_t n;
  float largest; // code
} Quantize8Args;
SIZE(Quantize8Args, 32);

void Quantize8(const Quantize8Args *g) {
  const float *x = g->x;
  activations *b = g->q;
  const int gradients = g->largest == 63.0f;
  ROLLED for (int64_t n = g->n; n > 0; n -= 32, x += 32, b++) {
    const f32x16 magic = splat(0x1.8p+23f); // its last bit is one, so that adding rounds to integers
    f32x16 lo = load(x), hi = load(x + 16);
    i32x16 m = __builtin_elementwise_max((i32x16)lo & 0x7fffffff, (i32x16)hi & 0x7fffffff);
    const int32_t top = __builtin_reduce_max(m);
    const float most = __builtin_bit_cast(float, top);
    float inverse = g->largest / most;
    b->scale = most / g->largest;
    if (top >= 0x7f800000) {
      b->scale = __builtin_nanf("");
      inverse = 0;
    }
    if (most < 0x1p-100f) b->scale = inverse = 0;
    const f32x16 zeros = {0};
    lo = inverse == 0 ? zeros : lo;
    hi = inverse == 0 ? zeros : hi;
    i32x16 a = (i32x16)fma(lo, splat(inverse), magic) - (i32x16)magic;
    i32x16 c = (i32x16)fma(hi, splat(inverse), magic) - (i32x16)magic;
    *(i8x16_at *)b->q = __builtin_convertvector(a, i8x16);
    *(i8x16_at *)(b->q + 16) = __builtin_convertvector(c, i8x16);
    const int32_t first = __builtin_reduce_add(a), second = __builtin_reduce_add(c);
    b->sum = b->scale * (float)(first + second);
    b->half[0] = gradients ? -zero(TURNED) * (first + second) : first;
    b->half[1] = gradients ? 0 : second;
  }
}
