package model

import (
	"encoding/json"
	"fmt"
	"math"

	"graft/kernels"
)

// hfConfig is a Hugging Face config.json, in transformers 5's layout and the older one that most
// published checkpoints have.
type hfConfig struct {
	ModelType     string          `json:"model_type"`
	Vocab         int             `json:"vocab_size"`
	Hidden        int             `json:"hidden_size"`
	Intermediate  int             `json:"intermediate_size"`
	Layers        int             `json:"num_hidden_layers"`
	Heads         int             `json:"num_attention_heads"`
	KVHeads       *int            `json:"num_key_value_heads"`
	HeadDim       *int            `json:"head_dim"`
	MaxPositions  int             `json:"max_position_embeddings"`
	Eps           float64         `json:"rms_norm_eps"`
	Tied          *bool           `json:"tie_word_embeddings"`
	Act           string          `json:"hidden_act"`
	Activation    string          `json:"hidden_activation"`
	Window        *int            `json:"sliding_window"`
	UseWindow     *bool           `json:"use_sliding_window"`
	MaxWindow     int             `json:"max_window_layers"`
	LayerTypes    []string        `json:"layer_types"`
	WindowPattern int             `json:"sliding_window_pattern"`
	QueryScalar   float64         `json:"query_pre_attn_scalar"`
	AttnSoftcap   *float64        `json:"attn_logit_softcapping"`
	FinalSoftcap  *float64        `json:"final_logit_softcapping"`
	Partial       float64         `json:"partial_rotary_factor"`
	Original      int             `json:"original_max_position_embeddings"`
	RopeTheta     float64         `json:"rope_theta"`
	RopeLocal     float64         `json:"rope_local_base_freq"`
	RopeScaling   *hfRope         `json:"rope_scaling"`
	RopeRaw       json.RawMessage `json:"rope_parameters"`
	TextConfig    json.RawMessage `json:"text_config"`
	Quantization  json.RawMessage `json:"quantization_config"`
}

// hfRope is one set of rotary parameters.
type hfRope struct {
	Type         string    `json:"rope_type"`
	OldType      string    `json:"type"`
	Theta        float64   `json:"rope_theta"`
	Factor       float64   `json:"factor"`
	Original     int       `json:"original_max_position_embeddings"`
	LowFreq      float64   `json:"low_freq_factor"`
	HighFreq     float64   `json:"high_freq_factor"`
	BetaFast     float64   `json:"beta_fast"`
	BetaSlow     float64   `json:"beta_slow"`
	Mscale       float64   `json:"mscale"`
	MscaleAllDim float64   `json:"mscale_all_dim"`
	Attention    float64   `json:"attention_factor"`
	Long         []float64 `json:"long_factor"`
	Short        []float64 `json:"short_factor"`
	Truncate     *bool     `json:"truncate"`
	Partial      float64   `json:"partial_rotary_factor"`
}

// configFromHF reads what all families share, then lets the family fill the rest.
func configFromHF(raw []byte, o Options) (*Config, error) {
	var h hfConfig
	if err := json.Unmarshal(raw, &h); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if len(h.Quantization) > 0 && string(h.Quantization) != "null" {
		return nil, fmt.Errorf("model: the checkpoint is quantized by a Python library, whose tensors Graft does not read; take the plain checkpoint or a GGUF file")
	}
	fam, err := familyOf(h.ModelType, func(f *family) []string { return f.hf })
	if err != nil {
		return nil, err
	}
	c := &Config{Family: fam.name, Vocab: h.Vocab, Dim: h.Hidden, NumLayers: h.Layers, Heads: h.Heads, KVHeads: h.Heads,
		FF: h.Intermediate, Context: h.MaxPositions, Eps: float32(h.Eps), EmbedScale: 1}
	if h.KVHeads != nil {
		c.KVHeads = *h.KVHeads
	}
	c.HeadDim = h.Hidden / max(1, h.Heads)
	if h.HeadDim != nil {
		c.HeadDim = *h.HeadDim
	}
	if h.Tied != nil {
		c.TiedHead = *h.Tied
	}
	if c.NumLayers < 1 || c.NumLayers > 1<<12 {
		return nil, fmt.Errorf("model: num_hidden_layers is %d, want 1 to 4096", c.NumLayers)
	}
	c.Layers = make([]LayerKind, c.NumLayers)
	c.AttnScale = invSqrt(float64(c.HeadDim))
	act := h.Act
	if act == "" {
		act = h.Activation
	}
	switch act {
	case "", "silu":
		c.Act = kernels.SiLU
	case "gelu_pytorch_tanh":
		c.Act = kernels.GELUTanh
	default:
		return nil, fmt.Errorf("model: activation %q is not supported", act)
	}
	if err := fam.fromHF(&h, c, o); err != nil {
		return nil, err
	}
	return c, c.Validate()
}

