package model

import (
	"fmt"
	"math"

	"graft/kernels"
	"graft/kernels/libm"
	"graft/kernels/quant"
)

// makeRopes computes the cos/sin tables for positions 0..context−1, in float64 with functions that
// give the same bits on every platform.
func (m *Model) makeRopes(context int) error {
	for _, r := range m.Config.Ropes {
		t, err := m.Arena.Tensor("rope", kernels.F32, context, r.Dims)
		if err != nil {
			return err
		}
		values := ropeTable(r, context)
		raw := make([]byte, 4*len(values))
		quant.Encode(raw, quant.F32, values)
		m.Backend().Upload(t, raw)
		m.Ropes = append(m.Ropes, kernels.Rope{Table: t, Dims: r.Dims, HeadDim: m.Config.HeadDim, Paired: r.Paired})
	}
	return m.Backend().Sync()
}

func ropeTable(r RopeConfig, context int) []float32 {
	freq := inverseFrequencies(r)
	scale := r.Scale
	if scale == 0 {
		scale = 1
	}
	half := r.Dims / 2
	out := make([]float32, context*r.Dims)
	for p := range context {
		row := out[p*r.Dims : (p+1)*r.Dims]
		for i, f := range freq {
			angle := float64(p) * f
			row[i] = float32(libm.Cos(angle) * scale)
			row[half+i] = float32(libm.Sin(angle) * scale)
		}
	}
	return out
}

// inverseFrequencies: θᵢ = base^(−2i/dims) / factorᵢ.
func inverseFrequencies(r RopeConfig) []float64 {
	out := make([]float64, r.Dims/2)
	for i := range out {
		out[i] = libm.Pow(r.Base, -2*float64(i)/float64(r.Dims))
		if r.Factors != nil {
			out[i] /= r.Factors[i]
		}
	}
	return out
}

// ropeScaling is what either file format says about stretching the positions.
type ropeScaling struct {
	kind         string // "default", "linear", "dynamic", "llama3", "yarn", "longrope"
	factor       float64
	original     int     // original_max_position_embeddings
	lowFreq      float64 // llama3
	highFreq     float64
	betaFast     float64 // yarn
	betaSlow     float64
	mscale       float64
	mscaleAllDim float64
	attention    float64 // attention factor; 0: as the method says
	long, short  []float64
	truncate     bool // yarn: round the correction range
	maxPositions int  // of the stretched model
}

// apply fills Factors and Scale (and Base for "dynamic"). context decides where a method looks at
// the length of the sequence: Graft fixes that when the model is loaded, because a token's result
// may depend on nothing that comes later.
func (s ropeScaling) apply(r *RopeConfig, context int) error {
	constant := func(f float64) []float64 {
		out := make([]float64, r.Dims/2)
		for i := range out {
			out[i] = f
		}
		return out
	}
	switch s.kind {
	case "", "default", "none", "proportional":
	case "linear":
		if !(s.factor > 0) {
			return fmt.Errorf("model: rope scaling factor is %g", s.factor)
		}
		r.Factors = constant(s.factor)
	case "dynamic":
		if n, most := float64(context), float64(s.maxPositions); n > most && r.Dims > 2 {
			grow := s.factor*n/most - (s.factor - 1)
			r.Base *= libm.Pow(grow, float64(r.Dims)/float64(r.Dims-2))
		}
	case "llama3":
		r.Factors = s.llama3(*r)
	case "yarn":
		s.yarn(r)
	case "longrope", "su":
		return s.longrope(r, context)
	default:
		return fmt.Errorf("model: rope scaling %q is not known", s.kind)
	}
	return nil
}

// llama3 (Llama 3.1): long wavelengths are divided by factor, short ones kept, smooth between.
func (s ropeScaling) llama3(r RopeConfig) []float64 {
	out := make([]float64, r.Dims/2)
	old := float64(s.original)
	for i, f := range inverseFrequencies(RopeConfig{Base: r.Base, Dims: r.Dims}) {
		wave := 2 * math.Pi / f
		switch {
		case wave < old/s.highFreq:
			out[i] = 1
		case wave > old/s.lowFreq:
			out[i] = s.factor
		default:
			smooth := (old/wave - s.lowFreq) / (s.highFreq - s.lowFreq)
			out[i] = 1 / (float64((1-smooth)/s.factor) + smooth)
		}
	}
	return out
}

// yarn (Peng et al. 2023): frequencies are interpolated by how often they turn within the original
// context; cos and sin are scaled by 0.1·ln(factor)+1.
func (s ropeScaling) yarn(r *RopeConfig) {
	dims := float64(r.Dims)
	dim := func(turns float64) float64 {
		return dims * libm.Log(float64(s.original)/(turns*2*math.Pi)) / (2 * libm.Log(r.Base))
	}
	low, high := dim(s.betaFast), dim(s.betaSlow)
	if s.truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, dims-1)
	if low == high {
		high += 0.001
	}
	r.Factors = make([]float64, r.Dims/2)
	for i := range r.Factors {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		keep := 1 - ramp
		r.Factors[i] = 1 / (float64((1-keep)/s.factor) + keep)
	}
	mscale := func(m float64) float64 {
		if s.factor <= 1 {
			return 1
		}
		return float64(0.1*m*libm.Log(s.factor)) + 1
	}
	switch {
	case s.attention > 0:
		r.Scale = s.attention
	case s.mscale > 0 && s.mscaleAllDim > 0:
		r.Scale = mscale(s.mscale) / mscale(s.mscaleAllDim)
	default:
		r.Scale = mscale(1)
	}
}

// longrope (phi3): one list of factors within the original context, another beyond it.
func (s ropeScaling) longrope(r *RopeConfig, context int) error {
	r.Factors = s.short
	if context > s.original {
		r.Factors = s.long
	}
	if len(r.Factors) != r.Dims/2 {
		return fmt.Errorf("model: longrope has %d factors for %d pairs", len(r.Factors), r.Dims/2)
	}
	r.Scale = s.attention
	if r.Scale == 0 {
		factor := s.factor
		if factor == 0 {
			factor = float64(s.maxPositions) / float64(s.original)
		}
		r.Scale = 1
		if factor > 1 {
			r.Scale = math.Sqrt(1 + libm.Log(factor)/libm.Log(float64(s.original)))
		}
	}
	return nil
}
