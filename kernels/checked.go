package kernels

import (
	"fmt"
	"math"

	"graft/kernels/quant"
)

// Checked wraps a backend so that every call's shapes, types, memory bounds and, where they lie on
// the host, ids, positions, slots and page tables are checked before the backend sees them. A
// violation is a bug of the caller: it panics with the operation, the operand and what was wanted,
// as in "kernels: MatMul: x is [3 64], w wants 128". Checks cost a few comparisons an operand, a pass
// over the integers, and no allocation.
func Checked(b Backend) Backend { return &checked{b} }

// checked is the wrapper; operations that move or allocate bytes only are in this file, those that
// compute in checked_ops.go.
type checked struct{ b Backend }

// wrong panics: op's operand is not as it must be.
func wrong(op, format string, args ...any) {
	panic("kernels: " + op + ": " + fmt.Sprintf(format, args...))
}

// inMemory checks that a tensor is of a type and lies inside its memory.
func inMemory(op, name string, t *Tensor, d DType) {
	if t.Mem == nil {
		wrong(op, "%s is absent", name)
	}
	if t.DType != d {
		wrong(op, "%s is %v, want %v", name, t.DType, d)
	}
	size := d.Size()
	if t.Rows < 0 || t.Cols < 0 || t.Stride < t.Cols && t.Rows > 1 || t.Off < 0 || t.Off%size != 0 {
		wrong(op, "%s is [%d %d] with stride %d at byte %d", name, t.Rows, t.Cols, t.Stride, t.Off)
	}
	if t.Rows > 0 && t.Cols > 0 && t.Off+((int64(t.Rows)-1)*int64(t.Stride)+int64(t.Cols))*size > t.Mem.Bytes {
		wrong(op, "%s, [%d %d] with stride %d at byte %d, passes the end of its %d bytes", name, t.Rows, t.Cols, t.Stride, t.Off, t.Mem.Bytes)
	}
}

// shape checks a float32 tensor of the given shape.
func shape(op, name string, t *Tensor, rows, cols int) {
	inMemory(op, name, t, F32)
	if t.Rows != rows || t.Cols != cols {
		wrong(op, "%s is [%d %d], want [%d %d]", name, t.Rows, t.Cols, rows, cols)
	}
}

// optional is shape for an operand that may be absent.
func optional(op, name string, t *Tensor, rows, cols int) {
	if t.Mem != nil {
		shape(op, name, t, rows, cols)
	}
}

// ints checks an I32 [1, n] tensor of values in [0, limit); values on a device are not looked at.
func ints(op, name string, t *Tensor, n, limit int) {
	inMemory(op, name, t, I32)
	if t.Rows != 1 || t.Cols != n {
		wrong(op, "%s is [%d %d], want [1 %d]", name, t.Rows, t.Cols, n)
	}
	if t.Mem.Host == nil {
		return
	}
	for i, v := range t.I32() {
		if v < 0 || int(v) >= limit {
			wrong(op, "%s[%d] is %d, want 0 to %d", name, i, v, limit-1)
		}
	}
}

// flat checks a contiguous F32 tensor of at least n elements.
func flat(op, name string, t *Tensor, n int) {
	inMemory(op, name, t, F32)
	if !t.Contiguous() {
		wrong(op, "%s has stride %d for %d columns, want them equal", name, t.Stride, t.Cols)
	}
	if t.Len() < n {
		wrong(op, "%s holds %d floats, want %d", name, t.Len(), n)
	}
}

// weight checks a packed weight's shape, size and bounds.
func (c *checked) weight(op, name string, w *Weight, out, in int) {
	if w.Mem == nil {
		wrong(op, "%s is absent", name)
	}
	if w.Out != out || w.In != in {
		wrong(op, "%s is [%d %d], want [%d %d]", name, w.Out, w.In, out, in)
	}
	if w.Out < 1 || w.In < 1 || w.In%w.Format.BlockLen() != 0 {
		wrong(op, "%s is [%d %d] in %v, whose blocks hold %d", name, w.Out, w.In, w.Format, w.Format.BlockLen())
	}
	if want := c.b.PackedBytes(w.Format, out, in); w.Bytes != want {
		wrong(op, "%s has %d bytes, %s packs [%d %d] in %d", name, w.Bytes, c.b.Name(), out, in, want)
	}
	if w.Off < 0 || w.Off%4 != 0 || w.Off+w.Bytes > w.Mem.Bytes {
		wrong(op, "%s, %d bytes at byte %d, passes the end of its %d bytes", name, w.Bytes, w.Off, w.Mem.Bytes)
	}
}

// trained is weight for a packed F32 weight or gradient.
func (c *checked) trained(op, name string, w *Weight, out, in int) {
	c.weight(op, name, w, out, in)
	if w.Format != quant.F32 {
		wrong(op, "%s is %v, want F32", name, w.Format)
	}
}

