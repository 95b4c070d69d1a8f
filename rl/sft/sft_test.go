package sft

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/rl"
)

func window() ([]rl.Rollout, []float32, []float32) {
	return []rl.Rollout{
		{Tokens: make([]int32, 5), PromptLen: 2},
		{Tokens: make([]int32, 3), PromptLen: 1, Mask: []float32{0, 1}},
	}, []float32{-1, -2, -0.5, 0, -4}, []float32{1, 2, 3, 0, 6}
}

func TestLoss(t *testing.T) {
	batch, logp, entropy := window()
	o := DefaultOptions()
	require.NoError(t, o.Validate())
	grad, stats, err := o.Loss(batch, logp, entropy, 4)
	require.NoError(t, err)
	require.InDelta(t, 7.5/4, stats.Get("loss"), 1e-12)
	require.InDelta(t, 3, stats.Get("entropy"), 1e-12)
	require.Equal(t, []float32{-.25, -.25, -.25, 0, -.25}, grad.DLogP)

	o.LossType = "dft"
	grad, stats, err = o.Loss(batch, logp, entropy, 4)
	require.NoError(t, err)
	require.InDelta(t, (math.Exp(-1)+2*math.Exp(-2)+.5*math.Exp(-.5)+4*math.Exp(-4))/4, stats.Get("loss"), 1e-12)
	require.InDelta(t, -math.Exp(-2)/4, grad.DLogP[1], 1e-8)
	require.Zero(t, grad.DLogP[3])
}

// TestSplits: the token mean is over the window, whatever the micro-batches.
func TestSplits(t *testing.T) {
	batch, logp, entropy := window()
	for _, kind := range LossTypes() {
		o := DefaultOptions()
		o.LossType = kind
		whole, stats, err := o.Loss(batch, logp, entropy, 4)
		require.NoError(t, err)
		a, first, err := o.Loss(batch[:1], logp[:3], entropy[:3], 4)
		require.NoError(t, err)
		b, second, err := o.Loss(batch[1:], logp[3:], entropy[3:], 4)
		require.NoError(t, err)
		require.InDelta(t, stats.Get("loss"), first.Get("loss")+second.Get("loss"), 1e-15)
		require.Equal(t, whole.DLogP, append(a.DLogP, b.DLogP...))
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		change func(o *Options)
		want   string
	}{
		{func(o *Options) { o.LossType = "ce" }, `loss_type "ce" is not known; there are nll, dft`},
		{func(o *Options) { o.PerDeviceTrainBatchSize = 0 }, "per_device_train_batch_size is 0"},
		{func(o *Options) { o.GradientAccumulationSteps = -1 }, "gradient_accumulation_steps is -1"},
		{func(o *Options) { o.Optimizer.MaxGradNorm = -1 }, "max_grad_norm is -1"},
	} {
		o := DefaultOptions()
		c.change(&o)
		require.ErrorContains(t, o.Validate(), c.want)
	}
	batch, logp, entropy := window()
	o := DefaultOptions()
	_, _, err := o.Loss(batch, logp[:4], entropy, 4)
	require.ErrorContains(t, err, "4 log-probs and 5 entropies for 5 tokens")
	_, _, err = o.Loss(batch, logp, entropy, 0)
	require.ErrorContains(t, err, "a window of 0")
}

func TestNewRefuses(t *testing.T) {
	_, err := New(DefaultOptions(), &rl.Policy{InvT: 0.5}, nil)
	require.ErrorContains(t, err, "scores at 1/temperature 0.5")
	_, err = New(Options{}, &rl.Policy{InvT: 1}, nil)
	require.ErrorContains(t, err, `loss_type ""`)
}
