package weights

import (
	"fmt"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/weights/gguf"
	"graft/weights/safetensors"
)

// Source reads matrices row by row from a model file, whatever its format, so that packing never
// holds a second copy.
type Source interface {
	// Shape is the format and size of a tensor; vectors have one row. ok tells whether it exists.
	Shape(name string) (f quant.Format, rows, cols int, ok bool, err error)
	// Rows reads n raw rows into dst (n·f.Bytes(cols) bytes).
	Rows(name string, row, n int, dst []byte) error
	// Names lists all tensors.
	Names() []string
}

// GGUFSource reads from a GGUF file.
type GGUFSource struct{ File *gguf.File }

// Names lists the tensors in file order.
func (s GGUFSource) Names() []string {
	out := make([]string, len(s.File.Tensors))
	for i := range s.File.Tensors {
		out[i] = s.File.Tensors[i].Name
	}
	return out
}

// Shape reverses GGUF's order of dimensions.
func (s GGUFSource) Shape(name string) (quant.Format, int, int, bool, error) {
	t, ok := s.File.Tensor(name)
	if !ok {
		return 0, 0, 0, false, nil
	}
	rows, cols, err := matrix(name, t.Shape())
	return t.Format, rows, cols, true, err
}

// Rows reads raw rows.
func (s GGUFSource) Rows(name string, row, n int, dst []byte) error {
	t, ok := s.File.Tensor(name)
	if !ok {
		return fmt.Errorf("weights: tensor %q is missing", name)
	}
	shape := t.Shape()
	return s.File.ReadAt(t, dst, int64(row)*int64(t.Format.Bytes(shape[len(shape)-1])))
}

// SafetensorsSource reads from safetensors files.
type SafetensorsSource struct{ File *safetensors.File }

// Names lists the tensors.
func (s SafetensorsSource) Names() []string {
	out := make([]string, len(s.File.Tensors))
	for i := range s.File.Tensors {
		out[i] = s.File.Tensors[i].Name
	}
	return out
}

// Shape gives the size; dtypes that are not plain floats are refused.
func (s SafetensorsSource) Shape(name string) (quant.Format, int, int, bool, error) {
	t, ok := s.File.Tensor(name)
	if !ok {
		return 0, 0, 0, false, nil
	}
	f, ok := quant.ParseFormat(t.DType.String())
	if !ok || f.BlockLen() != 1 {
		return 0, 0, 0, true, fmt.Errorf("weights: tensor %q has dtype %s; Graft reads F32, F16 and BF16", name, t.DType)
	}
	rows, cols, err := matrix(name, t.Shape)
	return f, rows, cols, true, err
}

// Rows reads raw rows.
func (s SafetensorsSource) Rows(name string, row, n int, dst []byte) error {
	t, ok := s.File.Tensor(name)
	if !ok {
		return fmt.Errorf("weights: tensor %q is missing", name)
	}
	return s.File.ReadAt(t, dst, int64(row)*(int64(len(dst))/int64(max(1, n))))
}

func matrix(name string, shape []int) (rows, cols int, err error) {
	switch len(shape) {
	case 1:
		return 1, shape[0], nil
	case 2:
		return shape[0], shape[1], nil
	}
	return 0, 0, fmt.Errorf("weights: tensor %q has %d dimensions, want 1 or 2", name, len(shape))
}

// Loader reads a model's tensors into an arena. Calls to Vector and Matrix queue work; Wait does it and
// returns the first error.
type Loader struct {
	Arena  *Arena
	Source Source
	// Format, if not nil, is what matrices are stored as, whatever the file holds.
	Format *quant.Format
	// Trained gives every tensor a gradient and stores matrices as F32.
	Trained bool
	// Precision is the contract of products with the matrices that are stored in blocks. Plain floats,
	// and so everything that is trained, keep kernels.PrecisionF32.
	Precision kernels.Precision

	vectors  []func() error
	matrices []matrixLoad
}

// matrixLoad is a matrix that is to be read.
type matrixLoad struct {
	name string
	file quant.Format // what the file holds
	to   kernels.Weight
}

// Matrix queues the reading of a [rows, cols] matrix and returns where it will lie.
func (l *Loader) Matrix(name string, rows, cols int) (w, dw kernels.Weight, err error) {
	f, r, c, ok, err := l.Source.Shape(name)
	switch {
	case err != nil:
		return w, dw, err
	case !ok:
		return w, dw, fmt.Errorf("weights: tensor %q is missing from the model file", name)
	case r != rows || c != cols:
		return w, dw, fmt.Errorf("weights: tensor %q is [%d %d], its configuration wants [%d %d]", name, r, c, rows, cols)
	}
	to := l.Stored(f, cols)
	if w, err = l.Arena.Weight("weights", to, rows, cols); err != nil {
		return w, dw, err
	}
	if l.Trained {
		if dw, err = l.Arena.Weight("gradients", to, rows, cols); err != nil {
			return w, dw, err
		}
	}
	if to.BlockLen() > 1 {
		w.Precision = l.Precision
	}
	l.matrices = append(l.matrices, matrixLoad{name, f, w})
	return w, dw, nil
}

