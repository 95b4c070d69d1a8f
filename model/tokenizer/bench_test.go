package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bigVocabulary is a byte-level vocabulary of the size of current models.
func bigVocabulary(size int) map[string]any {
	rng := rand.New(rand.NewPCG(11, 12))
	tokens := ByteAlphabet()
	known := map[string]bool{}
	var merges []string
	for len(tokens) < size {
		left, right := tokens[rng.IntN(len(tokens))], tokens[rng.IntN(min(len(tokens), 4000))]
		if piece := left + right; len(piece) < 16 && !known[piece] {
			known[piece] = true
			tokens, merges = append(tokens, piece), append(merges, left+" "+right)
		}
	}
	types := make([]int32, size)
	for i := range types {
		types[i] = 1
	}
	return map[string]any{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens,
		"tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": merges,
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, size := range []int{50_000, 150_000, 260_000} {
		kv := bigVocabulary(size)
		vocab := map[string]int{}
		for id, piece := range kv["tokenizer.ggml.tokens"].([]string) {
			vocab[piece] = id
		}
		doc, err := json.Marshal(map[string]any{"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": kv["tokenizer.ggml.merges"]}})
		require.NoError(b, err)
		b.Run(fmt.Sprintf("GGUF/%d", size), func(b *testing.B) {
			for b.Loop() {
				_, err := FromGGUF(kv)
				require.NoError(b, err)
			}
		})
		b.Run(fmt.Sprintf("JSON/%d", size), func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				_, err := FromJSON(doc, nil)
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	text := strings.Repeat("The answer to question 12 is that it doesn't matter, said Zoë.\n", 200)
	for _, name := range []string{"gpt-2", "llama-spm"} {
		tok, err := FromGGUF(ggufKV(b, "ggml-vocab-"+name+".gguf"))
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_, err := tok.Encode(text, EncodeOptions{})
				require.NoError(b, err)
			}
		})
	}
}
