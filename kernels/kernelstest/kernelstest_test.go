package kernelstest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/kernels/ref"
)

// Checked must let everything pass that the suite asks, and ref must pass it.
func TestRefPasses(t *testing.T) { Run(t, kernels.Checked(ref.New())) }

func TestRefGradients(t *testing.T) { RunGradients(t, kernels.Checked(ref.New())) }

// Every pair of a batch has a slot of its own, every position that a row sees was written, and
// siblings share the full pages of their prompt and no other.
func TestBatchLaysOutSequences(t *testing.T) {
	b := NewBatch(rand.New(rand.NewPCG(1, 2)), siblings)
	written := map[int32]int32{} // slot: row
	for i, slot := range b.Slots {
		require.NotContains(t, written, slot)
		require.Less(t, int(slot), b.Pages*kernels.PageSize)
		written[slot] = b.Rows[i]
	}
	for seq, rows := range b.SeqRows {
		for p, row := range rows {
			require.Contains(t, written, b.Slot(seq, p))
			assert.Equal(t, row, written[b.Slot(seq, p)], "sequence %d, position %d", seq, p)
			assert.Equal(t, int32(p), b.Positions[row])
		}
	}
	assert.Len(t, b.Seq, (21+5+1+19)+(16+3+0+17)+1+15+(40+2+2), "a prompt is computed once")
	page := func(seq, p int) int32 { return b.Tables[seq*b.Width+p] }
	assert.Equal(t, page(0, 0), page(1, 0))
	assert.Equal(t, page(0, 0), page(2, 0))
	assert.NotEqual(t, page(0, 1), page(1, 1), "the prompt's last page of 5 tokens is copied")
	assert.Equal(t, page(3, 0), page(5, 0), "a prompt of 16 has no tail")
	assert.NotEqual(t, page(3, 1), page(5, 1))
}

// Random weights have about the size asked for, in every format, and scales of both signs.
func TestRandomRawHasItsSize(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, f := range quant.Formats() {
		const n = 256 * 64
		v := make([]float32, n)
		quant.Decode(v, f, RandomRaw(r, f, n, 0.25))
		var squares float64
		for _, x := range v {
			squares += float64(x) * float64(x)
		}
		assert.InDelta(t, 0.25, math.Sqrt(squares/n), 0.15, f.String())
	}
}
