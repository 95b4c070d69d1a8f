package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testdata returns a path below the project's golden data, or below GRAFT_GOLDEN for another set of the same layout.
func testdata(parts ...string) string {
	root := os.Getenv("GRAFT_GOLDEN")
	if root == "" {
		root = filepath.Join("..", "..", "tests", "testdata")
	}
	return filepath.Join(append([]string{root}, parts...)...)
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, v))
}

func loadJSON(t testing.TB, name string) *Tokenizer {
	t.Helper()
	data, err := os.ReadFile(testdata("golden-hf", "tokenizers", name+".tokenizer.json"))
	require.NoError(t, err)
	tok, err := FromJSON(data, nil)
	require.NoError(t, err)
	return tok
}

// goldenNames are the tokenizers of golden-hf/tokenizers.
func goldenNames() []string {
	return []string{
		"bbpe-gpt2", "bbpe-llama3", "bbpe-qwen2", "bbpe-smollm", "bbpe-deepseek3", "spbpe-llama2",
		"spbpe-llama2-metaspace", "spbpe-gemma", "unigram-t5", "wordpiece-bert",
	}
}

func goldenStrings(t testing.TB) []string {
	var s []string
	readJSON(t, testdata("golden-hf", "tokenizers", "strings.json"), &s)
	require.Greater(t, len(s), 100)
	return s
}

// golden is what the reference library made of the strings.
type golden struct {
	VocabSize   int        `json:"vocab_size_with_added"`
	IDs         [][]int32  `json:"ids"`
	Special     [2][]int32 `json:"special_prefix_suffix"`
	Decoded     []*string  `json:"decoded"`
	Skipped     []*string  `json:"decoded_skip_special_of_ids_with_special"`
	DecodeCases []struct {
		IDs  []int32 `json:"ids"`
		Text string  `json:"text"`
		Skip string  `json:"text_skip_special"`
	} `json:"decode_cases"`
}

func TestMatchesHuggingFace(t *testing.T) {
	texts := goldenStrings(t)
	for _, name := range goldenNames() {
		t.Run(name, func(t *testing.T) {
			tok := loadJSON(t, name)
			var want golden
			readJSON(t, testdata("golden-hf", "tokenizers", name+".golden.json"), &want)
			require.Equal(t, want.VocabSize, tok.VocabSize())
			require.Len(t, want.IDs, len(texts))
			for i, text := range texts {
				ids, err := tok.Encode(text, EncodeOptions{})
				require.NoError(t, err)
				require.Equal(t, want.IDs[i], ids, "ids of %q", text)

				all, err := tok.Encode(text, EncodeOptions{AddSpecial: true})
				require.NoError(t, err)
				around := append(append(append([]int32{}, want.Special[0]...), want.IDs[i]...), want.Special[1]...)
				require.Equal(t, around, all, "ids with special tokens of %q", text)

				require.Equal(t, textOr(want.Decoded[i], text), decodeBoth(t, tok, ids, false), "decoded %v", ids)
				require.Equal(t, textOr(want.Skipped[i], text), decodeBoth(t, tok, all, true), "decoded %v without special", all)
			}
			for _, c := range want.DecodeCases {
				require.Equal(t, c.Text, decodeBoth(t, tok, c.IDs, false), "decoded %v", c.IDs)
				require.Equal(t, c.Skip, decodeBoth(t, tok, c.IDs, true), "decoded %v without special", c.IDs)
			}
		})
	}
}

func textOr(p *string, otherwise string) string {
	if p == nil {
		return otherwise
	}
	return *p
}

// decodeBoth decodes at once and token by token, which must agree.
func decodeBoth(t testing.TB, tok *Tokenizer, ids []int32, skip bool) string {
	t.Helper()
	whole := tok.Decode(ids, skip)
	s := tok.Stream(skip)
	var b strings.Builder
	for _, id := range ids {
		part := s.Push(id)
		b.WriteString(part)
	}
	b.WriteString(s.Flush())
	require.Equal(t, whole, b.String(), "stream of %v", ids)
	return whole
}
