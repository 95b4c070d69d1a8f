package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/model"
	"graft/weights/safetensors"
)

// halves moves rows from the paired order of llama's GGUF files, pairs (2i, 2i+1) of a head, to the
// order of checkpoints, (i, i+half): written from the layout's definition, not from the loader.
func halves(rows []float32, width, headDim int) []float32 {
	out := make([]float32, len(rows))
	for r := range len(rows) / width {
		head, i := r/headDim, r%headDim
		to := head*headDim + i/2
		if i%2 == 1 {
			to += headDim / 2
		}
		copy(out[to*width:(to+1)*width], rows[r*width:(r+1)*width])
	}
	return out
}

// asCheckpoint writes a llama GGUF model as a Hugging Face folder.
func asCheckpoint(t *testing.T, be kernels.Backend, m *model.Model) string {
	t.Helper()
	folder := t.TempDir()
	c := m.Config
	var tensors []safetensors.TensorData
	put := func(name string, shape []int, values []float32) {
		tensors = append(tensors, safetensors.Float32s(name, shape, values))
	}
	put("model.embed_tokens.weight", []int{c.Vocab, c.Dim}, model.Floats(be, m.Embed.W))
	put("lm_head.weight", []int{c.Vocab, c.Dim}, model.Floats(be, m.Head.W))
	put("model.norm.weight", []int{c.Dim}, m.Final.W.F32())
	for _, l := range m.Layers {
		put(l.AttnNorm.Name, []int{c.Dim}, l.AttnNorm.W.F32())
		put(l.FFNorm.Name, []int{c.Dim}, l.FFNorm.W.F32())
	}
	for _, l := range m.Linears {
		values := model.Floats(be, l.W)
		if strings.HasSuffix(l.Name, "q_proj") || strings.HasSuffix(l.Name, "k_proj") {
			values = halves(values, l.W.In, c.HeadDim)
		}
		put(l.Name+".weight", []int{l.W.Out, l.W.In}, values)
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(folder, "model.safetensors"), tensors, nil))
	raw, err := json.Marshal(map[string]any{
		"model_type": "llama", "vocab_size": c.Vocab, "hidden_size": c.Dim, "intermediate_size": c.FF, "num_hidden_layers": c.NumLayers,
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim, "max_position_embeddings": 64,
		"rms_norm_eps": c.Eps, "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": false})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), raw, 0o666))
	return folder
}

// TestAdapterCrossesFormats carries llama.cpp's adapter from GGUF to a PEFT folder, onto the same
// model as a checkpoint, and back to GGUF: the log-probs stay those that llama.cpp gives.
func TestAdapterCrossesFormats(t *testing.T) {
	be := backend(t)
	root := dir(t, "golden-gguf")
	ref := readGGUFRef(t, filepath.Join(root, "refl.json"))
	fromGGUF := load(t, be, filepath.Join(root, "llama.gguf"), model.Options{Context: 64})
	original, err := fromGGUF.LoadAdapter(filepath.Join(root, "lora.gguf"), 1, false)
	require.NoError(t, err)

	peft := filepath.Join(t.TempDir(), "peft")
	require.NoError(t, fromGGUF.SavePEFT(original, peft))
	checkpoint := load(t, be, asCheckpoint(t, be, fromGGUF), model.Options{Context: 64})
	onCheckpoint, err := checkpoint.LoadAdapter(peft, 2, false)
	require.NoError(t, err)
	checkGGUF(t, checkpoint, onCheckpoint, ref.IDs, ref.Models["llama"])

	again, err := fromGGUF.LoadAdapter(peft, 3, false)
	require.NoError(t, err)
	require.Equal(t, fromGGUF.HashAdapter(original), fromGGUF.HashAdapter(again))

	back := filepath.Join(t.TempDir(), "back.gguf")
	require.NoError(t, checkpoint.SaveAdapterGGUF(onCheckpoint, back))
	returned, err := fromGGUF.LoadAdapter(back, 4, false)
	require.NoError(t, err)
	require.Equal(t, fromGGUF.HashAdapter(original), fromGGUF.HashAdapter(returned))
	reloaded, err := checkpoint.LoadAdapter(back, 5, false)
	require.NoError(t, err)
	require.Equal(t, checkpoint.HashAdapter(onCheckpoint), checkpoint.HashAdapter(reloaded))
}
