package gguf

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels/quant"
)

const goldenDir = "../../tests/testdata/golden-gguf"

// filled returns the values of tensor k (from 1 on) of a golden model, as its
// README defines them.
func filled(n int64, k uint32, scale float64, base float32) []float32 {
	out, s := make([]float32, n), k
	for i := range out {
		s = s*1664525 + 1013904223
		out[i] = float32((float64(s>>16)/65536-0.5)*2*scale) + base
	}
	return out
}

func TestOpenGoldenLlama(t *testing.T) {
	f, err := Open(filepath.Join(goldenDir, "llama.gguf"))
	require.NoError(t, err)
	defer f.Close()
	require.EqualValues(t, 3, f.Version)
	require.Equal(t, 32, f.Alignment)
	arch, err := f.Str("general.architecture")
	require.NoError(t, err)
	require.Equal(t, "llama", arch)
	blocks, err := f.Int("llama.block_count")
	require.NoError(t, err)
	require.Equal(t, 2, blocks)
	eps, err := f.Float("llama.attention.layer_norm_rms_epsilon")
	require.NoError(t, err)
	require.InDelta(t, 1e-5, eps, 1e-11)
	tokens, err := f.Strings("tokenizer.ggml.tokens")
	require.NoError(t, err)
	require.Len(t, tokens, 280)
	require.Len(t, f.Keys, len(f.KV))

	for _, c := range []struct {
		name  string
		k     uint32
		scale float64
		base  float32
		shape []int
	}{
		{"token_embd.weight", 1, .5, 0, []int{280, 64}},
		{"output_norm.weight", 2, .2, 1, []int{64}},
		{"output.weight", 3, .3, 0, []int{280, 64}},
		{"blk.0.attn_norm.weight", 4, .2, 1, []int{64}},
		{"blk.0.attn_k.weight", 6, .2, 0, []int{32, 64}},
		{"blk.1.ffn_down.weight", 21, .2, 0, []int{64, 128}},
	} {
		x, ok := f.Tensor(c.name)
		require.True(t, ok, c.name)
		require.Equal(t, quant.F32, x.Format)
		require.Equal(t, c.shape, x.Shape(), c.name)
		got := make([]float32, x.Elements())
		require.NoError(t, f.Decode(x, got))
		require.Equal(t, filled(x.Elements(), c.k, c.scale, c.base), got, c.name)
	}
	_, ok := f.Tensor("no such tensor")
	require.False(t, ok)
}

func TestQuantizedTwinsAreNearTheirOriginals(t *testing.T) {
	for name, tolerance := range map[string]float64{"llama-Q4_0": .07, "llama-Q8_0": .004, "qwen3-Q4_0": .07, "qwen3-Q8_0": .004} {
		t.Run(name, func(t *testing.T) {
			twin, err := Open(filepath.Join(goldenDir, name+".gguf"))
			require.NoError(t, err)
			defer twin.Close()
			f, err := Open(filepath.Join(goldenDir, name[:5]+".gguf"))
			require.NoError(t, err)
			defer f.Close()
			require.Len(t, twin.Tensors, len(f.Tensors))
			quantized := 0
			for i := range f.Tensors {
				x := &f.Tensors[i]
				q, ok := twin.Tensor(x.Name)
				require.True(t, ok)
				require.Equal(t, x.Dims, q.Dims)
				if q.Format != quant.F32 {
					quantized++
				}
				want, got := make([]float32, x.Elements()), make([]float32, q.Elements())
				require.NoError(t, f.Decode(x, want))
				require.NoError(t, twin.Decode(q, got))
				worst := 0.0
				for j := range want {
					worst = max(worst, math.Abs(float64(want[j]-got[j])))
				}
				require.LessOrEqual(t, worst, tolerance, x.Name)
			}
			require.NotZero(t, quantized)
		})
	}
}

func TestOpenEveryGolden(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(goldenDir, "*.gguf"))
	require.NoError(t, err)
	require.Len(t, paths, 11)
	for _, path := range paths {
		f, err := Open(path)
		require.NoError(t, err, path)
		info, err := os.Stat(path)
		require.NoError(t, err)
		last := f.Tensors[len(f.Tensors)-1]
		end, _ := padded(last.Offset+last.Size, f.Alignment)
		require.GreaterOrEqual(t, end, info.Size(), "%s: bytes after the last tensor", path)
		require.NoError(t, f.Close())
	}
}

func TestReadAtParts(t *testing.T) {
	f, err := Open(filepath.Join(goldenDir, "llama-Q8_0.gguf"))
	require.NoError(t, err)
	defer f.Close()
	x, _ := f.Tensor("output.weight")
	whole, parts := make([]byte, x.Size), make([]byte, x.Size)
	require.NoError(t, f.ReadAt(x, whole, 0))
	for off := 0; off < len(parts); off += 1000 {
		require.NoError(t, f.ReadAt(x, parts[off:min(off+1000, len(parts))], int64(off)))
	}
	require.Equal(t, whole, parts)
	require.ErrorContains(t, f.ReadAt(x, whole, 1), "output.weight")
	require.Error(t, f.ReadAt(x, whole[:1], -1))
	require.Error(t, f.ReadAt(x, nil, x.Size+1))
	require.Error(t, f.Decode(x, make([]float32, 3)))

	all, row := make([]float32, x.Elements()), make([]float32, x.Dims[0])
	require.NoError(t, f.Decode(x, all))
	for i := int64(0); i < x.Elements(); i += int64(len(row)) {
		require.NoError(t, f.DecodeAt(x, row, i))
		require.Equal(t, all[i:i+int64(len(row))], row)
	}
	require.Error(t, f.DecodeAt(x, row, x.Elements()), "past the end")
	require.Error(t, f.DecodeAt(x, row, 1), "inside a block")
	require.Error(t, f.DecodeAt(x, row, -32))
}
