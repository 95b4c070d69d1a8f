package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/kernels/rng"
	"graft/weights"
)

// NewAdapter puts LoRA pairs on the linears that cfg names: A uniform in ±1/√in (PEFT's
// kaiming_uniform with a=√5), B zero, so that it changes nothing yet.
func (m *Model) NewAdapter(id uint64, cfg weights.AdapterConfig, seed uint64, trained bool) (*weights.Adapter, error) {
	sites, err := m.sites(cfg)
	if err != nil {
		return nil, err
	}
	ad, err := weights.NewAdapter(m.Arena, id, len(m.Linears), sites, cfg.RSLoRA, trained)
	if err != nil {
		return nil, err
	}
	ad.Rank, ad.Alpha, ad.Config = cfg.R, cfg.Alpha, cfg
	ad.Config.Precision = new(m.Precision)
	src := rng.New(seed, "lora_a")
	for _, s := range sites {
		pair := ad.Pair(s.Linear.Site)
		bound := 1 / math.Sqrt(float64(s.Linear.W.In))
		a := make([]float32, pair.Rank*s.Linear.W.In)
		for i := range a {
			u := src.Uniform(uint32(s.Linear.Site), uint32(i), uint32(uint64(i)>>32), 0)
			a[i] = float32((2*u - 1) * bound)
		}
		pack(m.Backend(), pair.A, a)
	}
	return ad, m.Backend().Sync()
}

// sites finds the linears that a configuration targets; a name that matches none is an error.
func (m *Model) sites(cfg weights.AdapterConfig) ([]weights.SiteRank, error) {
	all := len(cfg.TargetModules) == 1 && cfg.TargetModules[0] == "all-linear"
	matched := map[string]bool{}
	var out []weights.SiteRank
	for _, l := range m.Linears {
		hit := all
		for _, t := range cfg.TargetModules {
			if suffix(l.Name, t) {
				hit, matched[t] = true, true
			}
		}
		if !hit || cfg.Layers != nil && !slices.Contains(cfg.Layers, layerOf(l.Name)) {
			continue
		}
		out = append(out, weights.SiteRank{Linear: l, Rank: pattern(cfg.RankPattern, l.Name, cfg.R), Alpha: pattern(cfg.AlphaPattern, l.Name, cfg.Alpha)})
	}
	for _, t := range cfg.TargetModules {
		if !all && !matched[t] {
			return nil, fmt.Errorf("model: adapter target module %q matches nothing in this %s model; its linears are %s",
				t, m.Config.Family, strings.Join(m.ModuleNames(), ", "))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("model: the adapter targets no linear of this %s model; its linears are %s",
			m.Config.Family, strings.Join(m.ModuleNames(), ", "))
	}
	return out, nil
}

// ModuleNames lists the last parts of the linears' names, as target modules name them.
func (m *Model) ModuleNames() []string {
	var out []string
	for _, l := range m.Linears {
		if n := l.Name[strings.LastIndex(l.Name, ".")+1:]; !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func suffix(name, part string) bool {
	return name == part || strings.HasSuffix(name, "."+part)
}

func layerOf(name string) int {
	var n int
	if _, err := fmt.Sscanf(name, "model.layers.%d.", &n); err != nil {
		return -1
	}
	return n
}

// pattern looks a module up in PEFT's rank_pattern or alpha_pattern: keys match by suffix; the
// longest wins.
func pattern[T any](p map[string]T, name string, missing T) T {
	keys := make([]string, 0, len(p))
	for k := range p {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		return len(keys[i]) > len(keys[j]) || len(keys[i]) == len(keys[j]) && keys[i] < keys[j]
	})
	for _, k := range keys {
		if suffix(name, strings.TrimPrefix(k, "^")) {
			return p[k]
		}
	}
	return missing
}

// HashAdapter is the SHA-256 of every pair's numbers in order of sites, in checkpoint layout: equal
// hashes mean equal bits, on any backend.
func (m *Model) HashAdapter(ad *weights.Adapter) string {
	h := sha256.New()
	for _, p := range ad.Pairs() {
		fmt.Fprintf(h, "%s %d %g\n", p.Name, p.Rank, p.Alpha)
		h.Write(unpackRaw(m.Backend(), p.A))
		h.Write(unpackRaw(m.Backend(), p.B))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// HashTrained is the same for a fully trained base.
func (m *Model) HashTrained() string {
	h := sha256.New()
	for _, p := range m.Trained {
		raw := make([]byte, 4*p.Value.Cols)
		m.Backend().Download(raw, p.Value)
		fmt.Fprintf(h, "%s\n", p.Name)
		h.Write(raw)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func pack(be kernels.Backend, w kernels.Weight, rows []float32) {
	raw := make([]byte, 4*len(rows))
	quant.Encode(raw, quant.F32, rows)
	be.Pack(w, 0, raw)
}

func unpackRaw(be kernels.Backend, w kernels.Weight) []byte {
	raw := make([]byte, w.Format.Bytes(w.Out*w.In))
	be.Unpack(raw, w, 0)
	return raw
}

// Floats reads a weight back as rows of float32.
func Floats(be kernels.Backend, w kernels.Weight) []float32 {
	out := make([]float32, w.Out*w.In)
	quant.Decode(out, w.Format, unpackRaw(be, w))
	return out
}
