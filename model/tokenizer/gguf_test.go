package tokenizer

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/weights/gguf"
)

func ggufKV(t testing.TB, name string) map[string]any {
	t.Helper()
	file, err := gguf.Open(testdata("vocab", name))
	require.NoError(t, err)
	defer file.Close()
	return file.KV
}

func TestMatchesLlamaCpp(t *testing.T) {
	for _, name := range []string{"gpt-2", "llama-spm", "phi-3"} {
		t.Run(name, func(t *testing.T) {
			tok, err := FromGGUF(ggufKV(t, "ggml-vocab-"+name+".gguf"))
			require.NoError(t, err)
			texts, want := llamaVectors(t, name)
			require.Len(t, want, len(texts))
			for i, text := range texts {
				ids, err := tok.Encode(text, EncodeOptions{})
				require.NoError(t, err)
				require.Equal(t, want[i], ids, "ids of %q", text)
				require.Equal(t, text, decodeBoth(t, tok, ids, false))
			}
		})
	}
}

// llamaVectors reads texts and ids as llama.cpp's tests keep them.
func llamaVectors(t testing.TB, name string) (texts []string, ids [][]int32) {
	t.Helper()
	in, err := os.ReadFile(testdata("vocab", "ggml-vocab-"+name+".gguf.inp"))
	require.NoError(t, err)
	out, err := os.ReadFile(testdata("vocab", "ggml-vocab-"+name+".gguf.out"))
	require.NoError(t, err)
	texts = strings.Split(string(in), "\n__ggml_vocab_test__\n")
	for _, line := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		row := []int32{}
		for _, field := range strings.Fields(line) {
			id, err := strconv.ParseInt(field, 10, 32)
			require.NoError(t, err)
			row = append(row, int32(id))
		}
		ids = append(ids, row)
	}
	if len(texts) > len(ids) { // the file ends with a separator
		texts = texts[:len(ids)]
	}
	return texts, ids
}
