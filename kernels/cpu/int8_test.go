package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/kernelstest"
	"graft/kernels/quant"
)

// A row wider than the room that a backend begins with gets room of its own.
func TestARowWiderThanTheRoomIsRounded(t *testing.T) {
	const in = (codesBytes/48 + 1) * quant.ActivationLen
	b := New(Options{Threads: 2})
	defer func() { require.NoError(t, b.Close()) }()
	l := kernelstest.NewLab(t, b, 1)
	x, w, y := l.Normal(2, in, 1), l.Weight(quant.Q8_0, 16, in, 1e-3), l.Output(2, 16)
	w.Precision = kernels.PrecisionInt8
	b.MatMul(x, []kernels.Product{{Y: y, W: w}})
	require.NoError(t, b.Sync())
	both := l.Read(y)
	for i := range 2 {
		one := l.Output(1, 16)
		b.MatMul(x.Slice(i, i+1), []kernels.Product{{Y: one, W: w}})
		require.NoError(t, b.Sync())
		require.Equal(t, l.Read(one), both[16*i:16*i+16], "row %d alone", i)
	}
	for _, v := range both {
		require.NotZero(t, v)
		require.Less(t, max(v, -v), float32(20))
	}
}

// Gradients of more rows than there is room for are rounded in runs, and none shows it.
func TestGradientsOfManyRowsAreRoundedInRuns(t *testing.T) {
	b := New(Options{Threads: 2})
	defer func() { require.NoError(t, b.Close()) }()
	l := kernelstest.NewLab(t, b, 1)
	const rows, in = 205, 64
	weight := func(f quant.Format, out int) kernels.Weight {
		w := l.Weight(f, out, in, 0.1)
		w.Precision = kernels.PrecisionInt8
		return w
	}
	grads := []kernels.ProductGrad{
		{DY: l.Normal(rows, 80, 1), W: weight(quant.Q4_0, 80)}, {DY: l.Normal(rows, 40, 1), W: weight(quant.F32, 40)},
		{DY: l.Normal(rows, 50, 1), W: weight(quant.Q8_0, 50)},
	}
	gradient := func() []float32 {
		dx := l.Output(rows, in)
		b.MatMulBackward(dx, kernels.Tensor{}, grads, false)
		require.NoError(t, b.Sync())
		return l.Read(dx)
	}
	want, room := gradient(), b.codes
	for _, n := range []int{1, 7, 100} {
		clear(room)
		b.codes = room[:n*(gradRow8(80)+gradRow8(50))+9]
		require.Equal(t, want, gradient(), "%d rows at a time", n)
	}
	b.codes = room
}