// Stored is the format in which a matrix of a file's format, with so many columns, will lie.
func (l *Loader) Stored(f quant.Format, cols int) quant.Format {
	switch {
	case l.Trained:
		return quant.F32
	case l.Format != nil && cols%l.Format.BlockLen() == 0:
		return *l.Format
	}
	return f
}

// read writes rows of matrix i, from row on, to dst, in the format in which they are stored.
func (l *Loader) read(i int, dst []byte, row int) error {
	m := &l.matrices[i]
	n := len(dst) / m.to.Format.Bytes(m.to.In)
	raw := dst
	if m.file != m.to.Format {
		raw = make([]byte, n*m.file.Bytes(m.to.In))
	}
	if err := l.Source.Rows(m.name, row, n, raw); err != nil {
		return fmt.Errorf("weights: tensor %q, row %d: %w", m.name, row, err)
	}
	if m.file != m.to.Format {
		floats := make([]float32, n*m.to.In)
		quant.Decode(floats, m.file, raw)
		quant.Encode(dst, m.to.Format, floats)
	}
	return nil
}

// Vector queues the reading of a float32 vector; plusOne adds 1 to every entry.
func (l *Loader) Vector(name string, n int, plusOne bool) (t, dt kernels.Tensor, err error) {
	f, r, c, ok, err := l.Source.Shape(name)
	switch {
	case err != nil:
		return t, dt, err
	case !ok:
		return t, dt, fmt.Errorf("weights: tensor %q is missing from the model file", name)
	case r*c != n || f.BlockLen() != 1:
		return t, dt, fmt.Errorf("weights: tensor %q is %s [%d], want %d plain floats", name, f, r*c, n)
	}
	if t, err = l.Arena.Tensor("weights", kernels.F32, 1, n); err != nil {
		return t, dt, err
	}
	if l.Trained {
		if dt, err = l.Arena.Tensor("gradients", kernels.F32, 1, n); err != nil {
			return t, dt, err
		}
	}
	l.vectors = append(l.vectors, func() error {
		floats, err := ReadVector(l.Source, name)
		if err != nil {
			return err
		}
		if plusOne {
			for i := range floats {
				floats[i]++
			}
		}
		raw := make([]byte, 4*n)
		quant.Encode(raw, quant.F32, floats)
		l.Arena.Backend().Upload(t, raw)
		return nil
	})
	return t, dt, nil
}

// Has tells whether the file holds a tensor.
func (l *Loader) Has(name string) bool {
	_, _, _, ok, _ := l.Source.Shape(name)
	return ok
}

// ReadVector reads and decodes a whole small tensor.
func ReadVector(s Source, name string) ([]float32, error) {
	f, rows, cols, ok, err := s.Shape(name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("weights: tensor %q is missing from the model file", name)
	}
	raw := make([]byte, f.Bytes(rows*cols))
	if err := s.Rows(name, 0, rows, raw); err != nil {
		return nil, err
	}
	out := make([]float32, rows*cols)
	quant.Decode(out, f, raw)
	return out, nil
}

// filler is a backend that reads and packs on all its workers at once.
type filler interface {
	Fill(ws []kernels.Weight, read func(i int, dst []byte, row int) error) error
}

// loadBytes is about how much of a matrix is read at a time for a backend that is no filler.
const loadBytes = 1 << 20

// Wait does the queued reads and returns the first error.
func (l *Loader) Wait() error {
	defer func() { l.vectors, l.matrices = nil, nil }()
	for _, read := range l.vectors {
		if err := read(); err != nil {
			return err
		}
	}
	ws := make([]kernels.Weight, len(l.matrices))
	for i := range ws {
		ws[i] = l.matrices[i].to
	}
	fill := l.fill
	if b, ok := l.Arena.Backend().(filler); ok {
		fill = b.Fill
	}
	if err := fill(ws, l.read); err != nil {
		return err
	}
	return l.Arena.Backend().Sync()
}

// fill is filler's Fill for any backend.
func (l *Loader) fill(ws []kernels.Weight, read func(i int, dst []byte, row int) error) error {
	for i, w := range ws {
		size := w.Format.Bytes(w.In)
		step := max(1, loadBytes/size/16) * 16
		buf := make([]byte, min(step, w.Out)*size)
		for row := 0; row < w.Out; row += step {
			raw := buf[:min(step, w.Out-row)*size]
			if err := read(i, raw, row); err != nil {
				return err
			}
			l.Arena.Backend().Pack(w, row, raw)
		}
	}
	return nil
}
