package cpu

import (
	"fmt"
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
	"graft/kernels/quant"
)

// embedJob is Embed by rows or EmbedBackward by columns.
type embedJob struct {
	y, ids kernels.Tensor
	w      matrix
	scale  float32
	grain  int // columns of a task of the backward; 0: forward
}

// Embed is y[n] = scale·W[ids[n]].
func (b *Backend) Embed(y kernels.Tensor, w kernels.Weight, ids kernels.Tensor, scale float32) {
	if y.Rows == 0 {
		return
	}
	j := &b.jobs.embed
	*j = embedJob{y: y, ids: ids, w: matrixOf(w), scale: scale}
	b.run(y.Rows, int64(y.Rows*w.In), j)
}

// EmbedBackward is dw[ids[n]] += scale·dy[n], n ascending: columns are shared out, since ids repeat.
func (b *Backend) EmbedBackward(dw kernels.Weight, dy, ids kernels.Tensor, scale float32) {
	if dy.Rows == 0 {
		return
	}
	j := &b.jobs.embed
	*j = embedJob{y: dy, ids: ids, w: matrixOf(dw), scale: scale, grain: 64}
	b.run(ceil(dw.In, j.grain), int64(dy.Rows*dw.In), j)
}

func (j *embedJob) do(w *worker, task int) {
	if j.grain > 0 {
		j.backward(task*j.grain, min((task+1)*j.grain, j.w.in))
		return
	}
	id := index(j.ids.I32()[task], j.w.out, "id")
	y := floats(at(j.y, task, 0), j.w.in)
	for k := 0; k < j.w.in; k += tileDepth {
		n := min(tileDepth, j.w.in-k)
		src := w.tile
		if j.w.format == quant.F32 {
			src = add(j.w.at(id/vec.Lanes), k*vec.Lanes)
		} else {
			w.decodePanel(w.tile, &j.w, id/vec.Lanes, k, n)
		}
		column := floats(add(src, id%vec.Lanes), (n-1)*vec.Lanes+1)
		for i := range n {
			y[k+i] = column[i*vec.Lanes]
		}
	}
	if j.scale != 1 {
		w.scaled(unsafe.Pointer(&y[0]), unsafe.Pointer(&y[0]), len(y), j.scale)
	}
}

func (j *embedJob) backward(from, to int) {
	for i, row := range j.ids.I32()[:j.y.Rows] {
		id := index(row, j.w.out, "id")
		dy := floats(at(j.y, i, 0), to)
		dw := floats(add(j.w.at(id/vec.Lanes), id%vec.Lanes), (to-1)*vec.Lanes+1)
		for k := from; k < to; k++ {
			dw[k*vec.Lanes] += float32(j.scale * dy[k])
		}
	}
}

// packJob packs or unpacks whole panels.
type packJob struct {
	w      matrix
	first  int // panel
	rows   int
	raw    []byte
	unpack bool
}

// Pack stores rows row, row+1, … given as raw rows of the file's layout.
func (b *Backend) Pack(w kernels.Weight, row int, raw []byte) { b.pack("Pack", w, row, raw, false) }

// Unpack is the inverse of Pack.
func (b *Backend) Unpack(raw []byte, w kernels.Weight, row int) { b.pack("Unpack", w, row, raw, true) }

func (b *Backend) pack(what string, w kernels.Weight, row int, raw []byte, unpack bool) {
	size := w.Format.Bytes(w.In)
	rows := len(raw) / size
	if len(raw)%size != 0 || row%vec.Lanes != 0 || row < 0 || row+rows > w.Out || rows%vec.Lanes != 0 && row+rows != w.Out {
		panic(fmt.Sprintf("cpu: %s %v [%d %d]: %d bytes at row %d, want whole panels of 16 rows of %d bytes",
			what, w.Format, w.Out, w.In, len(raw), row, size))
	}
	j := &b.jobs.pack
	j.w, j.first, j.rows, j.raw, j.unpack = matrixOf(w), row/vec.Lanes, rows, raw, unpack
	b.run(ceil(rows, vec.Lanes), int64(len(raw)), j)
	j.raw = nil
}

func (j *packJob) do(_ *worker, task int) {
	rows := min(vec.Lanes, j.rows-task*vec.Lanes)
	size := vec.Lanes * j.w.format.Bytes(j.w.in)
	panels(&j.w, j.first+task, rows, j.raw[task*size:], j.unpack)
}

// panels packs or unpacks rows from a panel on.
func panels(m *matrix, first, rows int, raw []byte, unpack bool) {
	size := m.format.Bytes(m.in)
	for at := 0; at < rows; at += vec.Lanes {
		var list [vec.Lanes][]byte
		n := min(vec.Lanes, rows-at)
		for i := range n {
			list[i] = raw[(at+i)*size:][:size]
		}
		panel := unsafe.Slice((*byte)(m.at(first+at/vec.Lanes)), m.panel)
		if unpack {
			vec.UnpackPanel(list[:n], m.format, m.in, panel)
		} else {
			vec.PackPanel(panel, m.format, m.in, list[:n])
		}
	}
}
