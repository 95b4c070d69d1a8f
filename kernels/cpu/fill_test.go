package cpu

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/kernelstest"
	"graft/kernels/quant"
)

// TestFillIsPack: every row of every matrix is read once and lies where Pack puts it, whatever the
// sizes of tasks and reads.
func TestFillIsPack(t *testing.T) {
	b := newBench(t, Options{Threads: 3})
	for _, f := range quant.Formats() {
		var ws []kernels.Weight
		var raws [][]byte
		for _, shape := range [][2]int{{1, 256}, {37, 256}, {1000, 512}, {2100, 1024}, {16, 32768}} {
			out, in := shape[0], shape[1]
			n := b.PackedBytes(f, out, in)
			ws = append(ws, kernels.Weight{Mem: b.memory(n), Bytes: n, Format: f, Out: out, In: in})
			raws = append(raws, kernelstest.RandomRaw(b.rng, f, out*in, 0.05))
		}
		seen := make([][]byte, len(ws)) // one row has one reader, so no lock
		var j fillJob
		for i := range seen {
			j.add(i, matrixOf(ws[i]))
			seen[i] = make([]byte, ws[i].Out)
		}
		for i, p := range j.parts[1:] {
			before := &j.parts[i]
			require.True(t, p.matrix != before.matrix || j.weights[p.matrix].span(p.first) != j.weights[p.matrix].span(before.first), "%v: two tasks begin in one huge page", f)
		}
		require.NoError(t, b.Fill(ws, func(i int, dst []byte, row int) error {
			size := f.Bytes(ws[i].In)
			for r := row; r < row+len(dst)/size; r++ {
				seen[i][r]++
			}
			copy(dst, raws[i][row*size:])
			return nil
		}))
		require.NoError(t, b.Sync())
		for i, w := range ws {
			require.True(t, bytes.Equal(bytes.Repeat([]byte{1}, w.Out), seen[i]), "%v [%d %d]: how often rows were read", f, w.Out, w.In)
			want := make([]byte, w.Bytes)
			vec.Pack(want, f, w.Out, w.In, raws[i])
			require.True(t, bytes.Equal(want, w.Mem.Host[:w.Bytes]), "%v [%d %d]", f, w.Out, w.In)
		}
	}
}

func TestFillEndsWithTheFirstError(t *testing.T) {
	b := newBench(t, Options{Threads: 1})
	f, out, in := quant.Q8_0, 8192, 1024
	n := b.PackedBytes(f, out, in)
	w := kernels.Weight{Mem: b.memory(n), Bytes: n, Format: f, Out: out, In: in}
	gone, reads := errors.New("disk gone"), 0
	require.ErrorIs(t, b.Fill([]kernels.Weight{w, w}, func(int, []byte, int) error {
		if reads++; reads == 3 {
			return gone
		}
		return nil
	}), gone)
	require.Equal(t, 3, reads, "nothing is read after an error")
	require.NoError(t, b.Fill(nil, nil))
}
