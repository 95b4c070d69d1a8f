package model

import (
	"fmt"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/weights"
	"graft/weights/gguf"
)

// SaveGGUF writes the model's weights with the given keys, which must describe it: those of the
// file it came from, or new ones. format chooses how a matrix is stored; norms and biases stay F32.
// Only models whose weights lie as GGUF has them (loaded from GGUF) can be written.
func (m *Model) SaveGGUF(path string, kv []gguf.KV, format func(name string, rows, cols int) quant.Format) error {
	var tensors []gguf.TensorData
	matrix := func(name string, w kernels.Weight) {
		f := format(name, w.Out, w.In)
		tensors = append(tensors, gguf.TensorData{Name: name, Dims: []uint64{uint64(w.In), uint64(w.Out)}, Format: f,
			WriteTo: writeAs(f, func() []float32 { return Floats(m.Backend(), w) })})
	}
	vector := func(name string, t kernels.Tensor) {
		if t.Present() {
			tensors = append(tensors, gguf.TensorData{Name: name, Dims: []uint64{uint64(t.Cols)}, Format: quant.F32,
				WriteTo: writeAs(quant.F32, func() []float32 { return m.download(t) })})
		}
	}
	n := ggufNames()
	matrix(n.embed+".weight", m.Embed.W)
	vector(n.final+".weight", m.Final.W)
	if !m.Config.TiedHead {
		matrix(n.head+".weight", m.Head.W)
	}
	for i := range m.Layers {
		l := &m.Layers[i]
		prefix := fmt.Sprintf("blk.%d.", i)
		norms := []struct {
			name string
			norm weights.Norm
		}{{n.attnNorm, l.AttnNorm}, {n.qNorm, l.QNorm}, {n.kNorm, l.KNorm}, {n.postAttn, l.PostAttnNorm}, {n.ffNorm, l.FFNorm}, {n.postFF, l.PostFFNorm}}
		for _, v := range norms {
			vector(prefix+v.name+".weight", v.norm.W)
		}
		for _, lin := range []*weights.Linear{l.Q, l.K, l.V, l.QKV, l.O, l.Gate, l.Up, l.GateUp, l.Down} {
			if lin != nil {
				matrix(lin.GGUF+".weight", lin.W)
				vector(lin.GGUF+".bias", lin.Bias)
			}
		}
	}
	return gguf.WriteFile(path, kv, tensors)
}

func (m *Model) download(t kernels.Tensor) []float32 {
	out := make([]float32, t.Cols)
	m.Backend().Download(bytesOf(out), t)
	return out
}
