package dpo

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels/rng"
	"graft/rl"
)

// row is a completion of n tokens whose log-probs sum to lp under the policy and ref under the
// reference.
func row(group, n int, lp, ref float64) (rl.Rollout, []float32) {
	r := rl.Rollout{Tokens: make([]int32, 1+n), PromptLen: 1, Group: group, RefLogP: make([]float32, n)}
	logp := make([]float32, n)
	logp[0], r.RefLogP[0] = float32(lp), float32(ref)
	return r, logp
}

// TestWorkedExample: lp_w −12, lp_l −15, ref_w −13, ref_l −13.5, n_w 10, n_l 8, beta 0.1.
func TestWorkedExample(t *testing.T) {
	for _, c := range []struct {
		kind   string
		smooth float64
		want   float64
	}{
		{"sigmoid", 0, .57593942}, {"robust", .1, .54468942}, {"hinge", 0, .75}, {"ipo", 0, 22.20765625},
		{"exo_pair", 0, 2.33954475}, {"nca_pair", 0, 1.32707351}, {"bco_pair", 0, 1.26535371}, {"sppo_hard", 0, 28.25},
		{"apo_zero", 0, .93759097}, {"apo_down", 0, .96280269}, {"discopop", 0, .77744306}, {"sigmoid_norm", 0, .67887550},
		{"aot", .1, .60093942}, {"aot_unpaired", .1, .60093942}, // of one pair: the smoothed sigmoid (cDPO)
		{"sft", 0, 1.2},
	} {
		o := DefaultOptions().LossOptions
		o.LossType, o.LabelSmoothing = []string{c.kind}, c.smooth
		require.NoError(t, o.Validate())
		w, lw := row(0, 10, -12, -13)
		l, ll := row(0, 8, -15, -13.5)
		_, stats, err := o.Loss([]rl.Rollout{w, l}, append(lw, ll...), make([]float32, 18), 1)
		require.NoError(t, err)
		require.InDelta(t, c.want, stats.Get("loss"), 1e-7, c.kind)
		require.InDelta(t, 0.1, stats.Get("rewards/chosen"), 1e-12)
		require.InDelta(t, -0.15, stats.Get("rewards/rejected"), 1e-12)
		require.Equal(t, 1.0, stats.Get("rewards/accuracies"))
	}
}

// TestFiniteDifferences: the gradient is that of the loss, for every loss, divergence and ld_alpha.
func TestFiniteDifferences(t *testing.T) {
	src := rng.New(11, "dpo test")
	var batch []rl.Rollout
	var logp []float32
	n := uint32(0)
	draw := func() float32 { n++; return float32(src.Uniform(n, 0, 0, 0)) }
	for i := range 8 {
		r := rl.Rollout{Tokens: make([]int32, 1+2+int(draw()*5)), PromptLen: 1, Group: i / 2}
		for range r.Len() {
			logp = append(logp, -3*draw())
			r.RefLogP = append(r.RefLogP, logp[len(logp)-1]+2*draw()-1)
			r.Mask = append(r.Mask, 1)
		}
		r.Mask[1] = float32(i % 2)
		batch = append(batch, r)
	}
	entropy := make([]float32, len(logp))
	alpha := 0.4
	checked := 0
	for _, kind := range LossTypes() {
		for _, f := range FDivergences() {
			for _, ld := range []*float64{nil, &alpha} {
				o := DefaultOptions().LossOptions
				o.LossType, o.LossWeights, o.FDivergenceType, o.LDAlpha, o.Beta = []string{kind, "sft"}, []float64{0.7, 0.1}, f, ld, 0.3
				if o.Validate() != nil {
					continue
				}
				checked++
				t.Run(fmt.Sprint(kind, " ", f, " ", ld != nil), func(t *testing.T) {
					grad, _, err := o.Loss(batch, logp, entropy, 2)
					require.NoError(t, err)
					for i, was := range logp {
						const h = 1.0 / 2048
						logp[i] = was + h
						_, up, _ := o.Loss(batch, logp, entropy, 2)
						logp[i] = was - h
						_, down, _ := o.Loss(batch, logp, entropy, 2)
						logp[i] = was
						slope := (up.Get("loss") - down.Get("loss")) / (float64(was+h) - float64(was-h))
						require.InDelta(t, slope, float64(grad.DLogP[i]), 2e-6*max(1, math.Abs(slope)), "token %d", i)
					}
				})
			}
		}
	}
	require.Equal(t, 2*(15+7*3+1*3), checked)
}

