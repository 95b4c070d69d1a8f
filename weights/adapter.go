package weights

import (
	"fmt"
	"math"

	"graft/kernels"
)

// Pair is a LoRA pair on one site, with its gradients.
type Pair struct {
	kernels.LowRank
	Name   string // module path, as Linear.Name
	Rank   int
	Alpha  float64
	DA, DB kernels.Weight // absent: the adapter is only used
}

// Cols is the width of the low-rank product: the rank rounded up to the lane count.
func (p *Pair) Cols() int { return (p.Rank + 15) &^ 15 }

// Adapter is a set of LoRA pairs in the arena: what training changes in place and what sampling
// sees at its next token. Version counts the changes. A nil *Adapter is the base model, which is
// also the reference policy.
type Adapter struct {
	ID      uint64 // identity in cache keys; unique in the process
	Version uint64
	Rank    int     // the default rank
	Alpha   float64 // the default alpha
	RSLoRA  bool
	Config  AdapterConfig

	pairs  []*Pair // by site; nil where there is none
	params *kernels.Memory
	grads  *kernels.Memory
	arena  *Arena
}

// AdapterConfig is what PEFT's adapter_config.json says, as far as it matters here.
type AdapterConfig struct {
	R             int
	Alpha         float64
	TargetModules []string // module name suffixes; "all-linear" alone means every linear but the head
	RankPattern   map[string]int
	AlphaPattern  map[string]float64
	Layers        []int // layers_to_transform; nil: all
	RSLoRA        bool
	BaseModel     string // base_model_name_or_path
	// Precision is the contract that the adapter was trained under; nil: its files do not say, as
	// those that PEFT writes.
	Precision *kernels.Precision
}

// Scale is alpha/r, or alpha/√r for rsLoRA (Kalajdzievski 2023).
func Scale(alpha float64, rank int, rslora bool) float32 {
	if rslora {
		return float32(alpha / math.Sqrt(float64(rank)))
	}
	return float32(alpha / float64(rank))
}

// SiteRank says what an adapter puts on one linear.
type SiteRank struct {
	Linear *Linear
	Rank   int
	Alpha  float64
}

// NewAdapter allocates pairs on the given sites, A and B zero. trained: with gradients.
func NewAdapter(arena *Arena, id uint64, numSites int, sites []SiteRank, rslora, trained bool) (*Adapter, error) {
	if len(sites) == 0 {
		return nil, fmt.Errorf("weights: the adapter targets no linear of this model")
	}
	ad := &Adapter{ID: id, Version: 1, RSLoRA: rslora, pairs: make([]*Pair, numSites), arena: arena}
	layout := func(c *Carver, grads bool) {
		for _, s := range sites {
			a := c.Weight(arena.Backend(), s.Rank, s.Linear.W.In)
			b := c.Weight(arena.Backend(), s.Linear.W.Out, s.Rank)
			p := ad.pairs[s.Linear.Site]
			if grads {
				p.DA, p.DB = a, b
			} else {
				p.A, p.B = a, b
			}
		}
	}
	for _, s := range sites {
		if s.Rank < 1 || s.Rank > MaxRank {
			return nil, fmt.Errorf("weights: adapter rank %d on %s is outside 1..%d", s.Rank, s.Linear.Name, MaxRank)
		}
		if ad.pairs[s.Linear.Site] != nil {
			return nil, fmt.Errorf("weights: adapter names %s twice", s.Linear.Name)
		}
		ad.pairs[s.Linear.Site] = &Pair{Name: s.Linear.Name, Rank: s.Rank, Alpha: s.Alpha,
			LowRank: kernels.LowRank{Scale: Scale(s.Alpha, s.Rank, rslora)}}
	}
	count := NewCarver(nil)
	layout(count, false)
	var err error
	if ad.params, err = arena.Alloc("adapter", count.Bytes()); err != nil {
		return nil, err
	}
	layout(NewCarver(ad.params), false)
	if trained {
		if ad.grads, err = arena.Alloc("gradients", count.Bytes()); err != nil {
			arena.Free(ad.params)
			return nil, err
		}
		layout(NewCarver(ad.grads), true)
	}
	return ad, nil
}

// MaxRank is the largest LoRA rank.
const MaxRank = 512

// Pair is the pair on a site, or nil. It is nil-safe: the base model has none.
func (ad *Adapter) Pair(site int) *Pair {
	if ad == nil || site >= len(ad.pairs) {
		return nil
	}
	return ad.pairs[site]
}

// Pairs lists the pairs in order of their sites; the base model has none.
func (ad *Adapter) Pairs() []*Pair {
	if ad == nil {
		return nil
	}
	var out []*Pair
	for _, p := range ad.pairs {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

// MaxCols is the widest low-rank product.
func (ad *Adapter) MaxCols() int {
	w := 0
	for _, p := range ad.Pairs() {
		w = max(w, p.Cols())
	}
	return w
}

// Params is the flat view of every parameter, padding included; it never moves.
func (ad *Adapter) Params() kernels.Tensor { return flat(ad.params) }

// Grads is the flat view of every gradient, in the order of Params.
func (ad *Adapter) Grads() kernels.Tensor { return flat(ad.grads) }

func flat(m *kernels.Memory) kernels.Tensor {
	if m == nil {
		return kernels.Tensor{}
	}
	n := int(m.Bytes / 4)
	return kernels.Tensor{Mem: m, DType: kernels.F32, Rows: 1, Cols: n, Stride: n}
}

// CopyParams copies the parameters of another adapter of the same layout, and its Version: the
// spare slot that keeps a running request on the version it began with.
func (ad *Adapter) CopyParams(from *Adapter) {
	ad.arena.Backend().Copy(ad.Params(), from.Params())
	ad.Version = from.Version
}

// Free returns the adapter's memory.
func (ad *Adapter) Free() {
	ad.arena.Free(ad.params)
	ad.arena.Free(ad.grads)
	ad.params, ad.grads, ad.pairs = nil, nil, nil
}
