package model

import "graft/weights/gguf"

// phi3: as llama with q, k, v in one matrix and gate, up in another, RoPE by halves, perhaps on a
// part of each head, perhaps longrope.
func phi3() *family {
	return &family{
		name: "phi3",
		gguf: []string{"phi3"},
		hf:   []string{"phi3"},
		fromGGUF: func(f *gguf.File, c *Config, _ Options) error {
			c.FusedQKV, c.FusedGateUp = true, true
			window, err := f.IntOr("phi3.attention.sliding_window", 0)
			for i := range c.Layers {
				c.Layers[i].Window = window
			}
			return err
		},
		fromHF: func(h *hfConfig, c *Config, o Options) error {
			c.FusedQKV, c.FusedGateUp = true, true
			rope, err := h.rope(c, "", o)
			if err != nil {
				return err
			}
			c.Ropes = []RopeConfig{rope}
			return h.windows(c, func(int) bool { return true })
		},
	}
}
