package kernelstest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"

	"graft/kernels"
	"graft/kernels/quant"
)

// T is what a Lab needs of a test; *testing.T has it.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
	Cleanup(func())
}

const (
	// guardBytes is the width of the band before and after everything a Lab makes: wider than any
	// vector register, and a multiple of its size.
	guardBytes = 128
	// sentinel fills the bands, the gaps between strided rows, and outputs before they are written.
	// It is a NaN in float32 and in both its halves as float16, so that a read out of bounds that
	// counts poisons the result.
	sentinel = 0x7FD57FD5
)

// Lab makes tensors and weights on one backend from one seed, each between guard bands. Check finds
// writes outside of what an operation may change. Everything is freed when the test ends.
type Lab struct {
	B kernels.Backend
	R *rand.Rand

	t       T
	wide    bool // rows of dense tensors get margins
	cuts    []int
	spans   []*span
	reports []report
}

// span is one allocation and what its bytes were.
type span struct {
	mem      *kernels.Memory
	image    []byte
	writable []kernels.Tensor // what operations may change
}

// report is one named result of a scene.
type report struct {
	name   string
	values []float32
	grown  bool // a parameter gradient: += in ascending row order
}

// NewLab makes a Lab whose random numbers depend on the seed alone.
func NewLab(t T, b kernels.Backend, seed uint64) *Lab {
	return &Lab{B: b, R: rand.New(rand.NewPCG(seed, 0x67726166)), t: t}
}

// require ends the test unless ok.
func (l *Lab) require(ok bool, format string, args ...any) {
	if !ok {
		l.t.Helper()
		l.t.Errorf(format, args...)
		l.t.FailNow()
	}
}

// alloc gets guarded memory with size usable bytes at guardBytes.
func (l *Lab) alloc(size int64, inside bool) *span {
	l.t.Helper()
	size = (size + 3) &^ 3
	mem, err := l.B.Alloc(size + 2*guardBytes)
	l.require(err == nil, "kernelstest: alloc of %d bytes: %v", size, err)
	l.t.Cleanup(func() { l.B.Free(mem) })
	s := &span{mem: mem, image: make([]byte, size+2*guardBytes)}
	for i := 0; i < len(s.image); i += 4 {
		if inside || i < guardBytes || i >= guardBytes+int(size) {
			binary.LittleEndian.PutUint32(s.image[i:], sentinel)
		}
	}
	l.B.Upload(s.whole(), s.image)
	l.spans = append(l.spans, s)
	return s
}

func (s *span) whole() kernels.Tensor {
	n := len(s.image) / 4
	return kernels.Tensor{Mem: s.mem, DType: kernels.I32, Rows: 1, Cols: n, Stride: n}
}

// remember makes the present bytes of a tensor's memory the expected ones.
func (l *Lab) remember(t kernels.Tensor) {
	for _, s := range l.spans {
		if s.mem == t.Mem {
			l.B.Download(s.image, s.whole())
		}
	}
}

// tensor makes a tensor full of sentinels; margins surround its rows if the lab is wide.
func (l *Lab) tensor(d kernels.DType, rows, cols int, dense bool) kernels.Tensor {
	left, right := 0, 0
	if l.wide && !dense {
		left, right = 3, 6 // odd offsets: rows begin at no alignment but their own
	}
	stride := left + cols + right
	s := l.alloc(int64(rows)*int64(stride)*d.Size(), true)
	return kernels.Tensor{Mem: s.mem, Off: guardBytes + int64(left)*d.Size(), DType: d, Rows: rows, Cols: cols, Stride: stride}
}

// Output makes a float32 tensor for results; it holds NaNs until it is written.
func (l *Lab) Output(rows, cols int) kernels.Tensor {
	return l.Writable(l.tensor(kernels.F32, rows, cols, false))
}

// Scratch makes a contiguous float32 tensor that operations may use as they like.
func (l *Lab) Scratch(rows, cols int) kernels.Tensor {
	return l.Writable(l.tensor(kernels.F32, rows, cols, true))
}

// Writable lets operations change a tensor that was made as an input.
func (l *Lab) Writable(t kernels.Tensor) kernels.Tensor {
	for _, s := range l.spans {
		if s.mem == t.Mem {
			s.writable = append(s.writable, t)
		}
	}
	return t
}

// Floats makes a float32 tensor of the given values, row after row.
func (l *Lab) Floats(rows, cols int, values []float32) kernels.Tensor {
	return l.fill(l.tensor(kernels.F32, rows, cols, false), floatBytes(values))
}

// Ints makes a contiguous [rows, cols] int32 tensor.
func (l *Lab) Ints(rows, cols int, values []int32) kernels.Tensor {
	raw := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(raw[4*i:], uint32(v))
	}
	return l.fill(l.tensor(kernels.I32, rows, cols, true), raw)
}

