package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/model/tokenizer"
	"graft/weights"
	"graft/weights/gguf"
	"graft/weights/safetensors"
)

// Options say how a model is loaded.
type Options struct {
	Context int           // positions that will be used; 0: what the model was made for, at most 8192
	Format  *quant.Format // store matrices in this format instead of the file's
	Trained bool          // full fine-tuning: float32 weights with gradients
	// Precision is the contract of products with quantized matrices. A model that has none computes
	// under kernels.PrecisionF32 whatever is asked for.
	Precision kernels.Precision
}

// Files is a model on disk, opened and described but not yet loaded: enough to plan memory.
type Files struct {
	Path      string
	Config    Config
	Tokenizer *tokenizer.Tokenizer // nil when the files hold none
	Source    weights.Source

	names names
	layer string
	close func() error
	opt   Options
}

// Open reads the description of a model: a GGUF file, or a folder with config.json and safetensors.
func Open(path string, o Options) (*Files, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("model: %s does not exist; give a GGUF file or a folder with config.json and safetensors", path)
	}
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if info.IsDir() {
		return openFolder(path, o)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	out, err := FromGGUF(f, o)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out.Path = path
	return out, nil
}

// FromGGUF describes the model of an open GGUF file; the Files close it.
func FromGGUF(f *gguf.File, o Options) (*Files, error) {
	c, err := configFromGGUF(f, o)
	if err != nil {
		return nil, err
	}
	out := &Files{Config: *c, Source: weights.GGUFSource{File: f}, names: ggufNames(), layer: "blk.%d.", close: f.Close, opt: o}
	if kind, err := f.StrOr("tokenizer.ggml.model", "no_vocab"); err == nil && kind != "no_vocab" {
		if out.Tokenizer, err = tokenizer.FromGGUF(f.KV); err != nil {
			return nil, err
		}
		if n := out.Tokenizer.VocabSize(); n > c.Vocab {
			return nil, fmt.Errorf("model: the tokenizer has %d tokens but the embedding only %d rows", n, c.Vocab)
		}
	}
	return out, nil
}

func openFolder(path string, o Options) (*Files, error) {
	raw, err := os.ReadFile(filepath.Join(path, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("model: %s has no readable config.json: %w", path, err)
	}
	c, err := configFromHF(raw, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(path, "config.json"), err)
	}
	c.Name = filepath.Base(path)
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	out := &Files{Path: path, Config: *c, Source: weights.SafetensorsSource{File: f}, names: hfNames(c.PostNorm),
		layer: "model.layers.%d.", close: f.Close, opt: o}
	if out.Tokenizer, err = tokenizerOfFolder(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Close()
		return nil, err
	}
	return out, nil
}

// OpenTokenizer reads only the tokenizer of a model: of a GGUF file, which may hold nothing else, of a
// folder with tokenizer.json, or of a tokenizer.json itself.
func OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("model: %s does not exist; give a GGUF file, a model folder or a tokenizer.json", path)
	}
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if info.IsDir() || strings.HasSuffix(path, ".json") {
		return tokenizerOfFolder(path)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tok, err := tokenizer.FromGGUF(f.KV)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return tok, nil
}

// tokenizerOfFolder reads tokenizer.json and what lies beside it; path may also be the file.
func tokenizerOfFolder(path string) (*tokenizer.Tokenizer, error) {
	file := path
	if strings.HasSuffix(path, ".json") {
		path = filepath.Dir(path)
	} else {
		file = filepath.Join(path, "tokenizer.json")
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("model: the folder has no readable tokenizer.json: %w", err)
	}
	cfg, _ := os.ReadFile(filepath.Join(path, "tokenizer_config.json")) // may be missing
	tok, err := tokenizer.FromJSON(raw, withChatTemplate(path, cfg))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return tok, nil
}

// withChatTemplate adds chat_template.jinja, where newer folders keep it, to the tokenizer's config.
func withChatTemplate(path string, cfg []byte) []byte {
	tmpl, err := os.ReadFile(filepath.Join(path, "chat_template.jinja"))
	if err != nil {
		return cfg
	}
	fields := map[string]any{}
	if len(cfg) > 0 && json.Unmarshal(cfg, &fields) != nil {
		return cfg // the tokenizer reports what is wrong with it
	}
	fields["chat_template"] = string(tmpl)
	if out, err := json.Marshal(fields); err == nil {
		return out
	}
	return cfg
}

// Close closes the files; a loaded Model does not need them any more.
func (f *Files) Close() error { return f.close() }

// Load reads the weights into the arena.
func (f *Files) Load(arena *weights.Arena) (*Model, error) {
	m := &Model{Config: f.Config, Arena: arena, Version: 1, Precision: f.Precision()}
	if err := m.makeRopes(f.opt.context(&f.Config)); err != nil {
		return nil, err
	}
	b := builder{m: m, file: f.names, layer: f.layer, module: hfNames(f.Config.PostNorm),
		load: f.loader(arena)}
	if err := b.build(); err != nil {
		return nil, err
	}
	return m, nil
}

func (f *Files) loader(arena *weights.Arena) *weights.Loader {
	return &weights.Loader{Arena: arena, Source: f.Source, Format: f.opt.Format, Trained: f.opt.Trained, Precision: f.opt.Precision}
}

// Quantized tells whether any matrix will be stored in blocks: only then does Options.Precision
// change a result.
func (f *Files) Quantized() bool {
	load := f.loader(nil)
	for _, name := range f.Source.Names() {
		q, rows, cols, ok, err := f.Source.Shape(name)
		if err == nil && ok && rows > 1 && strings.HasSuffix(name, ".weight") && load.Stored(q, cols).BlockLen() > 1 {
			return true
		}
	}
	return false
}

// Precision is the contract that the loaded model will compute under.
func (f *Files) Precision() kernels.Precision {
	if f.Quantized() {
		return f.opt.Precision
	}
	return kernels.PrecisionF32
}

// SetPrecision replaces Options.Precision, before Load.
func (f *Files) SetPrecision(p kernels.Precision) { f.opt.Precision = p }

// WeightBytes is what Load will allocate for weights and, when trained, gradients.
func (f *Files) WeightBytes(packed func(q quant.Format, out, in int) int64) (bytes int64, err error) {
	load := f.loader(nil)
	for _, name := range f.Source.Names() {
		q, rows, cols, ok, err := f.Source.Shape(name)
		if err != nil || !ok || !strings.HasSuffix(name, ".weight") && !strings.HasSuffix(name, ".bias") {
			continue
		}
		n := int64(4 * cols)
		if rows > 1 {
			n = packed(load.Stored(q, cols), rows, cols)
		}
		if f.opt.Trained {
			n *= 2
		}
		bytes += n
	}
	return bytes, nil
}

func (o Options) context(c *Config) int {
	if o.Context > 0 {
		return o.Context
	}
	return min(c.Context, 8192)
}
