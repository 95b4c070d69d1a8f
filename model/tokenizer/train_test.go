package tokenizer

import (
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMarshalGGUFKeepsIDs writes every tokenizer that can be written and reads it back.
func TestMarshalGGUFKeepsIDs(t *testing.T) {
	written := map[string]bool{"bbpe-gpt2": true, "bbpe-llama3": true, "bbpe-qwen2": true, "bbpe-smollm": true, "bbpe-deepseek3": true}
	for _, name := range goldenNames() {
		tok := loadJSON(t, name)
		kv := tok.MarshalGGUF()
		if !written[name] {
			require.Nil(t, kv, name)
			continue
		}
		back, err := FromGGUF(kv)
		require.NoError(t, err, name)
		sameTokenizer(t, tok, back)
	}
	for _, name := range []string{"gpt-2", "llama-spm", "phi-3"} {
		tok, err := FromGGUF(ggufKV(t, "ggml-vocab-"+name+".gguf"))
		require.NoError(t, err)
		back, err := FromGGUF(tok.MarshalGGUF())
		require.NoError(t, err)
		sameTokenizer(t, tok, back)
		require.True(t, reflect.DeepEqual(tok.MarshalGGUF(), back.MarshalGGUF()))
	}
}

func sameTokenizer(t *testing.T, want, got *Tokenizer) {
	t.Helper()
	for _, text := range goldenStrings(t) {
		for _, opt := range []EncodeOptions{{}, {AddSpecial: true}, {PlainText: true}} {
			if want.normalizer != nil && want.byteLevel {
				text = strings.ToValidUTF8(normalized(t, want, text), "") // a GGUF file has no NFC
			}
			require.Equal(t, encode(t, want, text, opt), encode(t, got, text, opt), "%q", text)
		}
	}
	require.Equal(t, want.VocabSize(), got.VocabSize())
	require.Equal(t, want.StopIDs(), got.StopIDs())
	require.Equal(t, want.ChatTemplate(), got.ChatTemplate())
}

func normalized(t *testing.T, tok *Tokenizer, text string) string {
	text, err := tok.normalizer.normalize(text)
	require.NoError(t, err)
	return text
}

// TestMarshalSPMFromMerges: merges that scores can express are written as scores.
func TestMarshalSPMFromMerges(t *testing.T) {
	var vocab strings.Builder
	vocab.WriteString(`"<unk>":0,"<s>":1,"</s>":2`)
	id := 3
	add := func(piece string) {
		vocab.WriteString(`,"` + piece + `":` + itoa(id))
		id++
	}
	const hex = "0123456789ABCDEF"
	for b := range 256 {
		add("<0x" + string(hex[b>>4]) + string(hex[b&15]) + ">")
	}
	for _, piece := range []string{"▁", "a", "b", "c", "ab", "abc", "▁a", "bc"} {
		add(piece)
	}
	doc := func(merges string) []byte {
		return []byte(`{"added_tokens":[{"id":0,"content":"<unk>","special":true},{"id":1,"content":"<s>","special":true},{"id":2,"content":"</s>","special":true}],
			"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
			"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
			"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,"vocab":{` + vocab.String() + `},"merges":[` + merges + `]}}`)
	}
	tok, err := FromJSON(doc(`"b c","a b","a bc","ab c","▁ a"`), nil)
	require.NoError(t, err)
	kv := tok.MarshalGGUF()
	require.NotNil(t, kv)
	back, err := FromGGUF(kv)
	require.NoError(t, err)
	for _, text := range []string{"abc", "ab", " abcab bc a", "aé", "", "cab<s>abc", "bcbcabab"} {
		ids := encode(t, tok, text, EncodeOptions{})
		require.Equal(t, ids, encode(t, back, text, EncodeOptions{}), "%q", text)
		require.Equal(t, tok.Decode(ids, false), back.Decode(ids, false))
	}

	for _, merges := range []string{
		`"b c","a b","a bc","▁ a"`,        // ab|c is no merge, but scores would make it
		`"a bc","b c","ab c","a b","▁ a"`, // the merges of abc are apart
	} {
		tok, err := FromJSON(doc(merges), nil)
		require.NoError(t, err)
		assert.Nil(t, tok.MarshalGGUF(), merges)
	}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

func TestTrainBPEByHand(t *testing.T) {
	// "abab" three times and "abc" once: ab occurs 7 times, then abab 3 times; c is left alone.
	tok, err := TrainBPE([]string{"abab", "abab abab", "abc"}, 256+2+1, []string{"<|im_end|>"})
	require.NoError(t, err)
	ab, ok := tok.ID("ab")
	require.True(t, ok)
	assert.Equal(t, int32(256), ab)
	assert.Equal(t, []int32{257}, encode(t, tok, "abab", EncodeOptions{}))
	assert.Equal(t, []int32{256, mustID(t, tok, "c")}, encode(t, tok, "abc", EncodeOptions{}))
	eos, ok := tok.EOS()
	assert.True(t, ok)
	assert.Equal(t, int32(258), eos)
	assert.Equal(t, []int32{258}, encode(t, tok, "<|im_end|>", EncodeOptions{}))
	assert.NotNil(t, tok.MarshalGGUF())

	small, err := TrainBPE([]string{"abab", "abc"}, 5000, nil)
	require.NoError(t, err)
	assert.Equal(t, 257, small.VocabSize(), "only ab occurs twice")

	_, err = TrainBPE(nil, 256, []string{"<s>"})
	assert.ErrorContains(t, err, "want at least 256 bytes and 1 special")
}

func TestTrainBPEIsDeterministicAndCompresses(t *testing.T) {
	source, err := os.ReadFile("scanner.go")
	require.NoError(t, err)
	texts := strings.SplitAfter(string(source), "\n")
	first, err := TrainBPE(texts, 700, []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
	require.NoError(t, err)
	second, err := TrainBPE(texts, 700, []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
	require.NoError(t, err)
	require.True(t, reflect.DeepEqual(first.MarshalGGUF(), second.MarshalGGUF()))
	assert.Equal(t, 700, first.VocabSize())
	ids := encode(t, first, string(source), EncodeOptions{})
	assert.Less(t, len(ids), len(source)/2)
	assert.Equal(t, string(source), first.Decode(ids, false))
	bos, ok := first.BOS()
	assert.False(t, ok, bos)
}

func TestFromVocabularyByHand(t *testing.T) {
	tok, err := FromVocabulary("smollm", []string{"0", "1", "+", "=", "ab", "a", "b"}, [][2]string{{"a", "b"}}, []string{"<s>", "</s>"})
	require.NoError(t, err)
	assert.Equal(t, []int32{7, 4, 2, 1, 0}, encode(t, tok, "ab+10", EncodeOptions{AddSpecial: true}))
	assert.Equal(t, []int32{5}, encode(t, tok, "az", EncodeOptions{}), "a byte without a token is passed over")
	_, err = FromVocabulary("smollm", []string{"a", "a"}, nil, nil)
	assert.ErrorContains(t, err, "given twice")
	_, err = FromVocabulary("smollm", []string{"a"}, [][2]string{{"a", "a"}}, nil)
	assert.ErrorContains(t, err, "names a piece")
}

// TestTrainBPEMatchesRecounting: the queue must choose what counting everything again before every merge chooses.
func TestTrainBPEMatchesRecounting(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	var texts []string
	for range 120 {
		word := make([]byte, 2+rng.IntN(9))
		for i := range word {
			word[i] = "abcd"[rng.IntN(4)]
		}
		texts = append(texts, string(word))
	}
	const merges = 60
	tok, err := TrainBPE(texts, 256+merges, nil)
	require.NoError(t, err)

	pieces, known := ByteAlphabet(), map[string]bool{}
	words := make([][]int, len(texts))
	for w, text := range texts {
		for _, c := range text {
			words[w] = append(words[w], slices.Index(pieces, string(c)))
		}
	}
	for range merges {
		counts := map[[2]int]int{}
		for _, ids := range words {
			for i := 0; i+1 < len(ids); i++ {
				counts[[2]int{ids[i], ids[i+1]}]++
			}
		}
		var best [2]int
		for pair, n := range counts {
			if !known[pieces[pair[0]]+pieces[pair[1]]] && (n > counts[best] || n == counts[best] && slices.Compare(pair[:], best[:]) < 0) {
				best = pair
			}
		}
		made := pieces[best[0]] + pieces[best[1]]
		known[made] = true
		for w, ids := range words {
			for i := 0; i+1 < len(ids); i++ {
				if ids[i] == best[0] && ids[i+1] == best[1] {
					ids = slices.Replace(ids, i, i+2, len(pieces))
				}
			}
			words[w] = ids
		}
		pieces = append(pieces, made)
	}
	for id, want := range pieces {
		got, _ := tok.Token(int32(id))
		require.Equal(t, want, got, "token %d", id)
	}
}
