package ref

import "graft/kernels"

// Embed implements kernels.Backend.
func (b *Backend) Embed(y kernels.Tensor, w kernels.Weight, ids kernels.Tensor, scale float32) {
	Embed(matrix(y), weights(w), ids.I32(), float64(scale))
}

// EmbedBackward implements kernels.Backend.
func (b *Backend) EmbedBackward(dw kernels.Weight, dy, ids kernels.Tensor, scale float32) {
	EmbedBackward(weights(dw), matrix(dy), ids.I32(), float64(scale))
}

// Gather implements kernels.Backend.
func (b *Backend) Gather(y, x, rows kernels.Tensor) {
	for i, n := range rows.I32() {
		copy(y.Row(i), x.Row(int(n)))
	}
}

// ScatterAdd implements kernels.Backend.
func (b *Backend) ScatterAdd(y, x, rows kernels.Tensor) {
	for i, n := range rows.I32() {
		Add(matrix(y.Slice(int(n), int(n)+1)), matrix(x.Slice(i, i+1)))
	}
}

// Embed is y[n] = scale·w[ids[n]].
func Embed[T Float](y, w Matrix[T], ids []int32, scale float64) {
	for n := range y.Rows {
		wn := w.Row(int(ids[n]))
		for i := range y.Row(n) {
			y.Row(n)[i] = T(scale * float64(wn[i]))
		}
	}
}

// EmbedBackward is dw[ids[n]] += scale·dy[n], rows in ascending order.
func EmbedBackward[T Float](dw, dy Matrix[T], ids []int32, scale float64) {
	for n := range dy.Rows {
		for i, d := range dy.Row(n) {
			grow(&dw.Row(int(ids[n]))[i], float64(scale*float64(d)))
		}
	}
}
