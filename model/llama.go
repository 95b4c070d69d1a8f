package model

import "graft/weights/gguf"

// llama: Llama 2 and 3.x, Mistral, SmolLM 1 and 2, TinyLlama. Plain pre-norm blocks. GGUF files
// hold q and k with their rows in paired order (2i, 2i+1); Hugging Face's are split in halves.
func llama() *family {
	return &family{
		name: "llama",
		gguf: []string{"llama"},
		hf:   []string{"llama", "mistral"},
		fromGGUF: func(f *gguf.File, c *Config, o Options) error {
			c.Ropes[0].Paired = true
			c.PermutedQK = true
			window, err := f.IntOr("llama.attention.sliding_window", 0)
			for i := range c.Layers {
				c.Layers[i].Window = window
			}
			return err
		},
		fromHF: func(h *hfConfig, c *Config, o Options) error {
			rope, err := h.rope(c, "", o)
			if err != nil {
				return err
			}
			c.Ropes = []RopeConfig{rope}
			return h.windows(c, func(int) bool { return h.ModelType == "mistral" })
		},
	}
}
