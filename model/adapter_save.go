package model

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"graft/kernels/quant"
	"graft/weights"
	"graft/weights/gguf"
	"graft/weights/safetensors"
)

// SavePEFT writes adapter_config.json and adapter_model.safetensors into dir, as PEFT and vLLM read
// them, with the precision contract that the adapter was trained under. Each file is written aside and renamed.
func (m *Model) SavePEFT(ad *weights.Adapter, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	var tensors []safetensors.TensorData
	for _, p := range ad.Pairs() {
		l := m.Linears[m.siteOf(p)]
		b := Floats(m.Backend(), p.B)
		if l.HeadDim > 0 {
			b = reorderHeads(b, p.Rank, l.HeadDim, false)
		}
		tensors = append(tensors,
			safetensors.Float32s(peftPrefix+p.Name+".lora_A.weight", []int{p.Rank, l.W.In}, Floats(m.Backend(), p.A)),
			safetensors.Float32s(peftPrefix+p.Name+".lora_B.weight", []int{l.W.Out, p.Rank}, b))
	}
	notes := map[string]string{"format": "pt"}
	if p := ad.Config.Precision; p != nil {
		notes[precisionKey] = p.String()
	}
	if err := safetensors.WriteFile(filepath.Join(dir, peftFileName), tensors, notes); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(m.peftConfig(ad), "", "  ")
	if err != nil {
		return err
	}
	return weights.WriteFile(filepath.Join(dir, peftConfigName), append(raw, '\n'))
}

func (m *Model) peftConfig(ad *weights.Adapter) peftConfig {
	targets := map[string]bool{}
	rank, alpha := map[string]int{}, map[string]float64{}
	for _, p := range ad.Pairs() {
		targets[p.Name[strings.LastIndex(p.Name, ".")+1:]] = true
		if p.Rank != ad.Rank {
			rank[p.Name] = p.Rank
		}
		if p.Alpha != ad.Alpha {
			alpha[p.Name] = p.Alpha
		}
	}
	names := make([]string, 0, len(targets))
	for n := range targets {
		names = append(names, n)
	}
	sort.Strings(names)
	cfg := peftConfig{PeftType: "LORA", TaskType: "CAUSAL_LM", Base: ad.Config.BaseModel, R: ad.Rank, Alpha: ad.Alpha, Bias: "none",
		TargetModules: names, RankPattern: rank, AlphaPattern: alpha, RSLoRA: ad.RSLoRA, Inference: true, InitWeights: true}
	if ad.Config.Layers != nil {
		cfg.Layers = ad.Config.Layers
	}
	return cfg
}

// SaveAdapterGGUF writes the adapter as llama.cpp reads it.
func (m *Model) SaveAdapterGGUF(ad *weights.Adapter, path string) error {
	kv := []gguf.KV{
		{Key: "general.architecture", Value: m.Config.Family}, {Key: "general.type", Value: "adapter"},
		{Key: "adapter.type", Value: "lora"}, {Key: "adapter.lora.alpha", Value: float32(ad.Alpha)},
	}
	if p := ad.Config.Precision; p != nil {
		kv = append(kv, gguf.KV{Key: precisionKey, Value: p.String()})
	}
	var tensors []gguf.TensorData
	for _, p := range ad.Pairs() {
		l := m.Linears[m.siteOf(p)]
		if p.Alpha != ad.Alpha || ad.RSLoRA {
			return fmt.Errorf("model: an adapter GGUF has one alpha and no rsLoRA; %s has its own: export as PEFT", p.Name)
		}
		b := Floats(m.Backend(), p.B)
		if m.pairedOrder() && !m.Config.PermutedQK && (strings.HasSuffix(l.GGUF, ".attn_q") || strings.HasSuffix(l.GGUF, ".attn_k")) {
			b = reorderHeads(b, p.Rank, m.Config.HeadDim, true)
		}
		tensors = append(tensors,
			ggufFloats(l.GGUF+".weight.lora_a", []uint64{uint64(l.W.In), uint64(p.Rank)}, Floats(m.Backend(), p.A)),
			ggufFloats(l.GGUF+".weight.lora_b", []uint64{uint64(p.Rank), uint64(l.W.Out)}, b))
	}
	return gguf.WriteFile(path, kv, tensors)
}

func ggufFloats(name string, dims []uint64, values []float32) gguf.TensorData {
	return gguf.TensorData{Name: name, Dims: dims, Format: quant.F32, WriteTo: WriteFloats(values)}
}

// WriteFloats writes values as little-endian float32, for the writers of tensor files.
func WriteFloats(values []float32) func(io.Writer) error {
	return writeAs(quant.F32, func() []float32 { return values })
}

// writeAs encodes values when they are asked for.
func writeAs(f quant.Format, values func() []float32) func(io.Writer) error {
	return func(w io.Writer) error {
		x := values()
		raw := make([]byte, f.Bytes(len(x)))
		quant.Encode(raw, f, x)
		_, err := w.Write(raw)
		return err
	}
}
