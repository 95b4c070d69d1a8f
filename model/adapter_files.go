package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"graft/weights"
	"graft/weights/gguf"
	"graft/weights/safetensors"
)

// peftConfig is adapter_config.json, the part that decides what an adapter computes.
type peftConfig struct {
	PeftType      string             `json:"peft_type"`
	TaskType      string             `json:"task_type"`
	Base          string             `json:"base_model_name_or_path"`
	R             int                `json:"r"`
	Alpha         float64            `json:"lora_alpha"`
	Dropout       float64            `json:"lora_dropout"`
	Bias          string             `json:"bias"`
	TargetModules any                `json:"target_modules"`
	RankPattern   map[string]int     `json:"rank_pattern"`
	AlphaPattern  map[string]float64 `json:"alpha_pattern"`
	Layers        any                `json:"layers_to_transform"`
	RSLoRA        bool               `json:"use_rslora"`
	DoRA          bool               `json:"use_dora"`
	FanInFanOut   bool               `json:"fan_in_fan_out"`
	ModulesToSave []string           `json:"modules_to_save"`
	Inference     bool               `json:"inference_mode"`
	InitWeights   bool               `json:"init_lora_weights"`
}

const (
	peftConfigName = "adapter_config.json"
	peftFileName   = "adapter_model.safetensors"
	peftPrefix     = "base_model.model."
)

