package tokenizer

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProtectedTextIsPlainText: whatever a user writes, the ids of the protected text are those of the plain text, and
// the template's own tokens around it stay tokens.
func TestProtectedTextIsPlainText(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, name := range goldenNames() {
		tok := loadJSON(t, name)
		parts := []string{"a", " ", "<", "|", ">", "the", sentinel, breakMark, escapeMark, "\uFDD1", "\uFDD2", "\n", "é"}
		for _, special := range tok.specials.tokens {
			c := special.content
			parts = append(parts, c, c, c[:len(c)/2], c[len(c)/2:])
		}
		start, end := tok.specials.tokens[0], tok.specials.tokens[len(tok.specials.tokens)-1]
		for range 400 {
			var b strings.Builder
			for range 1 + rng.IntN(6) {
				b.WriteString(parts[rng.IntN(len(parts))])
			}
			user := b.String()
			require.Equal(t, encode(t, tok, user, EncodeOptions{PlainText: true}), encode(t, tok, tok.Protect(user), EncodeOptions{}), "%s: %q", name, user)

			rendered := start.content + tok.Protect(user) + tok.Protect(user) + end.content
			specials := 0
			unk, _ := tok.UNK()
			for _, id := range encode(t, tok, rendered, EncodeOptions{}) {
				if tok.IsSpecial(id) && (id != unk || id == start.id || id == end.id) {
					specials++
				}
			}
			if unk != start.id && unk != end.id {
				require.Equal(t, 2, specials, "%s: %q rendered as %q", name, user, rendered)
			}
		}
	}
}

func TestProtectLeavesHarmlessTextAlone(t *testing.T) {
	tok := loadJSON(t, "bbpe-qwen2")
	for _, text := range []string{"", "hello", "a < b", "<think>\nhm\n</think>", "<tool_call>{}</tool_call>", "x <|notaspecial|> y"} {
		assert.Equal(t, text, tok.Protect(text))
	}
	assert.NotEqual(t, "<|im_end|>", tok.Protect("<|im_end|>"))
	assert.NotContains(t, tok.Protect("a<|im_end|>b"), "<|im_end|>")
}

func TestProtectSeesThroughNormalization(t *testing.T) {
	data, err := os.ReadFile(testdata("golden-hf", "tokenizers", "bbpe-qwen2.tokenizer.json"))
	require.NoError(t, err)
	text := strings.Replace(string(data), `"normalizer":{"type":"NFC"}`, `"normalizer":{"type":"NFKC"}`, 1)
	text = strings.ReplaceAll(text, `"normalizer": {"type": "NFC"}`, `"normalizer": {"type": "NFKC"}`)
	text = strings.ReplaceAll(text, `"normalized":false`, `"normalized":true`)
	text = strings.ReplaceAll(text, `"normalized": false`, `"normalized": true`)
	require.NotEqual(t, string(data), text)
	tok, err := FromJSON([]byte(text), nil)
	require.NoError(t, err)
	end := mustID(t, tok, "<|im_end|>")
	user := "＜|im_end|＞ and <|im_end|>"
	require.Contains(t, encode(t, tok, user, EncodeOptions{}), end, "full-width brackets normalize to the token")
	require.Equal(t, encode(t, tok, user, EncodeOptions{PlainText: true}), encode(t, tok, tok.Protect(user), EncodeOptions{}))
	ids := encode(t, tok, "<|im_start|>"+tok.Protect(user)+"<|im_end|>", EncodeOptions{})
	assert.Equal(t, mustID(t, tok, "<|im_start|>"), ids[0])
	assert.Equal(t, end, ids[len(ids)-1])
	assert.NotContains(t, ids[1:len(ids)-1], end)
}

func TestUnprotectedSentinelSurvives(t *testing.T) {
	tok := loadJSON(t, "bbpe-gpt2")
	for _, text := range []string{sentinel, "a" + sentinel + "b", sentinel + sentinel} {
		assert.Equal(t, text, tok.Decode(encode(t, tok, text, EncodeOptions{}), false))
	}
	all := breakMark + sentinel + escapeMark
	assert.Equal(t, all, tok.Decode(encode(t, tok, all, EncodeOptions{PlainText: true}), false))
	assert.Equal(t, all, tok.Decode(encode(t, tok, tok.Protect(all), EncodeOptions{}), false))
}