// positive checks a number that divides or scales.
func positive(op, name string, v float64) {
	if !(v > 0) || math.IsInf(v, 0) {
		wrong(op, "%s is %v, want a positive number", name, v)
	}
}

// notNegative checks a number for which 0 means off.
func notNegative(op, name string, v float64) {
	if !(v >= 0) || math.IsInf(v, 0) {
		wrong(op, "%s is %v, want 0 or more", name, v)
	}
}

func (c *checked) Name() string                       { return c.b.Name() }
func (c *checked) Alloc(bytes int64) (*Memory, error) { return c.b.Alloc(bytes) }
func (c *checked) Free(m *Memory)                     { c.b.Free(m) }
func (c *checked) Sync() error                        { return c.b.Sync() }
func (c *checked) Close() error                       { return c.b.Close() }

func (c *checked) PackedBytes(f quant.Format, out, in int) int64 {
	if out < 0 || in < 0 || in%f.BlockLen() != 0 {
		wrong("PackedBytes", "[%d %d] in %v, whose blocks hold %d", out, in, f, f.BlockLen())
	}
	return c.b.PackedBytes(f, out, in)
}

func (c *checked) Upload(dst Tensor, src []byte) {
	inMemory("Upload", "dst", &dst, dst.DType)
	if want := int64(dst.Len()) * dst.DType.Size(); int64(len(src)) != want {
		wrong("Upload", "src has %d bytes, dst [%d %d] %v wants %d", len(src), dst.Rows, dst.Cols, dst.DType, want)
	}
	c.b.Upload(dst, src)
}

func (c *checked) Download(dst []byte, src Tensor) {
	inMemory("Download", "src", &src, src.DType)
	if want := int64(src.Len()) * src.DType.Size(); int64(len(dst)) != want {
		wrong("Download", "dst has %d bytes, src [%d %d] %v has %d", len(dst), src.Rows, src.Cols, src.DType, want)
	}
	c.b.Download(dst, src)
}

func (c *checked) Zero(t Tensor) {
	inMemory("Zero", "t", &t, t.DType)
	c.b.Zero(t)
}

func (c *checked) Copy(dst, src Tensor) {
	inMemory("Copy", "src", &src, src.DType)
	inMemory("Copy", "dst", &dst, src.DType)
	if dst.Rows != src.Rows || dst.Cols != src.Cols {
		wrong("Copy", "dst is [%d %d], src is [%d %d]", dst.Rows, dst.Cols, src.Rows, src.Cols)
	}
	c.b.Copy(dst, src)
}

func (c *checked) Add(y, x Tensor) {
	inMemory("Add", "x", &x, F32)
	shape("Add", "y", &y, x.Rows, x.Cols)
	c.b.Add(y, x)
}

func (c *checked) Pack(w Weight, row int, raw []byte) {
	c.packed("Pack", &w, row, len(raw))
	c.b.Pack(w, row, raw)
}

func (c *checked) Unpack(raw []byte, w Weight, row int) {
	c.packed("Unpack", &w, row, len(raw))
	c.b.Unpack(raw, w, row)
}

// packed checks that raw bytes are whole rows, a multiple of 16 of them or the weight's last.
func (c *checked) packed(op string, w *Weight, row, bytes int) {
	c.weight(op, "w", w, w.Out, w.In)
	size := w.Format.Bytes(w.In)
	rows := bytes / size
	if bytes%size != 0 || row < 0 || row%16 != 0 || row+rows > w.Out || rows%16 != 0 && row+rows != w.Out {
		wrong(op, "%d bytes at row %d of [%d %d] %v, want whole rows of %d, 16 at a time", bytes, row, w.Out, w.In, w.Format, size)
	}
}

func (c *checked) SumSquares(x Tensor) float64 {
	flat("SumSquares", "x", &x, 0)
	return c.b.SumSquares(x)
}

func (c *checked) AdamW(p, g, m, v Tensor, s AdamWStep) {
	const op = "AdamW"
	flat(op, "p", &p, 0)
	for _, t := range [...]*Tensor{&g, &m, &v} {
		flat(op, "gradient or moment", t, 0)
		if t.Len() != p.Len() {
			wrong(op, "gradient or moment holds %d floats, p has %d", t.Len(), p.Len())
		}
	}
	if s.T < 1 {
		wrong(op, "T is %d, want 1 or more", s.T)
	}
	for _, beta := range [...]float64{s.Beta1, s.Beta2} {
		if !(beta >= 0 && beta < 1) {
			wrong(op, "beta is %v, want 0 to 1", beta)
		}
	}
	notNegative(op, "Eps", s.Eps)
	notNegative(op, "WeightDecay", s.WeightDecay)
	c.b.AdamW(p, g, m, v, s)
}
