package cpu

import (
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/quant"
)

// Gradients of activations under the int8 contract: dx = dy·W with dy rounded along the outputs,
// and W too, a strip of its columns at a time. The codes of W itself do not serve: their scales run
// along the inputs, and so across the sums.

const (
	turnedDepth = 512            // outputs rounded at a time: 18 KB of the tile
	runTile     = tileFloats / 2 // where the tile holds one run of 32 outputs in float32
)

// gradRow8 is the bytes of one rounded row of n gradients, whole blocks.
func gradRow8(n int) int { return codesRow(ceil(n, quant.ActivationLen) * quant.ActivationLen) }

// roundGradients rounds rows of n gradients; what a block lacks counts as zero.
func (w *worker) roundGradients(codes unsafe.Pointer, codesRow int, dy unsafe.Pointer, dyRow, n, rows int) {
	whole := n &^ (quant.ActivationLen - 1)
	for i := range rows {
		row, to := add(dy, i*dyRow), unsafe.Add(codes, i*codesRow)
		w.quantize8 = vec.Quantize8Args{X: row, Q: to, N: int64(whole), Largest: quant.GradientTop}
		w.k.Quantize8(&w.quantize8)
		if whole < n {
			copyRows(w.edge, 0, add(row, whole), 0, 1, n-whole, quant.ActivationLen)
			w.quantize8.X, w.quantize8.Q = w.edge, unsafe.Add(to, gradRow8(whole))
			w.quantize8.N = quant.ActivationLen
			w.k.Quantize8(&w.quantize8)
		}
	}
}

// turned is transposed under the int8 contract: codes is the rounded rows of dy, beginning at
// output o0, which is a multiple of 32, as kn is of 16.
func (w *worker) turned(dx unsafe.Pointer, dxRow, rows int, codes unsafe.Pointer, codesRow int, m *matrix, o0, o1, k, kn int, keep bool) {
	for o := o0; o < o1; o += turnedDepth {
		runs := ceil(min(turnedDepth, o1-o), quant.WeightRunLen)
		w.turnPanels(m, o, runs, k, kn)
		for r := 0; r < rows; r += int8Block {
			w.gemm8 = vec.Gemm8Args{
				X: unsafe.Add(codes, r*codesRow+gradRow8(o-o0)), W: w.tile, Y: add(dx, r*dxRow),
				K: int64(runs * quant.WeightRunLen), P: int64(kn / vec.Lanes), PanelBytes: int64(runs * vec.TurnedBytes),
				M: int64(min(int8Block, rows-r)), XRow: int64(codesRow), YRow: int64(dxRow), Keep: flag(keep || o > o0),
			}
			w.k.GemmTurned(&w.gemm8)
		}
	}
}

// turnPanels fills the tile with kn/16 panels of the columns from k: runs of 32 outputs from o,
// rounded.
func (w *worker) turnPanels(m *matrix, o, runs, k, kn int) {
	run, panels := add(w.tile, runTile), ceil(m.out, vec.Lanes)
	for i := range runs {
		for half := range 2 {
			dst := add(run, half*vec.Lanes*kn)
			panel := (o+i*quant.WeightRunLen)/vec.Lanes + half
			if panel >= panels {
				clear(floats(dst, vec.Lanes*kn))
				continue
			}
			w.decodePanel(w.strip(), m, panel, k, kn)
			w.transpose = vec.TransposeArgs{Dst: dst, Src: w.strip(), DstRow: int64(kn), SrcRow: vec.Lanes, N: int64(kn / vec.Lanes)}
			w.k.Transpose16(&w.transpose)
		}
		for p := range kn / vec.Lanes {
			w.turn8 = vec.Turn8Args{W: add(run, p*vec.Lanes), Panel: unsafe.Add(w.tile, (p*runs+i)*vec.TurnedBytes), Row: int64(kn), N: 1}
			w.k.Turn8(&w.turn8)
		}
	}
}

// roundedGrads is the dy of a MatMulBackward whose weights round, a run of rows at a time.
type roundedGrads struct {
	codes    unsafe.Pointer // of the first row of the run
	row      int            // bytes
	from, to int            // the run
}

// inputGrads computes dx in runs of as many rows as there is room for rounded gradients.
func (j *matMulBackwardJob) inputGrads(work int64) {
	j.rounded = roundedGrads{to: j.rows}
	for i := range j.grads {
		if g := &j.grads[i]; g.w.rounds {
			g.codes = j.rounded.row
			j.rounded.row += gradRow8(g.w.out)
		}
	}
	if err := j.b.roomForCodes(j.rounded.row); err != nil {
		j.b.fail(err)
		return
	}
	_, most := split(j.rows, len(j.b.codes)/j.rounded.row)
	j.rounded.codes = unsafe.Pointer(unsafe.SliceData(j.b.codes))
	for r := 0; r < j.rows; r += most {
		j.rounded.from, j.rounded.to = r, min(r+most, j.rows)
		n := j.rounded.to - r
		j.tasks, j.segs = 0, j.segs[:0]
		j.push(segment{kind: makeCodes, steps: ceil(n, roundRows)}, 0)
		j.b.run(j.tasks, int64(n)*int64(j.rounded.row), j)
		j.tasks, j.segs = 0, j.segs[:0]
		j.planInput(n)
		j.b.run(j.tasks, work*int64(n), j)
	}
}

// roundSome rounds the rows of one task, of every dy that is to be multiplied in bytes.
func (j *matMulBackwardJob) roundSome(w *worker, step int) {
	from := j.rounded.from + step*roundRows
	rows := min(roundRows, j.rounded.to-from)
	to := unsafe.Add(j.rounded.codes, step*roundRows*j.rounded.row)
	for i := range j.grads {
		if g := &j.grads[i]; g.w.rounds {
			w.roundGradients(unsafe.Add(to, g.codes), j.rounded.row, add(g.dy, from*g.dyRow), g.dyRow, g.w.out, rows)
		}
	}
}

// hiddenGrad8 is a piece of hiddenGrad under the int8 contract: the vocabulary entries [v, v+n).
func (j *logProbsBackwardJob) hiddenGrad8(w *worker, d kernels.Tensor, from, rows int, dz unsafe.Pointer, v, n int) {
	row := gradRow8(n)
	codes := w.codes.bytes(rows * row)
	w.roundGradients(codes, row, dz, gradRow(n), n, rows)
	for k := 0; k < j.w.in; k += stripWidth {
		w.turned(at(d, from, k), d.Stride, rows, codes, row, &j.w, v, v+n, k, min(stripWidth, j.w.in-k), v > 0)
	}
}
