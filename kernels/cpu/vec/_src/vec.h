// The vocabulary of the primitives: vectors of 16 lanes, unaligned loads and
// stores, fused multiply-add. One source serves every instruction set: the
// compiler splits a vector of 16 into the registers that there are.
//
// A function that is not static becomes a Go function; it takes one pointer to
// the argument struct of its Go twin and may call nothing.
#ifndef VEC_H
#define VEC_H

#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define SIZE(T, n) _Static_assert(sizeof(T) == (n), #T " differs from its Go twin")
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable) vectorize(disable)")

enum { LANES = 16 };

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef _Float16 f16x16 __attribute__((vector_size(32)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));

// Views of memory: any alignment, any type.
typedef f32x16 f32x16_at __attribute__((aligned(4), may_alias));
typedef f16x16 f16x16_at __attribute__((aligned(1), may_alias));
typedef u16x16 u16x16_at __attribute__((aligned(1), may_alias));
typedef i8x16 i8x16_at __attribute__((aligned(1), may_alias));
typedef u8x16 u8x16_at __attribute__((aligned(1), may_alias));

INLINE f32x16 load(const float *p) { return *(const f32x16_at *)p; }
INLINE void store(float *p, f32x16 v) { *(f32x16_at *)p = v; }
INLINE f32x16 splat(float x) { return (f32x16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return __builtin_elementwise_fma(a, b, c); }

#endif