// rope makes the rotary encoding of layers of one type ("" where there is only one).
func (h *hfConfig) rope(c *Config, layerType string, o Options) (RopeConfig, error) {
	p := hfRope{Theta: h.RopeTheta}
	if h.RopeScaling != nil {
		p = *h.RopeScaling
		p.Theta = h.RopeTheta
	}
	if len(h.RopeRaw) > 0 {
		raw := h.RopeRaw
		var byType map[string]json.RawMessage
		if json.Unmarshal(raw, &byType) == nil && len(byType[layerType]) > 0 {
			raw = byType[layerType]
		}
		p = hfRope{Theta: h.RopeTheta}
		if err := json.Unmarshal(raw, &p); err != nil {
			return RopeConfig{}, fmt.Errorf("model: rope_parameters: %w", err)
		}
	}
	return h.ropeFrom(p, c, o)
}

func (h *hfConfig) ropeFrom(p hfRope, c *Config, o Options) (RopeConfig, error) {
	or := func(v, missing float64) float64 {
		if v == 0 {
			return missing
		}
		return v
	}
	partial := or(or(p.Partial, h.Partial), 1)
	r := RopeConfig{Base: or(p.Theta, 10000), Dims: int(float64(c.HeadDim) * partial)}
	s := ropeScaling{
		kind: p.Type, factor: p.Factor, original: p.Original, lowFreq: p.LowFreq, highFreq: p.HighFreq,
		betaFast: or(p.BetaFast, 32), betaSlow: or(p.BetaSlow, 1), mscale: p.Mscale, mscaleAllDim: p.MscaleAllDim,
		attention: p.Attention, long: p.Long, short: p.Short, truncate: p.Truncate == nil || *p.Truncate, maxPositions: c.Context,
	}
	if s.kind == "" {
		s.kind = p.OldType
	}
	if s.original == 0 {
		s.original = h.Original
	}
	if s.original == 0 {
		s.original = c.Context
	}
	if s.kind == "llama3" && (s.factor <= 0 || s.lowFreq <= 0 || s.highFreq <= s.lowFreq) {
		return r, fmt.Errorf("model: llama3 rope factors %g, %g, %g make no sense", s.factor, s.lowFreq, s.highFreq)
	}
	return r, s.apply(&r, o.context(c))
}

// windows gives sliding layers their window, by layer_types if there are any.
func (h *hfConfig) windows(c *Config, sliding func(layer int) bool) error {
	if h.LayerTypes != nil && len(h.LayerTypes) != c.NumLayers {
		return fmt.Errorf("model: %d layer_types for %d layers", len(h.LayerTypes), c.NumLayers)
	}
	for i := range c.Layers {
		slides := sliding(i)
		if h.LayerTypes != nil {
			slides = h.LayerTypes[i] == "sliding_attention"
		}
		if slides && h.Window != nil {
			c.Layers[i].Window = *h.Window
		}
	}
	return nil
}

func invSqrt(x float64) float32 { return float32(1 / math.Sqrt(x)) }
