package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func encode(t testing.TB, tok *Tokenizer, text string, opt EncodeOptions) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, opt)
	require.NoError(t, err)
	return ids
}

// reference merges a word by the definition of BPE: the lowest rank, leftmost, again and again.
func reference(m *bpe, word string) []int32 {
	var ids []int32
	for i := 0; i < len(word); i++ {
		ids = append(ids, m.byteIDs[word[i]])
	}
	for {
		best, at, made := uint32(1<<32-1), -1, int32(0)
		for i := 0; i+1 < len(ids); i++ {
			if rank, id, ok := m.merges.get(ids[i], ids[i+1]); ok && rank < best {
				best, at, made = rank, i, id
			}
		}
		if at < 0 {
			return ids
		}
		ids = append(append(slices.Clone(ids[:at]), made), ids[at+2:]...)
	}
}

func TestShortAndLongMergesAgreeWithDefinition(t *testing.T) {
	m := loadJSON(t, "bbpe-gpt2").model.(*bpe)
	rng := rand.New(rand.NewPCG(1, 2))
	var s scratch
	for range 300 {
		word := make([]byte, 1+rng.IntN(3*shortWord))
		for i := range word {
			word[i] = "aeithnrs  "[rng.IntN(10)]
		}
		want := reference(m, string(word))
		require.Equal(t, want, m.tokenize(nil, string(word), &s), "%q", word)
		s.symbols = s.symbols[:0]
		for _, c := range word {
			s.symbols = append(s.symbols, symbol{id: m.byteIDs[c]})
		}
		require.Equal(t, want, m.mergeLong(nil, &s), "heap, %q", word)
	}
}

func TestByteTextIsABijection(t *testing.T) {
	seen := map[rune]bool{}
	for b := range 256 {
		r := byteRune(byte(b))
		back, ok := runeByte(r)
		require.True(t, ok)
		require.Equal(t, byte(b), back)
		require.False(t, seen[r])
		seen[r] = true
	}
	assert.Equal(t, 'Ġ', byteRune(' '))
	assert.Equal(t, 'Ċ', byteRune('\n'))
	for r := rune(0); r < 0x200; r++ {
		_, ok := runeByte(r)
		require.Equal(t, seen[r], ok, "U+%04X", r)
	}
}

// TestCategories compares with Go's older tables, where they know a character, and at places they do not.
func TestCategories(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if isSpace(r) != unicode.Is(unicode.White_Space, r) {
			t.Fatalf("white space U+%04X", r)
		}
		if !unicode.IsGraphic(r) {
			continue
		}
		if isLetter(r) != unicode.IsLetter(r) || isNumber(r) != unicode.IsNumber(r) || isMark(r) != unicode.IsMark(r) ||
			isPunct(r) != unicode.IsPunct(r) || isSymbol(r) != unicode.IsSymbol(r) {
			t.Fatalf("category of U+%04X is %d", r, categoryOf(r))
		}
	}
	assert.Equal(t, "16.0.0", unicodeVersion)
	assert.True(t, isLetter(0x2EBF0), "an ideograph of Unicode 15.1")
	assert.True(t, isLetter(0x1C89), "a Cyrillic letter of Unicode 16")
	assert.Equal(t, catCn, categoryOf(-1))
	assert.Equal(t, catCn, categoryOf(unicode.MaxRune+1))
}

