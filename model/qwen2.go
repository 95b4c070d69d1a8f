package model

import "graft/weights/gguf"

// qwen2: as llama, with biases on q, k, v and RoPE by halves. Qwen 2, 2.5 and their Coder models.
func qwen2() *family {
	return &family{
		name:     "qwen2",
		gguf:     []string{"qwen2"},
		hf:       []string{"qwen2"},
		fromGGUF: func(*gguf.File, *Config, Options) error { return nil },
		fromHF:   qwenFromHF,
	}
}

func qwenFromHF(h *hfConfig, c *Config, o Options) error {
	rope, err := h.rope(c, "", o)
	if err != nil {
		return err
	}
	c.Ropes = []RopeConfig{rope}
	if h.UseWindow == nil || !*h.UseWindow {
		return nil
	}
	return h.windows(c, func(i int) bool { return i >= h.MaxWindow })
}
