package rl

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"graft/kernels"
	"graft/model"
	"graft/weights"
	"graft/weights/safetensors"
)

// Number is a float64 that JSON carries exactly, NaN and infinities included.
type Number float64

// MarshalJSON writes the shortest text that reads back to the same bits.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return json.Marshal(fmt.Sprint(f))
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (n *Number) UnmarshalJSON(raw []byte) error {
	switch string(raw) {
	case `"NaN"`:
		*n = Number(math.NaN())
	case `"+Inf"`:
		*n = Number(math.Inf(1))
	case `"-Inf"`:
		*n = Number(math.Inf(-1))
	default:
		return json.Unmarshal(raw, (*float64)(n))
	}
	return nil
}

const (
	adapterPart   = "adapter"
	trainedPart   = "trained.safetensors"
	optimizerPart = "optimizer.bin"
)

// Part is the policy's part of a checkpoint: the adapter as PEFT reads it, or every trained
// parameter of the base.
func (p *Policy) Part() CheckpointPart {
	if p.Adapter != nil {
		return CheckpointPart{adapterPart, func(path string) error { return p.Model.SavePEFT(p.Adapter, path) }}
	}
	return CheckpointPart{trainedPart, func(path string) error { return writeTrained(path, p.Model.Backend(), p.Trained()) }}
}

// OptimizerPart is an optimizer's part of a checkpoint.
func OptimizerPart(o interface{ Export(io.Writer) error }) CheckpointPart {
	return CheckpointPart{optimizerPart, func(path string) error {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		w := bufio.NewWriterSize(f, 1<<20)
		return errors.Join(o.Export(w), w.Flush(), f.Close())
	}}
}

// LayoutOf names the order in which a backend keeps parameters and moments: the same on every
// machine, but not between kinds of backend.
func LayoutOf(b kernels.Backend) string {
	name, _, _ := strings.Cut(b.Name(), " ")
	return name
}

// LoadOptimizer reads the moments back.
func (c *Checkpoint) LoadOptimizer(o interface{ Import(io.Reader) error }) error {
	f, err := os.Open(filepath.Join(c.Path, optimizerPart))
	if err != nil {
		return fmt.Errorf("rl: %w", err)
	}
	defer f.Close()
	if err := o.Import(bufio.NewReaderSize(f, 1<<20)); err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	return nil
}

// HasAdapter tells an adapter's checkpoint from one of full fine-tuning.
func (c *Checkpoint) HasAdapter() bool {
	_, err := os.Stat(filepath.Join(c.Path, adapterPart))
	return err == nil
}

// LoadAdapter reads the adapter back, ready to be trained on, with the version it had.
func (c *Checkpoint) LoadAdapter(m *model.Model, id uint64) (*weights.Adapter, error) {
	ad, err := m.LoadAdapter(filepath.Join(c.Path, adapterPart), id, true)
	if err != nil {
		return nil, err
	}
	ad.Version = c.State.Version
	return ad, nil
}

// LoadTrained reads the parameters of full fine-tuning back into the model, and its version.
func (c *Checkpoint) LoadTrained(m *model.Model) error {
	if err := readTrained(filepath.Join(c.Path, trainedPart), m.Backend(), m.Trained); err != nil {
		return fmt.Errorf("rl: %s: %w", c.Path, err)
	}
	m.Version = c.State.Version
	return nil
}

// chunk is how many floats are moved at a time.
const chunk = 1 << 18

// pieces calls f with consecutive pieces of a flat tensor.
func pieces(t kernels.Tensor, f func(t kernels.Tensor, first int) error) error {
	for first := 0; first < t.Cols; first += chunk {
		n := min(chunk, t.Cols-first)
		part := kernels.Tensor{Mem: t.Mem, Off: t.Off + 4*int64(first), DType: t.DType, Rows: 1, Cols: n, Stride: n}
		if err := f(part, first); err != nil {
			return err
		}
	}
	return nil
}

// writeTrained writes parameters flat, in the order the backend keeps them.
func writeTrained(path string, be kernels.Backend, params []weights.Param) error {
	var tensors []safetensors.TensorData
	for _, p := range params {
		tensors = append(tensors, safetensors.TensorData{Name: p.Name, DType: safetensors.F32, Shape: []int{p.Value.Cols}, WriteTo: func(w io.Writer) error {
			buf := make([]byte, 4*min(chunk, p.Value.Cols))
			return pieces(p.Value, func(t kernels.Tensor, _ int) error {
				be.Download(buf[:4*t.Cols], t)
				if err := be.Sync(); err != nil {
					return err
				}
				_, err := w.Write(buf[:4*t.Cols])
				return err
			})
		}})
	}
	return safetensors.WriteFile(path, tensors, map[string]string{"format": "pt", "layout": LayoutOf(be)})
}

