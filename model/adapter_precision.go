package model

import (
	"fmt"
	"os"
	"path/filepath"

	"graft/kernels"
	"graft/weights"
	"graft/weights/gguf"
	"graft/weights/safetensors"
)

// precisionKey is where an adapter's files keep the contract it was trained under: in the notes of
// its safetensors file, which PEFT, vLLM and transformers pass over, or among the keys of its GGUF
// file. adapter_config.json has no place for it: versions of PEFT warn of keys they do not know, or
// refuse them.
const precisionKey = "graft.precision"

// AdapterPrecision reads which contract an adapter was trained under, from a PEFT folder or an
// adapter GGUF; nil: the files do not say, as those of other programs.
func AdapterPrecision(path string) (*kernels.Precision, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("model: adapter: %w", err)
	}
	var p *kernels.Precision
	if info.IsDir() {
		f, openErr := safetensors.Open(filepath.Join(path, peftFileName))
		if openErr != nil {
			return nil, openErr
		}
		defer f.Close()
		p, err = precisionOfPEFT(f)
	} else {
		f, openErr := gguf.Open(path)
		if openErr != nil {
			return nil, openErr
		}
		defer f.Close()
		p, err = precisionOfGGUF(f)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func precisionOfPEFT(f *safetensors.File) (*kernels.Precision, error) {
	return parsePrecision(f.Metadata[precisionKey])
}

func precisionOfGGUF(f *gguf.File) (*kernels.Precision, error) {
	name, err := f.StrOr(precisionKey, "")
	if err != nil {
		return nil, err
	}
	return parsePrecision(name)
}

func parsePrecision(name string) (*kernels.Precision, error) {
	if name == "" {
		return nil, nil
	}
	p, ok := kernels.ParsePrecision(name)
	if !ok {
		return nil, fmt.Errorf("model: the adapter was trained under %s %.40q, which this version does not know", precisionKey, name)
	}
	return &p, nil
}

// CheckPrecision refuses an adapter that was trained under another contract than the model computes
// under. One whose files do not say passes, and so does any on a model without quantized matrices,
// where the contracts are one.
func (m *Model) CheckPrecision(ad *weights.Adapter) error {
	if p := ad.Config.Precision; p != nil && *p != m.Precision && m.quantized() {
		return fmt.Errorf("model: the adapter was trained under precision %s, and the model was loaded under %s; load it under %s (--precision)", *p, m.Precision, *p)
	}
	return nil
}

// quantized tells whether the contract changes any product.
func (m *Model) quantized() bool {
	if m.Head.W.Format.BlockLen() > 1 {
		return true
	}
	for _, l := range m.Linears {
		if l.W.Format.BlockLen() > 1 {
			return true
		}
	}
	return false
}
