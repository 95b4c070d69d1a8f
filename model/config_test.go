package model

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// sound is a configuration that nothing is wrong with.
func sound() Config {
	return Config{
		Family: "llama", Vocab: 16, Dim: 8, NumLayers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, FF: 16, Context: 32, Eps: 1e-5,
		Layers: []LayerKind{{}}, Ropes: []RopeConfig{{Base: 10000, Dims: 4}},
	}
}

func TestValidateNamesTheNumber(t *testing.T) {
	c := sound()
	require.NoError(t, c.Validate())
	for want, harm := range map[string]func(*Config){
		"vocabulary is 0, want 1 to":                      func(c *Config) { c.Vocab = 0 },
		"layers is 5000, want 1 to":                       func(c *Config) { c.NumLayers = 5000 },
		"2 attention heads do not divide among 3":         func(c *Config) { c.KVHeads = 3 },
		"the norm epsilon is NaN":                         func(c *Config) { c.Eps = float32(math.NaN()) },
		"1 layer kinds for 2 layers":                      func(c *Config) { c.NumLayers = 2 },
		"rope 1 of 1":                                     func(c *Config) { c.Layers[0].Rope = 1 },
		"rope turns 6 of 4":                               func(c *Config) { c.Ropes[0].Dims = 6 },
		"rope base is 0, want a finite number":            func(c *Config) { c.Ropes[0].Base = 0 },
		"rope base is NaN, want a finite number":          func(c *Config) { c.Ropes[0].Base = math.NaN() },
		"rope base is +Inf, want a finite number above 0": func(c *Config) { c.Ropes[0].Base = math.Inf(1) },
		"3 rope factors for 2 pairs":                      func(c *Config) { c.Ropes[0].Factors = make([]float64, 3) },
	} {
		c := sound()
		harm(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
}
