// Package model is the decoder: configuration, forward and hand-written backward, written once for
// every family, format, backend, and for sampling and training alike. A family is one file that
// maps its configuration and tensor names onto Config and Model.
//
// It may not know schedules, requests, losses or rewards. Weights are owned by weights.Arena, pages
// by infer/paged (integers) and the arena (bytes); a Batch says what to compute, Acts where.
package model

import (
	"fmt"
	"math"

	"graft/kernels"
)

// Config is what the forward needs to know of a model; families fill it.
type Config struct {
	Family    string // "llama", "qwen2", "qwen3", "gemma3", "phi3"
	Name      string // general.name or the folder's name
	Vocab     int    // V
	Dim       int    // C
	NumLayers int
	Heads     int // H
	KVHeads   int // G
	HeadDim   int // D
	FF        int // F
	Context   int // positions the model was made for
	Eps       float32
	Act       kernels.Activation

	EmbedScale   float32 // 1, or √C for gemma
	AttnScale    float32 // usually 1/√D
	AttnSoftcap  float32 // 0: off
	FinalSoftcap float32 // 0: off
	TiedHead     bool
	QKNorm       bool // RMSNorm of each head of q and k before RoPE
	PostNorm     bool // gemma: norms after attention and feed-forward too
	FusedQKV     bool // phi3: one matrix for q, k, v
	FusedGateUp  bool // phi3: one matrix for gate, up
	NormPlusOne  bool // the checkpoint stores w where the model uses 1+w (gemma's Hugging Face files)
	PermutedQK   bool // the file's q and k rows are in llama.cpp's paired order

	Layers []LayerKind  // one a layer
	Ropes  []RopeConfig // referred to by LayerKind.Rope
}

// LayerKind is what may differ from layer to layer.
type LayerKind struct {
	Window int // tokens seen, the current one included; 0: all
	Rope   int // index into Config.Ropes; -1: no rotary encoding
}

// RopeConfig is a rotary encoding before its table is made.
type RopeConfig struct {
	Base    float64
	Dims    int       // rotated dimensions of a head
	Factors []float64 // angle of pair i is divided by Factors[i]; nil: 1
	Scale   float64   // attention factor on cos and sin; 0 means 1
	Paired  bool      // pairs (2i, 2i+1) instead of (i, i+Dims/2)
}

// QDim is the width of all query heads, KVDim that of all key heads.
func (c *Config) QDim() int { return c.Heads * c.HeadDim }

// KVDim is the width of all key (or value) heads.
func (c *Config) KVDim() int { return c.KVHeads * c.HeadDim }

// Validate checks what would otherwise divide by zero or index out of range later.
func (c *Config) Validate() error {
	bounded := []struct {
		what    string
		n, most int
	}{
		{"vocabulary", c.Vocab, 1 << 22}, {"embedding length", c.Dim, 1 << 17}, {"layers", c.NumLayers, 1 << 12},
		{"attention heads", c.Heads, 1 << 12}, {"key/value heads", c.KVHeads, 1 << 12},
		{"head dimension", c.HeadDim, 1 << 12}, {"feed-forward length", c.FF, 1 << 20}, {"context length", c.Context, 1 << 26},
	}
	for _, b := range bounded {
		if b.n < 1 || b.n > b.most {
			return fmt.Errorf("model: %s: %s is %d, want 1 to %d", c.Family, b.what, b.n, b.most)
		}
	}
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("model: %s: %d attention heads do not divide among %d key/value heads", c.Family, c.Heads, c.KVHeads)
	}
	if !(c.Eps > 0 && c.Eps < 1) {
		return fmt.Errorf("model: %s: the norm epsilon is %g", c.Family, c.Eps)
	}
	if len(c.Layers) != c.NumLayers {
		return fmt.Errorf("model: %s: %d layer kinds for %d layers", c.Family, len(c.Layers), c.NumLayers)
	}
	for i, l := range c.Layers {
		if l.Rope >= len(c.Ropes) || l.Window < 0 {
			return fmt.Errorf("model: %s: layer %d has window %d, rope %d of %d", c.Family, i, l.Window, l.Rope, len(c.Ropes))
		}
	}
	for _, r := range c.Ropes {
		if r.Dims < 2 || r.Dims%2 != 0 || r.Dims > c.HeadDim {
			return fmt.Errorf("model: %s: rope turns %d of %d head dimensions", c.Family, r.Dims, c.HeadDim)
		}
		if !(r.Base > 0) || math.IsInf(r.Base, 0) {
			return fmt.Errorf("model: %s: rope base is %g, want a finite number above 0", c.Family, r.Base)
		}
		if r.Factors != nil && len(r.Factors) != r.Dims/2 {
			return fmt.Errorf("model: %s: %d rope factors for %d pairs", c.Family, len(r.Factors), r.Dims/2)
		}
	}
	return nil
}
