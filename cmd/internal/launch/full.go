package launch

import (
	"fmt"
	"sort"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/model"
	"graft/weights"
	"graft/weights/gguf"
)

// ModelFile is where a run keeps a fully trained model.
const ModelFile = "model.gguf"

// keysOf are the keys of the GGUF file that a model came from.
func keysOf(s *Source) (map[string]any, bool) {
	src, ok := s.Files.Source.(weights.GGUFSource)
	if !ok {
		return nil, false
	}
	return src.File.KV, true
}

// CanTrainFully refuses full fine-tuning of models that could not be written afterwards.
func CanTrainFully(s *Source) error {
	if _, ok := keysOf(s); !ok {
		return fmt.Errorf("--full needs a GGUF model, and %s is a folder; convert it, or train an adapter", s.Model)
	}
	return nil
}

// TrainedLengths are the floats of every parameter that full fine-tuning moves.
func TrainedLengths(f *model.Files, be kernels.Backend) ([]int, error) {
	var out []int
	for _, name := range f.Source.Names() {
		_, rows, cols, ok, err := f.Source.Shape(name)
		if err != nil || !ok {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		n := rows * cols
		if rows > 1 {
			n = int(be.PackedBytes(quant.F32, rows, cols) / 4)
		}
		out = append(out, n)
	}
	return out, nil
}

// ReferenceBytes is what Reference will take.
func ReferenceBytes(s *Source, be kernels.Backend) (int64, error) {
	files, err := openFiles(s.Model, model.Options{})
	if err != nil {
		return 0, err
	}
	defer files.Close()
	n, err := files.WeightBytes(be.PackedBytes)
	return n + ropeBytes(&files.Config, 0), err
}

// Reference loads the model once more, frozen, beside the one that is trained.
func Reference(s *Source, arena *weights.Arena) (*model.Model, error) {
	files, err := openFiles(s.Model, model.Options{})
	if err != nil {
		return nil, err
	}
	defer files.Close()
	return files.Load(arena)
}

// SaveModel writes a fully trained model as GGUF: the keys of the file it came from, matrices in F32
// so that not a bit is lost.
func SaveModel(s *Source, m *model.Model, path string) error {
	keys, ok := keysOf(s)
	if !ok {
		return CanTrainFully(s)
	}
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	sort.Strings(names)
	kv := make([]gguf.KV, 0, len(keys))
	for _, name := range names {
		v := keys[name]
		if name == "general.file_type" {
			v = uint32(0) // all F32
		}
		kv = append(kv, gguf.KV{Key: name, Value: v})
	}
	return m.SaveGGUF(path, kv, func(string, int, int) quant.Format { return quant.F32 })
}
