// Package kernels names the operations a language model needs to be sampled and trained, and the
// values they work on. It holds no implementation: kernels/ref is the specification in float64,
// kernels/cpu the fast one. A backend may fuse inside an operation, never across two.
//
// The package knows shapes and formats; it may not know models, files, schedules or losses. The
// bytes behind a Tensor belong to whoever allocated them (weights.Arena), never to a backend.
//
// Letters: N rows (tokens), C channels of the residual stream, H query heads, G key/value heads,
// D head dimension, F feed-forward width, V vocabulary, R low rank, P (row, target) pairs.
package kernels

import (
	"fmt"
	"unsafe"
)

// DType is the element type of a dense Tensor. Weights carry a quant.Format instead.
type DType uint8

// The element types.
const (
	F32 DType = iota
	I32
	F64
)

// Size is the number of bytes of one element.
func (d DType) Size() int64 {
	if d == F64 {
		return 8
	}
	return 4
}

func (d DType) String() string {
	switch d {
	case F32:
		return "F32"
	case I32:
		return "I32"
	case F64:
		return "F64"
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Memory is one allocation of a backend. Host is nil when the bytes live on a device.
type Memory struct {
	Host   []byte
	Device uintptr
	Bytes  int64
}

// Tensor is a matrix of rows in some Memory: element (i, j) lies Off + (i*Stride+j)*size bytes in.
// The zero Tensor means "absent".
type Tensor struct {
	Mem    *Memory
	Off    int64 // bytes
	DType  DType
	Rows   int
	Cols   int
	Stride int // elements from one row to the next, at least Cols
}

// Present tells whether the tensor stands for any bytes at all.
func (t Tensor) Present() bool { return t.Mem != nil }

// Len is Rows·Cols.
func (t Tensor) Len() int { return t.Rows * t.Cols }

// Contiguous tells whether the rows follow each other without a gap.
func (t Tensor) Contiguous() bool { return t.Stride == t.Cols || t.Rows <= 1 }

// Slice returns rows [from, to).
func (t Tensor) Slice(from, to int) Tensor {
	if from < 0 || to < from || to > t.Rows {
		panic(fmt.Sprintf("kernels: Slice: rows [%d, %d) of %d", from, to, t.Rows))
	}
	t.Off += int64(from) * int64(t.Stride) * t.DType.Size()
	t.Rows = to - from
	return t
}

// Columns returns columns [from, to) of every row; the stride stays.
func (t Tensor) Columns(from, to int) Tensor {
	if from < 0 || to < from || to > t.Cols {
		panic(fmt.Sprintf("kernels: Columns: [%d, %d) of %d", from, to, t.Cols))
	}
	t.Off += int64(from) * t.DType.Size()
	t.Cols = to - from
	return t
}

// Reshape views a contiguous tensor as [rows, cols]; rows·cols must not exceed what it has.
func (t Tensor) Reshape(rows, cols int) Tensor {
	if !t.Contiguous() || rows*cols > t.Len() {
		panic(fmt.Sprintf("kernels: Reshape: [%d %d] (stride %d) as [%d %d]", t.Rows, t.Cols, t.Stride, rows, cols))
	}
	t.Rows, t.Cols, t.Stride = rows, cols, cols
	return t
}

func (t Tensor) span() int64 {
	if t.Rows == 0 || t.Cols == 0 {
		return 0
	}
	return int64((t.Rows-1)*t.Stride + t.Cols)
}

func view[T any](t Tensor, want DType) []T {
	n := t.span()
	if n == 0 {
		return nil
	}
	if t.DType != want || t.Mem == nil || t.Mem.Host == nil {
		panic(fmt.Sprintf("kernels: %s view of a %s tensor (host %t)", want, t.DType, t.Mem != nil && t.Mem.Host != nil))
	}
	_ = t.Mem.Host[t.Off+n*want.Size()-1]
	return unsafe.Slice((*T)(unsafe.Pointer(&t.Mem.Host[t.Off])), n)
}

// F32 is the host view of a float32 tensor, from its first to its last element: row i begins at
// index i*Stride.
func (t Tensor) F32() []float32 { return view[float32](t, F32) }

// I32 is the host view of an int32 tensor.
func (t Tensor) I32() []int32 { return view[int32](t, I32) }

// F64 is the host view of a float64 tensor.
func (t Tensor) F64() []float64 { return view[float64](t, F64) }

// Row is the host view of one float32 row.
func (t Tensor) Row(i int) []float32 { return t.Slice(i, i+1).F32() }

// Floats makes a tensor on the Go heap around the given values: for tests and small constants.
func Floats(rows, cols int, values []float32) Tensor {
	t := NewHost(F32, rows, cols)
	copy(t.F32(), values)
	return t
}

// Ints makes a [1, len] int32 tensor on the Go heap.
func Ints(values []int32) Tensor {
	t := NewHost(I32, 1, len(values))
	copy(t.I32(), values)
	return t
}

// NewHost makes a zero tensor on the Go heap: for tests and small constants; the model's own
// bytes come from weights.Arena.
func NewHost(d DType, rows, cols int) Tensor {
	n := int64(rows) * int64(cols) * d.Size()
	words := make([]uint64, (n+7)/8+1)
	host := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	return Tensor{Mem: &Memory{Host: host, Bytes: n}, DType: d, Rows: rows, Cols: cols, Stride: cols}
}
