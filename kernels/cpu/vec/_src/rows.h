// The argument structs of the row primitives, as in ../rows_*.go.
#include "vec.h"

struct SumSquares { const float *x; long n; float sum, pad; };
struct Dot { const float *x, *y; long n; float sum, pad; };
struct RMSNorm { float *y; const float *x, *w; long n; float eps, inv; };
struct RMSNormBackward { float *dx, *dw; const float *x, *w, *dy; long n, keep; float inv, pad; };

struct Gate { float *y; const float *g, *u; long n; }; // SwiGLU, GeGLU
struct GateBackward { float *dg, *du; const float *g, *u, *dy; long n; };

struct Add { float *y; const float *x; long n; };
struct Scaled { float *y; const float *x; long n; float a, pad; }; // Scale, Axpy, Softcap, Exp
struct Mul { float *y; const float *x, *z; long n; };
struct SoftcapBackward { float *dx; const float *y, *dy; long n; float cap, pad; };
struct AdamW {
	float *p, *m, *v;
	const float *g;
	long n;
	float grad_scale, decay, beta1, rest1, beta2, rest2, root_bias2, step, eps, pad;
};
struct RoPE {
	float *y;
	const float *x, *cos, *sin;
	long d, r, heads, yrow, xrow, neox, inverse;
};

struct LogSumExpChunk { const float *z; long n; float max, sum, sumz, pad; };
struct SoftmaxGrad { float *dz; const float *z; long n; float lse, g, h, entropy, inv_t, pad; };
struct ArgMax { const float *x; long n, index; float max, pad; };

SIZE(struct RMSNorm, 40);
SIZE(struct RMSNormBackward, 64);
SIZE(struct Gate, 32);
SIZE(struct GateBackward, 48);
SIZE(struct Scaled, 32);
SIZE(struct SoftcapBackward, 40);
SIZE(struct AdamW, 80);
SIZE(struct RoPE, 88);
SIZE(struct LogSumExpChunk, 32);
SIZE(struct SoftmaxGrad, 48);
SIZE(struct ArgMax, 32);
