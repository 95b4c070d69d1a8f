package launch

import (
	"fmt"
	"io"
	"sort"
	"strings"

	"graft/kernels/quant"
	"graft/weights"
	"graft/weights/gguf"
)

// The suffixes of a pair's tensors in an adapter's GGUF file.
const (
	pairA = ".weight.lora_a"
	pairB = ".weight.lora_b"
)

// MergeFormats say how Merge stores the matrices that the adapter changes: wide keeps what adding was
// worth (F16, or the base's own F32 or BF16), base quantizes again as the base is, and f16 and f32 are
// what they say.
func MergeFormats() []string { return []string{"wide", "base", "f16", "f32"} }

// mergedFormat is how a changed matrix is stored.
func mergedFormat(how string, base quant.Format) quant.Format {
	switch {
	case how == "f32":
		return quant.F32
	case how == "f16" || how == "wide" && base != quant.F32 && base != quant.BF16:
		return quant.F16
	}
	return base
}

// Merge writes the model of a source with an adapter (a GGUF file for that model) added to its
// matrices: W + (alpha/r)·B·A, computed in float32 from the weights as they are stored. All else is
// copied byte for byte. It takes memory for the two largest matrices.
func Merge(s *Source, adapter, path, how string) error {
	src, ok := s.Files.Source.(weights.GGUFSource)
	if !ok {
		return fmt.Errorf("merging needs a GGUF model, and %s is a folder; convert it, or export the adapter alone", s.Model)
	}
	lora, err := gguf.Open(adapter)
	if err != nil {
		return err
	}
	defer lora.Close()
	alpha, err := lora.Float("adapter.lora.alpha")
	if err != nil {
		return err
	}
	left := map[string]bool{}
	for i := range lora.Tensors {
		if name, ok := strings.CutSuffix(lora.Tensors[i].Name, pairA); ok {
			left[name+".weight"] = true
		}
	}
	var tensors []gguf.TensorData
	for i := range src.File.Tensors {
		t := &src.File.Tensors[i]
		if !left[t.Name] {
			tensors = append(tensors, gguf.TensorData{Name: t.Name, Dims: t.Dims, Format: t.Format, WriteTo: func(w io.Writer) error {
				_, err := io.Copy(w, io.NewSectionReader(tensorAt{src.File, t}, 0, t.Size))
				return err
			}})
			continue
		}
		delete(left, t.Name)
		f := mergedFormat(how, t.Format)
		tensors = append(tensors, gguf.TensorData{Name: t.Name, Dims: t.Dims, Format: f, WriteTo: func(w io.Writer) error {
			sum, err := merged(src.File, t, lora, alpha)
			if err != nil {
				return err
			}
			raw := make([]byte, f.Bytes(len(sum)))
			quant.Encode(raw, f, sum)
			_, err = w.Write(raw)
			return err
		}})
	}
	for name := range left {
		return fmt.Errorf("the adapter changes %s, which %s does not have", name, s.Model)
	}
	return gguf.WriteFile(path, keysInOrder(src.File), tensors)
}

// tensorAt reads a tensor's bytes.
type tensorAt struct {
	f *gguf.File
	t *gguf.Tensor
}

// ReadAt implements io.ReaderAt.
func (r tensorAt) ReadAt(b []byte, off int64) (int, error) {
	if err := r.f.ReadAt(r.t, b, off); err != nil {
		return 0, err
	}
	return len(b), nil
}

// merged is a matrix [out, in] with its pair added.
func merged(base *gguf.File, t *gguf.Tensor, lora *gguf.File, alpha float64) ([]float32, error) {
	read := func(f *gguf.File, t *gguf.Tensor) ([]float32, error) {
		x := make([]float32, t.Elements())
		return x, f.Decode(t, x)
	}
	name := strings.TrimSuffix(t.Name, ".weight")
	ta, okA := lora.Tensor(name + pairA)
	tb, okB := lora.Tensor(name + pairB)
	if !okA || !okB || len(ta.Dims) != 2 || len(tb.Dims) != 2 || len(t.Dims) != 2 || ta.Dims[0] != t.Dims[0] || tb.Dims[1] != t.Dims[1] || ta.Dims[1] != tb.Dims[0] {
		return nil, fmt.Errorf("the adapter's pair for %s does not fit it", t.Name)
	}
	w, err := read(base, t)
	if err != nil {
		return nil, err
	}
	a, err := read(lora, ta)
	if err != nil {
		return nil, err
	}
	b, err := read(lora, tb)
	if err != nil {
		return nil, err
	}
	in, rank := int(t.Dims[0]), int(ta.Dims[1])
	scale := float32(alpha / float64(rank))
	for o := range int(t.Dims[1]) {
		row := w[o*in : (o+1)*in]
		for r := range rank {
			s := float32(scale * b[o*rank+r])
			for i, x := range a[r*in : (r+1)*in] {
				row[i] += float32(s * x)
			}
		}
	}
	return w, nil
}

// keysInOrder are a file's keys, sorted.
func keysInOrder(f *gguf.File) []gguf.KV {
	out := make([]gguf.KV, 0, len(f.KV))
	for name, v := range f.KV {
		out = append(out, gguf.KV{Key: name, Value: v})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
	return out
}
