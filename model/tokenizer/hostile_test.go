package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smallGGUF is a byte-level tokenizer with changes.
func smallGGUF(change map[string]any) map[string]any {
	tokens := append(ByteAlphabet(), "ab", "<|end|>")
	types := make([]int32, len(tokens))
	for i := range types {
		types[i] = 1
	}
	types[len(types)-1] = 3
	kv := map[string]any{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
		"tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": []string{"a b"}, "tokenizer.ggml.eos_token_id": uint32(len(tokens) - 1),
	}
	for key, value := range change {
		if value == nil {
			delete(kv, "tokenizer.ggml."+key)
		} else {
			kv["tokenizer.ggml."+key] = value
		}
	}
	return kv
}

func TestFromGGUFRefusesBrokenFiles(t *testing.T) {
	_, err := FromGGUF(smallGGUF(nil))
	require.NoError(t, err)
	for want, change := range map[string]map[string]any{
		"tokens is missing":              {"tokens": nil},
		"is missing or empty":            {"tokens": []string{}},
		"3 token types for 258 tokens":   {"token_type": []int32{1, 2, 3}},
		"token_type is string":           {"token_type": "x"},
		"eos_token_id is 258":            {"eos_token_id": uint32(258)},
		"eos_token_id is -1":             {"eos_token_id": int32(-1)},
		`model "rwkv" is not supported`:  {"model": "rwkv"},
		`model "" is not supported`:      {"model": nil},
		`pre "nope" is not supported`:    {"pre": "nope"},
		"merges is missing":              {"merges": nil},
		`merge 0 is "ab"`:                {"merges": []string{"ab"}},
		`merge 0 is " "`:                 {"merges": []string{" "}},
		`merge 0 is "a "`:                {"merges": []string{"a "}},
		`merge 0 ("a zz") names a piece`: {"merges": []string{"a zz"}},
		`merge 1 ("b a") names a piece`:  {"merges": []string{"a b", "b a"}},
		"scores has 0 values for 258":    {"model": "llama"},
		"scores has 1 values for 258":    {"model": "t5", "scores": []float32{1}},
		"charsmap: trie of":              {"model": "t5", "scores": make([]float32, 258), "precompiled_charsmap": []byte{9, 9, 9, 9, 9}},
		"precompiled charsmap: 1 bytes":  {"model": "t5", "scores": make([]float32, 258), "precompiled_charsmap": []int8{1}},
	} {
		_, err := FromGGUF(smallGGUF(change))
		assert.ErrorContains(t, err, want)
	}
}

func TestFromGGUFToleratesDuplicates(t *testing.T) {
	tokens := append(ByteAlphabet(), "ab", "<|end|>", "ab", "<0x-1>", "")
	types := make([]int32, len(tokens))
	for i := range types {
		types[i] = 1
	}
	types[259], types[260] = 6, 99
	tok, err := FromGGUF(smallGGUF(map[string]any{"tokens": tokens, "token_type": types}))
	require.NoError(t, err)
	assert.Equal(t, []int32{258}, encode(t, tok, "ab", EncodeOptions{}), "of equal pieces the last one is written")
	assert.Equal(t, "abab", tok.Decode([]int32{256, 258}, false), "and both are read")
	assert.Equal(t, "<0x-1>", tok.Decode([]int32{259}, false))
}

