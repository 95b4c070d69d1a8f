// The argument structs of attention, as in ../attn_args.go.
#include "vec.h"

struct AttnForward {
	const float *q;
	float *out;
	const float *const *kpages, *const *vpages;
	const int *start, *limit;
	float *state;
	long qrow, qtok, outrow, outtok, group, m, d, page0, pagen;
	float scale, softcap;
};
struct AttnScores {
	const float *q;
	const float *const *kpages;
	float *s;
	long qrow, qtok, group, m, d, page0, pagen;
};
struct AttnValues {
	const float *s;
	float *out;
	const float *const *vpages;
	const int *start, *limit;
	float *state;
	long outrow, outtok, group, m, d, vrow, page0, pagen;
	float scale, softcap;
};
struct AttnFinish {
	float *out;
	const float *state;
	float *lse;
	long outrow, outtok, group, m, d;
};
struct AttnBackwardQ {
	const float *q;
	float *dq;
	const float *dout;
	const float *const *kpages, *const *vpages;
	const int *start, *limit;
	const float *lse, *delta;
	float *scratch;
	long qrow, qtok, outrow, outtok, group, m, d, page0, pagen;
	float scale, softcap;
};
struct AttnBackwardKV {
	const float *q, *dout, *k;
	float *dk;
	const float *v;
	float *dv;
	const int *start, *limit;
	const float *lse, *delta;
	float *scratch;
	long qrow, qtok, outrow, outtok, group, m, d, page;
	float scale, softcap;
};

SIZE(struct AttnForward, 136);
SIZE(struct AttnScores, 80);
SIZE(struct AttnValues, 120);
SIZE(struct AttnFinish, 64);
SIZE(struct AttnBackwardQ, 160);
SIZE(struct AttnBackwardKV, 160);