// TestScannersMatchTheirPatterns holds every scanner against the engine that runs unknown patterns, on characters that
// its older Unicode tables know.
func TestScannersMatchTheirPatterns(t *testing.T) {
	alphabet := []rune("abXY019 \t\n\r.,'/!<é中かカ한²½٣ʰǅ\u0301\u0903\u00a0\u3000\u0085\u200d😀_$stremdlvſSLDTſ\x01\ue000")
	patterns := []string{
		gpt2Pattern, gpt2ShortPattern, llama3Pattern, qwen2Pattern, qwen35Pattern, deepseekPattern, deepseekEscaped, kanaPattern,
		digits3Pattern, digitPattern, digitsPattern, ascii3Pattern, falconPattern, defaultPattern, tekkenPattern, gpt4oPattern, gpt4oShortPattern,
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for _, expr := range patterns {
		fast, ok := scannerFor(expr)
		require.True(t, ok)
		// \s and the case of ſ differ between engines; say what is meant.
		spelled := strings.NewReplacer(`[^\s`, `[^\t-\r\x20\x85\xA0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000`,
			`\s`, `[\t-\r\x20\x85\xA0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]`,
			`\S`, `[^\t-\r\x20\x85\xA0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]`,
			`(?i:'s|`, `(?i:'s|'ſ|`, `(?i:[sdmt]`, `(?i:[sſdmt]`).Replace(expr)
		slow, err := compileForeign(spelled, patternTimeout)
		require.NoError(t, err)
		for range 2000 {
			text := make([]rune, 1+rng.IntN(12))
			for i := range text {
				text[i] = alphabet[rng.IntN(len(alphabet))]
			}
			s := string(text)
			require.Equal(t, spans(t, slow, s), spans(t, fast, s), "pattern %s on %q", expr, s)
		}
	}
}

func spans(t testing.TB, f finder, s string) []string {
	var out []string
	at := 0
	require.NoError(t, f.find(s, func(start, end int, match bool) {
		require.Equal(t, at, start)
		at = end
		out = append(out, fmt.Sprintf("%v %q", match, s[start:end]))
	}))
	require.Equal(t, len(s), at)
	return out
}

func TestForeignPatternStopsInTime(t *testing.T) {
	find, err := compileForeign(`(a|aa)+$`, 50*time.Millisecond)
	require.NoError(t, err)
	err = find.find(strings.Repeat("a", 200)+"b", func(int, int, bool) {})
	require.ErrorContains(t, err, "201 bytes")
	_, err = compilePattern(`[a-z&&[^b]]`)
	assert.ErrorContains(t, err, "intersection")
	_, err = compilePattern(`(`)
	assert.ErrorContains(t, err, "pattern")
}

// TestHugeWord: a long text without a place to split must not take quadratic time, which would be hours here.
func TestHugeWord(t *testing.T) {
	huge := func(tok *Tokenizer, unit string) (string, []int32) {
		text := strings.Repeat(unit, 1<<20/len(unit))
		return text, encode(t, tok, text, EncodeOptions{})
	}
	for name, unit := range map[string]string{
		"bbpe-gpt2": "the", "bbpe-llama3": "\n", "bbpe-qwen2": "\u0301", "spbpe-llama2": "the", "spbpe-gemma": "a", "unigram-t5": "a", "wordpiece-bert": "a",
	} {
		tok := loadJSON(t, name)
		text, ids := huge(tok, unit)
		if tok.byteLevel {
			require.Equal(t, text, tok.Decode(ids, false), name)
		}
	}
	tok, err := FromGGUF(ggufKV(t, "ggml-vocab-llama-spm.gguf"))
	require.NoError(t, err)
	text, ids := huge(tok, "the")
	require.Equal(t, text, tok.Decode(ids, false))
}

func TestByteLevelKeepsEveryByte(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, name := range []string{"bbpe-gpt2", "bbpe-llama3", "bbpe-smollm", "bbpe-deepseek3"} {
		tok := loadJSON(t, name)
		for range 200 {
			raw := make([]byte, rng.IntN(40))
			for i := range raw {
				raw[i] = byte(rng.Uint32())
			}
			var back []byte
			for _, id := range encode(t, tok, string(raw), EncodeOptions{PlainText: true}) {
				back = append(back, tok.Bytes(id)...)
			}
			require.Equal(t, string(raw), string(back), name)
		}
	}
}

func TestAccessors(t *testing.T) {
	tok := loadJSON(t, "bbpe-llama3")
	id, ok := tok.ID("<|eot_id|>")
	require.True(t, ok)
	piece, ok := tok.Token(id)
	require.True(t, ok)
	assert.Equal(t, "<|eot_id|>", piece)
	assert.True(t, tok.IsSpecial(id))
	bos, ok := tok.BOS()
	assert.True(t, ok)
	assert.Equal(t, int32(1200), bos)
	eos, ok := tok.EOS()
	assert.True(t, ok)
	assert.Equal(t, []int32{eos, id}, tok.StopIDs())
	_, ok = tok.PAD()
	assert.False(t, ok)
	assert.Equal(t, []byte(" the"), tok.Bytes(mustID(t, tok, "Ġthe")))

	for _, id := range []int32{-1, -1 << 31, int32(tok.VocabSize()), 1<<31 - 1} {
		_, ok := tok.Token(id)
		assert.False(t, ok)
		assert.Nil(t, tok.Bytes(id))
		assert.False(t, tok.IsSpecial(id))
		assert.Equal(t, "", tok.Decode([]int32{id}, false))
	}

	spm, err := FromGGUF(ggufKV(t, "ggml-vocab-llama-spm.gguf"))
	require.NoError(t, err)
	assert.Equal(t, []byte{0x41}, spm.Bytes(mustID(t, spm, "<0x41>")))
	assert.Equal(t, []byte(" the"), spm.Bytes(mustID(t, spm, "▁the")))
	assert.Equal(t, []int32{1, 22172}, encode(t, spm, "hello", EncodeOptions{AddSpecial: true}))
}

func mustID(t testing.TB, tok *Tokenizer, piece string) int32 {
	t.Helper()
	id, ok := tok.ID(piece)
	require.True(t, ok, piece)
	return id
}

func TestConfigNamesTokensAndTemplate(t *testing.T) {
	data, err := os.ReadFile(testdata("golden-hf", "tokenizers", "bbpe-qwen2.tokenizer.json"))
	require.NoError(t, err)
	tok, err := FromJSON(data, []byte(`{"eos_token":"<|im_end|>","pad_token":{"content":"<|endoftext|>"},"bos_token":null,
		"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]}`))
	require.NoError(t, err)
	eos, _ := tok.EOS()
	assert.Equal(t, mustID(t, tok, "<|im_end|>"), eos)
	pad, _ := tok.PAD()
	assert.Equal(t, mustID(t, tok, "<|endoftext|>"), pad)
	_, ok := tok.BOS()
	assert.False(t, ok)
	assert.Equal(t, "D", tok.ChatTemplate())
	assert.Equal(t, []int32{pad, eos}, tok.StopIDs())

	tok, err = FromJSON(data, []byte(`{"bos_token":"<|im_start|>","eos_token":"<|im_end|>","add_bos_token":true,"add_eos_token":true,"chat_template":"x"}`))
	require.NoError(t, err)
	assert.Equal(t, []int32{1201, 71, 1202}, encode(t, tok, "h", EncodeOptions{AddSpecial: true}))
	assert.Equal(t, "x", tok.ChatTemplate())

	_, err = FromJSON(data, []byte(`{"eos_token":"<nope>"}`))
	assert.ErrorContains(t, err, "<nope>")
	_, err = FromJSON(data, []byte(`{`))
	assert.ErrorContains(t, err, "tokenizer_config.json")
}

func TestPlainTextHasNoSpecialTokens(t *testing.T) {
	for _, name := range goldenNames() {
		tok := loadJSON(t, name)
		for _, special := range tok.specials.tokens {
			text := "a " + special.content + " b" + special.content
			for _, id := range encode(t, tok, text, EncodeOptions{PlainText: true}) {
				unk, ok := tok.UNK()
				require.True(t, !tok.IsSpecial(id) || ok && id == unk, "%s: %q gives token %d", name, text, id)
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := loadJSON(t, "bbpe-qwen2")
	texts := goldenStrings(t)
	var want [][]int32
	for _, text := range texts {
		want = append(want, encode(t, tok, text, EncodeOptions{}))
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, text := range texts {
				ids, err := tok.Encode(text, EncodeOptions{})
				assert.NoError(t, err)
				assert.Equal(t, want[i], ids)
				tok.Decode(ids, true)
			}
		})
	}
	wg.Wait()
}
