package model

import (
	"fmt"
	"slices"

	"graft/weights"
	"graft/weights/gguf"
)

// configFromGGUF reads what all families share, then lets the family fill the rest.
func configFromGGUF(f *gguf.File, o Options) (*Config, error) {
	arch, err := f.Str("general.architecture")
	if err != nil {
		return nil, err
	}
	if kind, _ := f.StrOr("general.type", "model"); kind != "model" {
		return nil, fmt.Errorf("model: this GGUF file is of type %q, not a model; give it with --adapter", kind)
	}
	fam, err := familyOf(arch, func(f *family) []string { return f.gguf })
	if err != nil {
		return nil, err
	}
	c := &Config{Family: fam.name, EmbedScale: 1}
	c.Name, _ = f.StrOr("general.name", arch)
	k := ggufKeys{f: f, arch: arch}
	c.Context = k.int("context_length", 0)
	c.Dim = k.int("embedding_length", 0)
	c.NumLayers = k.int("block_count", 0)
	c.FF = k.int("feed_forward_length", 0)
	c.Heads = k.int("attention.head_count", 0)
	c.KVHeads = k.int("attention.head_count_kv", c.Heads)
	c.HeadDim = k.int("attention.key_length", c.Dim/max(1, c.Heads))
	c.Eps = float32(k.float("attention.layer_norm_rms_epsilon", 0))
	if v := k.int("attention.value_length", c.HeadDim); v != c.HeadDim && k.err == nil {
		k.err = fmt.Errorf("model: key length %d and value length %d differ, which no supported family has", c.HeadDim, v)
	}
	if k.err != nil {
		return nil, k.err
	}
	embed, ok := f.Tensor("token_embd.weight")
	if !ok || len(embed.Shape()) != 2 {
		return nil, fmt.Errorf("model: the file has no token_embd.weight matrix")
	}
	c.Vocab = embed.Shape()[0]
	_, hasHead := f.Tensor("output.weight")
	c.TiedHead = !hasHead
	if c.NumLayers < 1 || c.NumLayers > 1<<12 {
		return nil, fmt.Errorf("model: %s.block_count is %d, want 1 to 4096", arch, c.NumLayers)
	}
	c.Layers = make([]LayerKind, c.NumLayers)
	c.AttnScale = invSqrt(float64(c.HeadDim))
	rope := RopeConfig{Base: k.float("rope.freq_base", 10000), Dims: k.int("rope.dimension_count", c.HeadDim)}
	if k.err != nil {
		return nil, k.err
	}
	if rope.Dims < 2 || rope.Dims > c.HeadDim {
		return nil, fmt.Errorf("model: %s.rope.dimension_count is %d of %d", arch, rope.Dims, c.HeadDim)
	}
	if err := k.ropeScaling(&rope, c, o); err != nil {
		return nil, err
	}
	c.Ropes = []RopeConfig{rope}
	if err := fam.fromGGUF(f, c, o); err != nil {
		return nil, err
	}
	return c, c.Validate()
}

// ggufKeys reads "<arch>.key" with a sticky error.
type ggufKeys struct {
	f    *gguf.File
	arch string
	err  error
}

func (k *ggufKeys) int(key string, missing int) int {
	key = k.arch + "." + key
	if per, err := k.f.Ints(key); err == nil && len(per) > 0 { // one value a layer
		if slices.Min(per) != slices.Max(per) {
			k.fail(fmt.Errorf("model: %s differs from layer to layer, which no supported family does", key))
		}
		return per[0]
	}
	v, err := k.f.IntOr(key, missing)
	k.fail(err)
	return v
}

func (k *ggufKeys) float(key string, missing float64) float64 {
	v, err := k.f.FloatOr(k.arch+"."+key, missing)
	k.fail(err)
	return v
}

func (k *ggufKeys) fail(err error) {
	if k.err == nil {
		k.err = err
	}
}

func (k *ggufKeys) ropeScaling(r *RopeConfig, c *Config, o Options) error {
	kind, err := k.f.StrOr(k.arch+".rope.scaling.type", "none")
	if err != nil {
		return err
	}
	s := ropeScaling{
		kind: kind, factor: k.float("rope.scaling.factor", 1),
		original: k.int("rope.scaling.original_context_length", c.Context),
		betaFast: k.float("rope.scaling.yarn_beta_fast", 32), betaSlow: k.float("rope.scaling.yarn_beta_slow", 1),
		truncate: true, maxPositions: c.Context,
	}
	source := weights.GGUFSource{File: k.f}
	if k.err != nil {
		return k.err
	}
	if _, ok := k.f.Tensor("rope_freqs.weight"); ok {
		freqs, err := weights.ReadVector(source, "rope_freqs.weight")
		if err != nil {
			return err
		}
		r.Factors = widen(freqs)
		return nil
	}
	if _, ok := k.f.Tensor("rope_factors_long.weight"); ok {
		long, err := weights.ReadVector(source, "rope_factors_long.weight")
		if err != nil {
			return err
		}
		short, err := weights.ReadVector(source, "rope_factors_short.weight")
		if err != nil {
			return err
		}
		s.kind, s.long, s.short = "longrope", widen(long), widen(short)
		s.attention = k.float("rope.scaling.attn_factor", 0)
		s.factor = 0
	}
	return s.apply(r, o.context(c))
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
