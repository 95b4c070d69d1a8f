package model

import (
	"math"

	"graft/kernels"
	"graft/weights/gguf"
)

// gemma3 (text): scaled embeddings, four norms a block, q/k norms, a tanh-GELU gate, and local
// layers with a window and a rope of their own; every sixth layer is global unless the
// configuration says otherwise. GGUF norms already hold 1+w.
func gemma3() *family {
	return &family{
		name: "gemma3",
		gguf: []string{"gemma3"},
		hf:   []string{"gemma3_text"},
		fromGGUF: func(f *gguf.File, c *Config, o Options) error {
			c.gemma()
			k := ggufKeys{f: f, arch: "gemma3"}
			window := k.int("attention.sliding_window", 0)
			local := RopeConfig{Base: k.float("rope.freq_base_swa", 10000), Dims: c.Ropes[0].Dims}
			c.FinalSoftcap = float32(k.float("final_logit_softcapping", 0))
			if k.err != nil {
				return k.err
			}
			if _, given := f.KV["gemma3.rope.freq_base"]; !given {
				c.Ropes[0].Base = 1e6
			}
			c.Ropes = append(c.Ropes, local)
			every := 6
			if n, err := f.Int("gemma3.attention.sliding_window_pattern"); err == nil {
				every = n
			}
			local6 := func(i int) bool { return every <= 0 || (i+1)%every != 0 }
			if per, err := f.Bools("gemma3.attention.sliding_window_pattern"); err == nil && len(per) == c.NumLayers {
				local6 = func(i int) bool { return per[i] }
			}
			for i := range c.Layers {
				if local6(i) {
					c.Layers[i] = LayerKind{Window: window, Rope: 1}
				}
			}
			if c.NumLayers == 62 { // 27B: the scale is that of the embedding's share of a head
				c.AttnScale = invSqrt(float64(c.Dim) / float64(c.Heads))
			}
			return nil
		},
		fromHF: func(h *hfConfig, c *Config, o Options) error {
			c.gemma()
			c.NormPlusOne = true
			if h.Tied == nil {
				c.TiedHead = true // the class's default
			}
			if h.QueryScalar > 0 {
				c.AttnScale = invSqrt(h.QueryScalar)
			}
			if h.AttnSoftcap != nil {
				c.AttnSoftcap = float32(*h.AttnSoftcap)
			}
			if h.FinalSoftcap != nil {
				c.FinalSoftcap = float32(*h.FinalSoftcap)
			}
			global, err := h.rope(c, "full_attention", o)
			if err != nil {
				return err
			}
			local, err := h.rope(c, "sliding_attention", o)
			if err != nil {
				return err
			}
			if len(h.RopeRaw) == 0 { // the older layout names the local base apart and never scales it
				if h.RopeTheta == 0 {
					global.Base = 1e6
				}
				local = RopeConfig{Base: 10000, Dims: c.HeadDim}
				if h.RopeLocal > 0 {
					local.Base = h.RopeLocal
				}
			}
			c.Ropes = []RopeConfig{global, local}
			every := h.WindowPattern
			if every <= 0 {
				every = 6
			}
			if err := h.windows(c, func(i int) bool { return (i+1)%every != 0 }); err != nil {
				return err
			}
			for i := range c.Layers {
				if c.Layers[i].Window > 0 {
					c.Layers[i].Rope = 1
				}
			}
			return nil
		},
	}
}

func (c *Config) gemma() {
	c.QKNorm, c.PostNorm, c.Act = true, true, kernels.GELUTanh
	c.EmbedScale = float32(math.Sqrt(float64(c.Dim)))
}