// readTrained checks all shapes before it changes a parameter.
func readTrained(path string, be kernels.Backend, params []weights.Param) error {
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	found := make([]*safetensors.Tensor, len(params))
	for i, p := range params {
		t, ok := f.Tensor(p.Name)
		switch {
		case !ok:
			return fmt.Errorf("the checkpoint lacks parameter %q", p.Name)
		case t.DType != safetensors.F32 || !slices.Equal(t.Shape, []int{p.Value.Cols}):
			return fmt.Errorf("parameter %q is %v %v in the checkpoint, the model has %d floats", p.Name, t.DType, t.Shape, p.Value.Cols)
		}
		found[i] = t
	}
	for i, p := range params {
		buf := make([]byte, 4*min(chunk, p.Value.Cols))
		err := pieces(p.Value, func(t kernels.Tensor, first int) error {
			if err := f.ReadAt(found[i], buf[:4*t.Cols], 4*int64(first)); err != nil {
				return err
			}
			be.Upload(t, buf[:4*t.Cols])
			return be.Sync()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Precision is the contract that the run computes under.
func (c *Checkpoint) Precision() (kernels.Precision, error) {
	name := c.State.Precision
	if name == "" {
		return kernels.PrecisionF32, nil
	}
	p, ok := kernels.ParsePrecision(name)
	if !ok {
		return 0, fmt.Errorf("rl: %s was trained under precision %.40q, which this version does not know", c.Path, name)
	}
	return p, nil
}

// CheckResume refuses to go on under circumstances that would give another result than the run
// that was interrupted, and lists each.
func (c *Checkpoint) CheckResume(base, layout string, precision kernels.Precision, options map[string]string) error {
	s := &c.State
	var differ []string
	if s.Base != base {
		differ = append(differ, fmt.Sprintf("base model: the checkpoint was trained on %.12s…, this one is %.12s…", s.Base, base))
	}
	if s.Layout != layout {
		differ = append(differ, fmt.Sprintf("backend: %s in the checkpoint, %s now", s.Layout, layout))
	}
	if was, err := c.Precision(); err != nil {
		return err
	} else if was != precision {
		differ = append(differ, fmt.Sprintf("precision: %s in the checkpoint, %s now", was, precision))
	}
	names := map[string]bool{}
	for n := range s.Options {
		names[n] = true
	}
	for n := range options {
		names[n] = true
	}
	sorted := make([]string, 0, len(names))
	for n := range names {
		sorted = append(sorted, n)
	}
	sort.Strings(sorted)
	for _, n := range sorted {
		was, had := s.Options[n]
		is, has := options[n]
		switch {
		case !had:
			differ = append(differ, fmt.Sprintf("%s: not set in the checkpoint, %s now", n, is))
		case !has:
			differ = append(differ, fmt.Sprintf("%s: %s in the checkpoint, not set now", n, was))
		case was != is:
			differ = append(differ, fmt.Sprintf("%s: %s in the checkpoint, %s now", n, was, is))
		}
	}
	if differ != nil {
		return fmt.Errorf("rl: resuming %s would not continue the same run:\n  %s\nuse the same values, or start a new run from its adapter", c.Path, strings.Join(differ, "\n  "))
	}
	return nil
}

// Fingerprint identifies model files by their content wherever they lie: sizes, and all bytes of
// files up to 64 MiB; of larger ones the first and last MiB and 64 pieces spread in between.
func Fingerprint(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("rl: %w", err)
	}
	files := []string{path}
	if info.IsDir() {
		files = nil
		entries, err := os.ReadDir(path)
		if err != nil {
			return "", fmt.Errorf("rl: %w", err)
		}
		for _, e := range entries {
			switch name := e.Name(); {
			case e.IsDir():
			case strings.HasSuffix(name, ".safetensors"), name == "config.json", name == "tokenizer.json":
				files = append(files, filepath.Join(path, name))
			}
		}
		if files == nil {
			return "", fmt.Errorf("rl: %s holds no model files", path)
		}
	}
	h := sha256.New()
	for _, f := range files {
		if info.IsDir() {
			fmt.Fprintf(h, "%s\x00", filepath.Base(f))
		}
		if err := sample(h, f); err != nil {
			return "", fmt.Errorf("rl: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// FingerprintBytes is the fingerprint of a model that is not a file.
func FingerprintBytes(raw []byte) string {
	h := sha256.Sum256(raw)
	return hex.EncodeToString(h[:])
}

func sample(h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	size := info.Size()
	binary.Write(h, binary.LittleEndian, size)
	const whole, end, piece, count = 64 << 20, 1 << 20, 64 << 10, 64
	copyAt := func(at, n int64) error {
		_, err := io.Copy(h, io.NewSectionReader(f, at, n))
		return err
	}
	if size <= whole {
		return copyAt(0, size)
	}
	err = errors.Join(copyAt(0, end), copyAt(size-end, end))
	for i := int64(1); i <= count && err == nil; i++ {
		err = copyAt(size/(count+1)*i, piece)
	}
	return err
}
