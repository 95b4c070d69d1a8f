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
	for _, v := range l.Read(y) {
		require.NotZero(t, v)
		require.Less(t, max(v, -v), float32(20))
	}
}