func TestRefusals(t *testing.T) {
	half := 1.5
	for _, c := range []struct {
		change func(o *Options)
		want   string
	}{
		{func(o *Options) { o.LossType = nil }, "no loss_type"},
		{func(o *Options) { o.LossType = []string{"dpo"} }, `loss_type "dpo" is not known; there are sigmoid`},
		{func(o *Options) { o.LossWeights = []float64{1, 2} }, "2 loss_weights for 1 loss types"},
		{func(o *Options) { o.LossWeights = []float64{math.NaN()} }, "loss_weights are"},
		{func(o *Options) { o.Beta = 0 }, "beta is 0"},
		{func(o *Options) { o.LabelSmoothing = 0.1 }, "label_smoothing has no effect with loss_type sigmoid"},
		{func(o *Options) { o.LossType, o.LabelSmoothing = []string{"robust"}, 0.5 }, "label_smoothing is 0.5"},
		{func(o *Options) { o.FDivergenceType = "kl" }, `f_divergence_type "kl"`},
		{func(o *Options) { o.LossType, o.FDivergenceType = []string{"aot"}, "forward_kl" }, "forward_kl has no effect with loss_type aot"},
		{func(o *Options) { o.LDAlpha = &half }, "ld_alpha is 1.5"},
		{func(o *Options) { o.LossType, o.DiscopopTau = []string{"discopop"}, 0 }, "discopop_tau"},
		{func(o *Options) { o.PerDeviceTrainBatchSize = 0 }, "per_device_train_batch_size is 0"},
		{func(o *Options) { o.GradientAccumulationSteps = 0 }, "gradient_accumulation_steps is 0"},
		{func(o *Options) { o.Optimizer.Eps = 0 }, "adam_epsilon"},
	} {
		o := DefaultOptions()
		c.change(&o)
		require.ErrorContains(t, o.Validate(), c.want)
	}
	o := DefaultOptions()
	require.NoError(t, o.Validate())
	w, lw := row(0, 2, -1, -1)
	_, _, err := o.Loss([]rl.Rollout{w}, lw, lw, 1)
	require.ErrorContains(t, err, "1 rollouts are not pairs")
	l, ll := row(0, 2, -1, -1)
	l.RefLogP = nil
	_, _, err = o.Loss([]rl.Rollout{w, l}, append(lw, ll...), make([]float32, 4), 1)
	require.ErrorContains(t, err, "0 reference log-probs for 2 tokens")
	l.RefLogP, l.Mask = w.RefLogP, []float32{0, 0}
	_, _, err = o.Loss([]rl.Rollout{w, l}, append(lw, ll...), make([]float32, 4), 1)
	require.ErrorContains(t, err, "no completion token to learn from")
}

// TestPolicySize: pairs that share their prompt and pairs that cannot both fit the plan.
func TestPolicySize(t *testing.T) {
	o := DefaultOptions()
	o.PerDeviceTrainBatchSize = 3
	bound := o.PolicySize(40, 20)
	for p := 1; p <= 40; p++ {
		for _, shift := range []int32{0, 1} {
			var batch []rl.Rollout
			for i := range 3 {
				w, l := make([]int32, p+20), make([]int32, p+20)
				l[0] = shift
				batch = append(batch, rl.Rollout{Tokens: w, PromptLen: p, Group: i}, rl.Rollout{Tokens: l, PromptLen: p, Group: i})
			}
			require.Equal(t, bound, bound.Max(rl.SizeOf(batch)), "prompt %d, shift %d", p, shift)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := New(DefaultOptions(), &rl.Policy{InvT: 0.5}, nil)
	require.ErrorContains(t, err, "scores at 1/temperature 0.5")
	_, err = New(DefaultOptions(), &rl.Policy{InvT: 1}, nil)
	require.ErrorContains(t, err, "no reference policy")
	_, err = New(Options{}, &rl.Policy{InvT: 1}, nil)
	require.ErrorContains(t, err, "no loss_type")
}
