package ref

import (
	"fmt"

	"graft/kernels"
	"graft/kernels/quant"
)

// Backend computes every operation by the functions of this package on float32 storage. It is for
// one goroutine.
type Backend struct {
	err error // the first failure since the last Sync
}

var _ kernels.Backend = (*Backend)(nil)

// New makes a Backend.
func New() *Backend { return &Backend{} }

// Name implements kernels.Backend.
func (b *Backend) Name() string { return "ref" }

// fail keeps the first error for Sync.
func (b *Backend) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Sync implements kernels.Backend.
func (b *Backend) Sync() error {
	err := b.err
	b.err = nil
	return err
}

// Close implements kernels.Backend.
func (b *Backend) Close() error { return nil }

// Alloc implements kernels.Backend with zeroed memory on Go's heap.
func (b *Backend) Alloc(bytes int64) (*kernels.Memory, error) {
	const most = 1 << 36 // far above any oracle's need, far below what would take the process down unsaid
	if bytes < 0 || bytes > most {
		return nil, fmt.Errorf("ref: alloc: %d bytes, want 0 to %d; use another backend for real models", bytes, int64(most))
	}
	words := kernels.NewHost(kernels.F64, 1, int((bytes+7)/8))
	return &kernels.Memory{Host: words.Mem.Host[:bytes], Bytes: bytes}, nil
}

// Free implements kernels.Backend: the memory must not be used afterwards.
func (b *Backend) Free(m *kernels.Memory) { m.Host, m.Bytes = nil, 0 }

// bytesOf is row i of any tensor as bytes.
func bytesOf(t kernels.Tensor, i int) []byte {
	size := t.DType.Size()
	from := t.Off + int64(i)*int64(t.Stride)*size
	return t.Mem.Host[from : from+int64(t.Cols)*size]
}

// Upload implements kernels.Backend: src holds the rows one after the other.
func (b *Backend) Upload(dst kernels.Tensor, src []byte) {
	for i := range dst.Rows {
		src = src[copy(bytesOf(dst, i), src):]
	}
}

// Download implements kernels.Backend: dst receives the rows one after the other.
func (b *Backend) Download(dst []byte, src kernels.Tensor) {
	for i := range src.Rows {
		dst = dst[copy(dst, bytesOf(src, i)):]
	}
}

// Zero implements kernels.Backend.
func (b *Backend) Zero(t kernels.Tensor) {
	for i := range t.Rows {
		clear(bytesOf(t, i))
	}
}

// Copy implements kernels.Backend.
func (b *Backend) Copy(dst, src kernels.Tensor) {
	for i := range dst.Rows {
		copy(bytesOf(dst, i), bytesOf(src, i))
	}
}

// Add implements kernels.Backend.
func (b *Backend) Add(y, x kernels.Tensor) { Add(matrix(y), matrix(x)) }

// Add is y += x.
func Add[T Float](y, x Matrix[T]) {
	for n := range y.Rows {
		yn, xn := y.Row(n), x.Row(n)
		for i := range yn {
			yn[i] += xn[i]
		}
	}
}

// PackedBytes implements kernels.Backend: raw rows, no padding.
func (b *Backend) PackedBytes(f quant.Format, out, in int) int64 {
	return int64(out) * int64(f.Bytes(in))
}

// Pack implements kernels.Backend.
func (b *Backend) Pack(w kernels.Weight, row int, raw []byte) {
	copy(packed(w)[int64(row)*int64(w.Format.Bytes(w.In)):], raw)
}

// Unpack implements kernels.Backend.
func (b *Backend) Unpack(raw []byte, w kernels.Weight, row int) {
	copy(raw, packed(w)[int64(row)*int64(w.Format.Bytes(w.In)):])
}
