package model

import "graft/weights/gguf"

// qwen3: as qwen2 without biases, with an RMSNorm of every head of q and k before RoPE. The heads
// together need not be as wide as the embedding.
func qwen3() *family {
	return &family{
		name: "qwen3",
		gguf: []string{"qwen3"},
		hf:   []string{"qwen3"},
		fromGGUF: func(_ *gguf.File, c *Config, _ Options) error {
			c.QKNorm = true
			return nil
		},
		fromHF: func(h *hfConfig, c *Config, o Options) error {
			c.QKNorm = true
			return qwenFromHF(h, c, o)
		},
	}
}