// LoadAdapter reads a PEFT adapter folder or an adapter GGUF for this model. What does not fit the
// model is an error: an adapter is applied whole or not at all. One that is trained on must have been
// trained under the model's contract before; one that is only used may not, see CheckPrecision.
func (m *Model) LoadAdapter(path string, id uint64, trained bool) (*weights.Adapter, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("model: adapter %s does not exist; give a PEFT folder or an adapter GGUF", path)
	}
	if err != nil {
		return nil, fmt.Errorf("model: adapter: %w", err)
	}
	var ad *weights.Adapter
	if info.IsDir() {
		ad, err = m.loadPEFT(path, id, trained)
	} else {
		ad, err = m.loadAdapterGGUF(path, id, trained)
	}
	if err == nil && trained {
		if err = m.CheckPrecision(ad); err != nil {
			ad.Free()
		} else {
			ad.Config.Precision = new(m.Precision) // from now on
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ad, nil
}

func (m *Model) loadPEFT(dir string, id uint64, trained bool) (*weights.Adapter, error) {
	raw, err := os.ReadFile(filepath.Join(dir, peftConfigName))
	if err != nil {
		return nil, fmt.Errorf("model: adapter: %w", err)
	}
	var p peftConfig
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("model: %s: %w", peftConfigName, err)
	}
	cfg, err := p.config()
	if err != nil {
		return nil, err
	}
	f, err := safetensors.Open(filepath.Join(dir, peftFileName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if cfg.Precision, err = precisionOfPEFT(f); err != nil {
		return nil, err
	}
	parts, err := m.readPairs(weights.SafetensorsSource{File: f}, func(name string) (string, bool, error) {
		module, ok := strings.CutPrefix(name, peftPrefix)
		if !ok {
			return "", false, fmt.Errorf("model: adapter tensor %q does not begin with %s", name, peftPrefix)
		}
		if n, ok := strings.CutSuffix(module, ".lora_A.weight"); ok {
			return n, true, nil
		}
		if n, ok := strings.CutSuffix(module, ".lora_B.weight"); ok {
			return n, false, nil
		}
		return "", false, fmt.Errorf("model: adapter tensor %q is not a lora_A or lora_B weight", name)
	})
	if err != nil {
		return nil, err
	}
	return m.adapterOf(parts, id, cfg, trained, true)
}

func (p *peftConfig) config() (weights.AdapterConfig, error) {
	cfg := weights.AdapterConfig{R: p.R, Alpha: p.Alpha, RankPattern: p.RankPattern, AlphaPattern: p.AlphaPattern, RSLoRA: p.RSLoRA, BaseModel: p.Base}
	switch {
	case p.PeftType != "LORA":
		return cfg, fmt.Errorf("model: adapter is of type %q; Graft reads LORA", p.PeftType)
	case p.DoRA:
		return cfg, fmt.Errorf("model: the adapter uses DoRA, which Graft does not compute")
	case p.FanInFanOut:
		return cfg, fmt.Errorf("model: the adapter is stored fan_in_fan_out, which no supported family uses")
	case len(p.ModulesToSave) > 0:
		return cfg, fmt.Errorf("model: the adapter replaces whole modules (%s), which Graft does not apply", strings.Join(p.ModulesToSave, ", "))
	case p.Bias != "" && p.Bias != "none":
		return cfg, fmt.Errorf("model: the adapter trains biases (%q), which Graft does not apply", p.Bias)
	case p.R < 1 || p.R > weights.MaxRank:
		return cfg, fmt.Errorf("model: adapter rank is %d, want 1 to %d", p.R, weights.MaxRank)
	}
	switch t := p.TargetModules.(type) {
	case []any:
		for _, v := range t {
			if s, ok := v.(string); ok {
				cfg.TargetModules = append(cfg.TargetModules, s)
			}
		}
	case string:
		cfg.TargetModules = []string{t}
	}
	switch l := p.Layers.(type) {
	case []any:
		for _, v := range l {
			if n, ok := v.(float64); ok {
				cfg.Layers = append(cfg.Layers, int(n))
			}
		}
	case float64:
		cfg.Layers = []int{int(l)}
	}
	return cfg, nil
}

// pairData is one module's A [r, in] and B [out, r], row by row.
type pairData struct {
	a, b  []float32
	shape [4]int // rows and columns of a, then of b
}

// readPairs collects the A and B of every module; split names the module of a tensor.
func (m *Model) readPairs(src weights.Source, split func(string) (string, bool, error)) (map[string]*pairData, error) {
	out := map[string]*pairData{}
	for _, name := range src.Names() {
		module, isA, err := split(name)
		if err != nil {
			return nil, err
		}
		_, rows, cols, _, err := src.Shape(name)
		if err != nil {
			return nil, err
		}
		floats, err := weights.ReadVector(src, name)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(floats, notFinite); i >= 0 {
			return nil, fmt.Errorf("model: adapter tensor %q holds %g in row %d, column %d: the file is damaged, or its training diverged; take an earlier checkpoint, or train it anew",
				name, floats[i], i/cols, i%cols)
		}
		p := out[module]
		if p == nil {
			p = &pairData{}
			out[module] = p
		}
		if isA {
			p.a, p.shape[0], p.shape[1] = floats, rows, cols
		} else {
			p.b, p.shape[2], p.shape[3] = floats, rows, cols
		}
	}
	return out, nil
}

func notFinite(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) }

// adapterOf checks every module against the model and packs it. halves tells that q and k rows come
// in checkpoint order.
func (m *Model) adapterOf(parts map[string]*pairData, id uint64, cfg weights.AdapterConfig, trained, halves bool) (*weights.Adapter, error) {
	byName := map[string]*weights.Linear{}
	for _, l := range m.Linears {
		byName[l.Name], byName[l.GGUF] = l, l
	}
	var sites []weights.SiteRank
	data := map[int]*pairData{}
	for module, p := range parts {
		l := byName[module]
		if l == nil {
			return nil, fmt.Errorf("model: the adapter changes %q, which this %s model does not have: it was made for another model", module, m.Config.Family)
		}
		if p.a == nil || p.b == nil {
			return nil, fmt.Errorf("model: the adapter has only one of A and B for %q", module)
		}
		rank := p.shape[0]
		if p.shape != [4]int{rank, l.W.In, l.W.Out, rank} {
			return nil, fmt.Errorf("model: adapter on %q has A [%d %d] and B [%d %d]; the model's matrix is [%d %d]: it was made for another model",
				module, p.shape[0], p.shape[1], p.shape[2], p.shape[3], l.W.Out, l.W.In)
		}
		sites = append(sites, weights.SiteRank{Linear: l, Rank: rank, Alpha: pattern(cfg.AlphaPattern, l.Name, cfg.Alpha)})
		data[l.Site] = p
	}
	sort.Slice(sites, func(i, j int) bool { return sites[i].Linear.Site < sites[j].Linear.Site })
	ad, err := weights.NewAdapter(m.Arena, id, len(m.Linears), sites, cfg.RSLoRA, trained)
	if err != nil {
		return nil, err
	}
	ad.Rank, ad.Alpha, ad.Config = cfg.R, cfg.Alpha, cfg
	for _, s := range sites {
		p, pair := data[s.Linear.Site], ad.Pair(s.Linear.Site)
		if halves && s.Linear.HeadDim > 0 {
			p.b = reorderHeads(p.b, pair.Rank, s.Linear.HeadDim, true)
		}
		pack(m.Backend(), pair.A, p.a)
		pack(m.Backend(), pair.B, p.b)
	}
	return ad, m.Backend().Sync()
}

// reorderHeads moves rows of width cols between checkpoint order (halves) and paired order.
func reorderHeads(rows []float32, cols, headDim int, toPaired bool) []float32 {
	out := make([]float32, len(rows))
	for r := 0; r < len(rows)/cols; r++ {
		head, i := r/headDim*headDim, r%headDim
		half := head + i/2 + i%2*(headDim/2) // where paired row r lies in halves
		if toPaired {
			copy(out[r*cols:(r+1)*cols], rows[half*cols:(half+1)*cols])
		} else {
			copy(out[half*cols:(half+1)*cols], rows[r*cols:(r+1)*cols])
		}
	}
	return out
}

func (m *Model) siteOf(p *weights.Pair) int {
	for _, l := range m.Linears {
		if l.Name == p.Name {
			return l.Site
		}
	}
	panic("model: adapter pair " + p.Name + " belongs to another model")
}

func (m *Model) loadAdapterGGUF(path string, id uint64, trained bool) (*weights.Adapter, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	kind, err := f.StrOr("general.type", "model")
	if err != nil {
		return nil, err
	}
	if kind != "adapter" {
		return nil, fmt.Errorf("model: this GGUF file is of type %q, not an adapter; give it with --model", kind)
	}
	if t, err := f.Str("adapter.type"); err != nil || t != "lora" {
		return nil, fmt.Errorf("model: adapter.type is %q, want \"lora\"", t)
	}
	alpha, err := f.Float("adapter.lora.alpha")
	if err != nil {
		return nil, err
	}
	parts, err := m.readPairs(weights.GGUFSource{File: f}, func(name string) (string, bool, error) {
		if n, ok := strings.CutSuffix(name, ".weight.lora_a"); ok {
			return n, true, nil
		}
		if n, ok := strings.CutSuffix(name, ".weight.lora_b"); ok {
			return n, false, nil
		}
		return "", false, fmt.Errorf("model: adapter tensor %q is not a lora_a or lora_b weight", name)
	})
	if err != nil {
		return nil, err
	}
	cfg := weights.AdapterConfig{Alpha: alpha}
	if cfg.Precision, err = precisionOfGGUF(f); err != nil {
		return nil, err
	}
	for _, p := range parts {
		cfg.R = max(cfg.R, p.shape[0])
	}
	if m.pairedOrder() != m.Config.PermutedQK {
		for module, p := range parts {
			if p.b != nil && (strings.HasSuffix(module, ".attn_q") || strings.HasSuffix(module, ".attn_k")) {
				p.b = reorderHeads(p.b, p.shape[3], m.Config.HeadDim, false)
			}
		}
	}
	return m.adapterOf(parts, id, cfg, trained, false)
}

// pairedOrder tells whether GGUF files of this family hold q and k rows in paired order.
func (m *Model) pairedOrder() bool { return m.Config.Family == "llama" }