func (l *Lab) fill(t kernels.Tensor, raw []byte) kernels.Tensor {
	if len(raw) > 0 {
		l.B.Upload(t, raw)
		l.remember(t)
	}
	return t
}

// Normal makes a tensor of normally distributed values.
func (l *Lab) Normal(rows, cols int, std float64) kernels.Tensor {
	return l.Floats(rows, cols, l.normals(rows*cols, std))
}

func (l *Lab) normals(n int, std float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(std * l.R.NormFloat64())
	}
	return v
}

// Read returns a tensor's values, row after row.
func (l *Lab) Read(t kernels.Tensor) []float32 {
	raw := make([]byte, 4*t.Len())
	if len(raw) > 0 {
		l.B.Download(raw, t)
	}
	return bytesFloat(raw)
}

// Report names a result for the suite to compare.
func (l *Lab) Report(name string, t kernels.Tensor) {
	l.reports = append(l.reports, report{name: name, values: l.Read(t)})
}

// ReportGrown names a parameter gradient: its bits must not depend on how the rows were split.
func (l *Lab) ReportGrown(name string, t kernels.Tensor) {
	l.reports = append(l.reports, report{name, l.Read(t), true})
}

// ReportWeight is ReportGrown of a packed F32 weight.
func (l *Lab) ReportWeight(name string, w kernels.Weight) {
	l.reports = append(l.reports, report{name, l.ReadWeight(w), true})
}

// part is a range of rows computed by one call.
type part struct{ from, to int }

// parts splits n rows as the suite asks: all at once, one by one, or in uneven pieces.
func (l *Lab) parts(n int) []part {
	if len(l.cuts) == 0 {
		return []part{{0, n}}
	}
	var list []part
	for from, i := 0, 0; from < n; i++ {
		to := min(n, from+l.cuts[i%len(l.cuts)])
		list = append(list, part{from, to})
		from = to
	}
	return list
}

// Check fails the test if anything changed that should not have, or if the backend failed.
func (l *Lab) Check() {
	l.t.Helper()
	err := l.B.Sync()
	l.require(err == nil, "%s: Sync: %v", l.B.Name(), err)
	for i, s := range l.spans {
		now := make([]byte, len(s.image))
		l.B.Download(now, s.whole())
		for _, w := range s.writable {
			for r := range w.Rows {
				from := w.Off + int64(r)*int64(w.Stride)*w.DType.Size()
				to := from + int64(w.Cols)*w.DType.Size()
				copy(now[from:to], s.image[from:to])
			}
		}
		if j := firstDifference(now, s.image); j < len(now) {
			l.require(false, "%s: allocation %d of the scene (%d bytes): byte %d was changed and is no output",
				l.B.Name(), i, len(now)-2*guardBytes, j-guardBytes)
		}
	}
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return len(a)
	}
	i := 0
	for a[i] == b[i] {
		i++
	}
	return i
}

// Weight makes a packed weight of random values with about the given standard deviation.
func (l *Lab) Weight(f quant.Format, out, in int, std float64) kernels.Weight {
	return l.Packed(f, out, in, RandomRaw(l.R, f, out*in, std))
}

// Packed packs raw rows of the file's block layout.
func (l *Lab) Packed(f quant.Format, out, in int, raw []byte) kernels.Weight {
	w := l.newWeight(f, out, in)
	l.B.Pack(w, 0, raw)
	l.remember(kernels.Tensor{Mem: w.Mem})
	return w
}

// FloatWeight packs F32 rows.
func (l *Lab) FloatWeight(out, in int, values []float32) kernels.Weight {
	return l.Packed(quant.F32, out, in, floatBytes(values))
}

func (l *Lab) newWeight(f quant.Format, out, in int) kernels.Weight {
	n := l.B.PackedBytes(f, out, in)
	return kernels.Weight{Mem: l.alloc(n, false).mem, Off: guardBytes, Bytes: n, Format: f, Out: out, In: in}
}

// Gradient makes a packed F32 weight of small values for operations to add to.
func (l *Lab) Gradient(out, in int) kernels.Weight {
	w := l.FloatWeight(out, in, l.normals(out*in, 0.1))
	l.Writable(w.Flat())
	return w
}

// ReadWeight unpacks and decodes a weight, row after row.
func (l *Lab) ReadWeight(w kernels.Weight) []float32 {
	raw := make([]byte, w.Out*w.Format.Bytes(w.In))
	l.B.Unpack(raw, w, 0)
	values := make([]float32, w.Out*w.In)
	quant.Decode(values, w.Format, raw)
	return values
}

func floatBytes(values []float32) []byte {
	raw := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
	}
	return raw
}

func bytesFloat(raw []byte) []float32 {
	values := make([]float32, len(raw)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return values
}