func TestFromJSONNamesWhatItDoesNotSupport(t *testing.T) {
	build := func(part, value string) error {
		_, err := FromJSON([]byte(`{"`+part+`":`+value+`,"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}}`), nil)
		return err
	}
	require.NoError(t, build("normalizer", "null"))
	assert.ErrorContains(t, build("normalizer", `{"type":"Nmt"}`), `normalizer "Nmt"`)
	assert.ErrorContains(t, build("pre_tokenizer", `{"type":"UnicodeScripts"}`), `pre-tokenizer "UnicodeScripts"`)
	assert.ErrorContains(t, build("decoder", `{"type":"CTC"}`), `decoder "CTC"`)
	assert.ErrorContains(t, build("post_processor", `{"type":"Odd"}`), `post-processor "Odd"`)
	assert.ErrorContains(t, build("pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"Odd"}]}`), `"Odd"`)
	assert.ErrorContains(t, build("pre_tokenizer", `{"type":"Split","pattern":{"String":"x"},"behavior":"Odd"}`), `"Odd"`)

	for want, doc := range map[string]string{
		"no model":           `{}`,
		"byte 0":             `[]`,
		"not supported":      `{"model":{"type":"WordLevel","vocab":{}}}`,
		"no vocab":           `{"model":{"type":"BPE"}}`,
		"out of proportion":  `{"model":{"type":"BPE","vocab":{"a":2000000000}}}`,
		"has id -1":          `{"model":{"type":"BPE","vocab":{"a":-1}}}`,
		"names a piece":      `{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`,
		"2 pieces":           `{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}}`,
		"dropout":            `{"model":{"type":"BPE","dropout":0.1,"vocab":{"a":0}}}`,
		"unk_id 7":           `{"model":{"type":"Unigram","unk_id":7,"vocab":[["a",0.5]]}}`,
		"no score":           `{"model":{"type":"Unigram","vocab":[["a"]]}}`,
		"unterminated":       `{"model":{"type":"BPE","vocab":{"a`,
		"value out of range": `{"model":{"type":"BPE","vocab":{"a":99999999999}}}`,
	} {
		_, err := FromJSON([]byte(doc), nil)
		if want == "2 pieces" {
			want = "1 parts, want 2"
		}
		assert.ErrorContains(t, err, want, doc)
	}
}

func TestAddedTokenKeepsTheIDOfTheModel(t *testing.T) {
	tok, err := FromJSON([]byte(`{"added_tokens":[{"id":9,"content":"b","special":true}],"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}}`), nil)
	require.NoError(t, err)
	assert.Equal(t, []int32{0, 1}, encode(t, tok, "ab", EncodeOptions{}))
	assert.True(t, tok.IsSpecial(1))
	assert.Equal(t, 2, tok.VocabSize())
}

func FuzzFromJSON(f *testing.F) {
	f.Add([]byte(`{"added_tokens":[{"id":3,"content":"<|e|>","special":true}],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},"behavior":"Isolated"},{"type":"ByteLevel","use_regex":true}]},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","ignore_merges":true,"vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}}`), "ab<|e|> 12")
	f.Add([]byte(`{"added_tokens":[{"id":1,"content":"ab","normalized":true,"special":true,"lstrip":true,"rstrip":true}],"normalizer":{"type":"Lowercase"},"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":1}]},"pre_tokenizer":{"type":"Metaspace","replacement":"_","split":true},"model":{"type":"BPE","byte_fallback":true,"unk_token":"u","vocab":{"a":0,"<0x00>":1,"u":2},"merges":["a u"]}}`), " a ab")
	f.Add([]byte(`{"normalizer":{"type":"Precompiled","precompiled_charsmap":"CAAAAAAEAAABAAAAYQA="},"model":{"type":"Unigram","unk_id":0,"vocab":[["a",-1],["b",-2.5]]}}`), "ab\x00")
	f.Add([]byte(`{"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":{"type":"WordPiece"},"model":{"type":"WordPiece","vocab":{"a":0,"##b":1}}}`), "ab, Ab")
	f.Fuzz(func(t *testing.T, doc []byte, text string) {
		if tok, err := FromJSON(doc, nil); err == nil {
			exercise(t, tok, text)
		}
	})
}

// TestMutatedFilesNeverPanic changes published layouts at random places before the vocabulary and in it.
func TestMutatedFilesNeverPanic(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	accepted := 0
	for _, name := range goldenNames() {
		data, err := os.ReadFile(testdata("golden-hf", "tokenizers", name+".tokenizer.json"))
		require.NoError(t, err)
		for range 150 {
			doc := slices.Clone(data)
			for range 1 + rng.IntN(3) {
				at := rng.IntN(2500)
				switch rng.IntN(3) {
				case 0:
					doc[at] = "0123456789\",:[]{}\\e- \xff"[rng.IntN(21)]
				case 1:
					doc = slices.Delete(doc, at, at+1+rng.IntN(20))
				case 2:
					doc = slices.Insert(doc, at, doc[rng.IntN(2500):][:rng.IntN(40)]...)
				}
			}
			if tok, err := FromJSON(doc, nil); err == nil {
				accepted++
				exercise(t, tok, "Hello <|im_end|> é \x00 the ab")
			}
		}
	}
	assert.Positive(t, accepted)
}

// exercise uses everything of a tokenizer that was accepted: no panic, ids in range, stream equal to Decode.
func exercise(t *testing.T, tok *Tokenizer, text string) {
	for _, opt := range []EncodeOptions{{}, {AddSpecial: true}, {PlainText: true}} {
		ids, err := tok.Encode(text, opt)
		if err != nil {
			continue
		}
		for _, id := range ids {
			if _, ok := tok.Token(id); !ok {
				t.Fatalf("id %d of %d", id, tok.VocabSize())
			}
			tok.Bytes(id)
		}
		decodeBoth(t, tok, ids, true)
	}
	_, _ = tok.Encode(tok.Protect(text), EncodeOptions{})
	decodeBoth(t, tok, []int32{-1, 0, 1, 2, 1 << 30}, false)
	tok.MarshalGGUF()
	tok.StopIDs()
}

func FuzzFromGGUF(f *testing.F) {
	f.Add("gpt2", "gpt-2", "a\nb\nab\n<|end|>", []byte{1, 1, 1, 3}, "a b", uint32(3), "abab<|end|>")
	f.Add("llama", "default", "<unk>\n<s>\n▁\na\n▁a\n<0x41>\n<0x-1>", []byte{2, 3, 1, 1, 1, 6, 6}, "", uint32(1), "a A a")
	f.Add("t5", "", "<pad>\n</s>\n<unk>\n▁a", []byte{3, 3, 2, 1}, "", uint32(1), "a b")
	f.Add("bert", "", "[CLS]\n▁a\nb", []byte{3, 1, 1}, "", uint32(0), "ab")
	f.Add("gpt2", "deepseek-v3", "a\na\n\n", []byte{4, 4, 0, 9}, "a a", uint32(9), "aa")
	f.Fuzz(func(t *testing.T, model, pre, tokens string, kinds []byte, merges string, eos uint32, text string) {
		pieces := strings.Split(tokens, "\n")
		types, scores := make([]int32, len(pieces)), make([]float32, len(pieces))
		for i := range pieces {
			if i < len(kinds) {
				types[i] = int32(int8(kinds[i]))
				scores[i] = float32(kinds[i])
			}
		}
		kv := map[string]any{
			"tokenizer.ggml.model": model, "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.scores": scores,
			"tokenizer.ggml.token_type": types, "tokenizer.ggml.eos_token_id": eos, "tokenizer.ggml.precompiled_charsmap": []byte(merges),
		}
		if merges != "" {
			kv["tokenizer.ggml.merges"] = strings.Split(merges, "\n")
		}
		if tok, err := FromGGUF(kv); err == nil {
			exercise(t, tok, text)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	var toks []*Tokenizer
	for _, name := range []string{"bbpe-gpt2", "bbpe-llama3", "bbpe-smollm", "bbpe-deepseek3", "spbpe-gemma", "spbpe-llama2"} {
		toks = append(toks, loadJSON(f, name))
	}
	for _, text := range goldenStrings(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "\uFFFD")
		for i, tok := range toks {
			ids, err := tok.Encode(text, EncodeOptions{PlainText: true})
			require.NoError(t, err)
			if tok.byteLevel {
				require.Equal(t, text, decodeBoth(t, tok, ids, false), fmt.Sprint(i))
			}
			same, err := tok.Encode(tok.Protect(text), EncodeOptions{})
			require.NoError(t, err)
			require.Equal(t, ids, same)
		}
	})
}

// TestRepeatedPieceAndOrderedMerges: the short cut for merges that make the next token must not miss the last of two
// equal pieces.
func TestRepeatedPieceAndOrderedMerges(t *testing.T) {
	tokens := append(ByteAlphabet(), "ab", "abc", "<|end|>", "abc")
	types := make([]int32, len(tokens))
	for i := range types {
		types[i] = 1
	}
	tok, err := FromGGUF(smallGGUF(map[string]any{"tokens": tokens, "token_type": types, "merges": []string{"a b", "ab c"}}))
	require.NoError(t, err)
	assert.Equal(t, []int32{259}, encode(t, tok, "abc", EncodeOptions{}))
}
