package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"graft/kernels"
	"graft/kernels/cpu"
	"graft/kernels/quant"
	"graft/model"
	"graft/weights"
	"graft/weights/gguf"
	"graft/weights/safetensors"
)

// NewBackend is where every program computes: this machine's processor. threads 0 means all cores.
func NewBackend(threads int) *cpu.Backend { return cpu.New(cpu.Options{Threads: threads}) }

// Loaded is a model in memory with what holds it.
type Loaded struct {
	Source  *Source
	Arena   *weights.Arena
	Model   *model.Model
	Adapter *weights.Adapter // the one that Source names; nil: none
}

// AdapterID is the identity of the adapter that Load reads; others of the process need their own.
const AdapterID = 1

// Load reads the model, and the adapter that the source names, into an arena of at most limit bytes
// (0: no limit). trained: the adapter will be trained further.
func (s *Source) Load(be kernels.Backend, limit int64, trained bool) (*Loaded, error) {
	l := &Loaded{Source: s, Arena: weights.NewArena(be, limit)}
	var err error
	if l.Model, err = s.Files.Load(l.Arena); err != nil {
		l.Close()
		return nil, fmt.Errorf("%s: %w", s.Model, err)
	}
	if s.Adapter != "" {
		if l.Adapter, err = l.Model.LoadAdapter(s.Adapter, AdapterID, trained); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// Close returns the memory; whatever uses it must be closed before.
func (l *Loaded) Close() { l.Arena.Close() }

// AddWeights plans the model itself: matrices, norms, rotary tables, and gradients when o.Trained.
func (p *Plan) AddWeights(s *Source, be kernels.Backend, o model.Options) error {
	n, err := s.Files.WeightBytes(be.PackedBytes)
	if err != nil {
		return err
	}
	c := &s.Files.Config
	if o.Trained {
		n /= 2
	}
	p.Add("weights", n, fmt.Sprintf("%s, %d layers of %d, precision %s", c.Family, c.NumLayers, c.Dim, s.Files.Precision()), "use a smaller or more quantized model")
	if o.Trained {
		p.Add("weight gradients", n, "full fine-tuning", "train an adapter instead of the whole model")
	}
	p.Add("rope", ropeBytes(c, o.Context), fmt.Sprintf("%d positions", positions(c, o.Context)), "")
	return nil
}

// positions is the length of the rotary tables: what is asked for, or the model's own up to 8192.
func positions(c *model.Config, context int) int {
	if context > 0 {
		return context
	}
	return min(c.Context, 8192)
}

func ropeBytes(c *model.Config, context int) int64 {
	var n int64
	for _, r := range c.Ropes {
		n += int64(positions(c, context)) * int64(r.Dims) * 4
	}
	return n
}

// Shape is an adapter before it is made: what it takes and how wide its widest pair is.
type Shape struct {
	Params int64 // bytes of parameters
	Cols   int   // weights.Adapter.MaxCols
	Pairs  int
}

// AdapterShape describes the new adapter that a configuration asks for on a model.
func AdapterShape(c *model.Config, be kernels.Backend, cfg weights.AdapterConfig) (Shape, error) {
	if cfg.R < 1 || cfg.R > weights.MaxRank {
		return Shape{}, fmt.Errorf("adapter rank is %d, want 1 to %d", cfg.R, weights.MaxRank)
	}
	all := len(cfg.TargetModules) == 1 && cfg.TargetModules[0] == "all-linear"
	matched := map[string]bool{}
	var s Shape
	var names []string
	for _, l := range linears(c) {
		names = append(names, l.name[strings.LastIndex(l.name, ".")+1:])
		hit := all
		for _, t := range cfg.TargetModules {
			if l.name == t || strings.HasSuffix("model.layers.0."+l.name, "."+t) {
				hit, matched[t] = true, true
			}
		}
		if !hit {
			continue
		}
		for range c.NumLayers {
			s.add(be, cfg.R, l.in)
			s.add(be, l.out, cfg.R)
			s.Pairs++
		}
		s.Cols = (cfg.R + 15) &^ 15
	}
	for _, t := range cfg.TargetModules {
		if !all && !matched[t] {
			return Shape{}, fmt.Errorf("--target-modules %s matches nothing in this %s model; its linears are %s, or write all-linear", t, c.Family, strings.Join(names, ", "))
		}
	}
	if s.Pairs == 0 {
		return Shape{}, fmt.Errorf("--target-modules is empty; this %s model's linears are %s, or write all-linear", c.Family, strings.Join(names, ", "))
	}
	return s, nil
}

// linear is one matrix of a layer as adapters name it.
type linear struct {
	name    string
	out, in int
}

// linears lists the matrices of one layer.
func linears(c *model.Config) []linear {
	list := []linear{{"self_attn.o_proj", c.Dim, c.QDim()}, {"mlp.down_proj", c.Dim, c.FF}}
	if c.FusedQKV {
		list = append(list, linear{"self_attn.qkv_proj", c.QDim() + 2*c.KVDim(), c.Dim})
	} else {
		list = append(list, linear{"self_attn.q_proj", c.QDim(), c.Dim}, linear{"self_attn.k_proj", c.KVDim(), c.Dim}, linear{"self_attn.v_proj", c.KVDim(), c.Dim})
	}
	if c.FusedGateUp {
		return append(list, linear{"mlp.gate_up_proj", 2 * c.FF, c.Dim})
	}
	return append(list, linear{"mlp.gate_proj", c.FF, c.Dim}, linear{"mlp.up_proj", c.FF, c.Dim})
}

// AdapterFileShape describes the adapter in a file or folder.
func AdapterFileShape(path string, be kernels.Backend) (Shape, error) {
	var s Shape
	src, done, err := openAdapter(path)
	if err != nil {
		return s, err
	}
	defer done()
	for _, name := range src.Names() {
		_, rows, cols, ok, err := src.Shape(name)
		if err != nil {
			return s, fmt.Errorf("adapter %s: %w", path, err)
		}
		if !ok || rows > 1<<24 || cols > 1<<24 {
			return s, fmt.Errorf("adapter %s: tensor %q is [%d %d]", path, name, rows, cols)
		}
		s.add(be, rows, cols)
		if rank := min(rows, cols); rank <= weights.MaxRank {
			s.Cols = max(s.Cols, (rank+15)&^15)
		}
		s.Pairs++
	}
	s.Pairs /= 2
	return s, nil
}

func openAdapter(path string) (weights.Source, func() error, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("adapter: %w", err)
	}
	if info.IsDir() {
		f, err := safetensors.Open(filepath.Join(path, "adapter_model.safetensors"))
		if err != nil {
			return nil, nil, err
		}
		return weights.SafetensorsSource{File: f}, f.Close, nil
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, nil, err
	}
	return weights.GGUFSource{File: f}, f.Close, nil
}

func (s *Shape) add(be kernels.Backend, out, in int) {
	s.Params += (be.PackedBytes(quant.F32, out, in) + 63) &^ 63
}

// AddAdapter plans an adapter, and its gradients and moments if it is trained.
func (p *Plan) AddAdapter(s Shape, trained bool) {
	p.Add("adapter", s.Params, fmt.Sprintf("%d pairs", s.Pairs), "lower --lora-r or name fewer --target-modules")
	if trained {
		p.Add("gradients", s.Params, "of the adapter", "")
	}
}
