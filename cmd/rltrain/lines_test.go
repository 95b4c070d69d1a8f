package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTokenizeAndBack(t *testing.T) {
	r := rltrain(t, `{"text":"37+58="}`+"\n\n"+`{"text":"<|end|>"}`+"\n"+`{"text":"<|end|>","plain_text":true}`+"\n", "tokenize", "--model", "tiny")
	require.Equal(t, exitDone, r.code, r.err)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Len(t, lines, 3, "blank lines are passed over")
	var special, plain struct{ IDs []int32 }
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &special))
	require.NoError(t, json.Unmarshal([]byte(lines[2]), &plain))
	assert.Len(t, special.IDs, 1)
	assert.Greater(t, len(plain.IDs), 1)

	back := rltrain(t, lines[0]+"\n"+lines[2]+"\n", "tokenize", "--model", "tiny", "--decode")
	assert.Equal(t, `{"text":"37+58="}`+"\n"+`{"text":"<|end|>"}`+"\n", back.out)
	skipped := rltrain(t, lines[1], "tokenize", "--model", "tiny", "--decode", "--skip-special")
	assert.Equal(t, `{"text":""}`+"\n", skipped.out)
}

func TestTemplateRendersOrTellsTheError(t *testing.T) {
	file := file(t, "t.jinja", `{{ bos_token }}{% for m in messages %}{% if m.role == 'x' %}{{ raise_exception('no x here') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}{{ k }}`)
	in := `{"messages":[{"role":"user","content":"ä<b>"}],"add_generation_prompt":true,"kwargs":{"k":7,"bos_token":"^"}}` + "\n" +
		`{"messages":[{"role":"x","content":""}]}` + "\n"
	r := rltrain(t, in, "template", "--template", file)
	require.Equal(t, exitDone, r.code, r.err)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	assert.Equal(t, `{"text":"^[user:ä<b>]>7"}`, lines[0])
	assert.Contains(t, lines[1], `{"error":`)
	assert.Contains(t, lines[1], "no x here")
	own := rltrain(t, `{"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true}`, "template", "--model", "tiny")
	assert.Equal(t, `{"text":"<|user|>hi<|end|><|assistant|>"}`+"\n", own.out)
}

func TestScoreIsTheSameForTextMessagesAndIds(t *testing.T) {
	in := `{"messages":[{"role":"user","content":"1+2="}],"add_generation_prompt":true}` + "\n"
	r := rltrain(t, in, "score", "--model", "tiny")
	require.Equal(t, exitDone, r.code, r.err)
	var got struct {
		IDs       []int32
		LogProbs  []*float64
		Entropies []*float64
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &got))
	require.Len(t, got.LogProbs, len(got.IDs))
	require.Len(t, got.Entropies, len(got.IDs))
	assert.Nil(t, got.LogProbs[0])
	for i := range got.IDs {
		assert.GreaterOrEqual(t, *got.Entropies[i], 0.0)
		if i > 0 {
			assert.LessOrEqual(t, *got.LogProbs[i], 0.0)
		}
	}
	assert.Equal(t, r.out, rltrain(t, `{"messages":[{"role":"user","content":"1+2="}]}`, "score", "--model", "tiny").out,
		"an answer begins where the user spoke last, unless the line says otherwise")
	ids, err := json.Marshal(map[string]any{"ids": got.IDs})
	require.NoError(t, err)
	assert.Equal(t, r.out, rltrain(t, string(ids), "score", "--model", "tiny").out)
	assert.Equal(t, r.out, rltrain(t, `{"text":"<|user|>1+2=<|end|><|assistant|>"}`, "score", "--model", "tiny", "--threads", "1").out)
	hot, err := json.Marshal(map[string]any{"ids": got.IDs, "temperature": 2.5})
	require.NoError(t, err)
	assert.NotEqual(t, r.out, rltrain(t, string(hot), "score", "--model", "tiny").out)

	// What a user writes is text, whatever it looks like.
	tricky := rltrain(t, `{"messages":[{"role":"user","content":"<|end|>"}]}`, "score", "--model", "tiny")
	require.NoError(t, json.Unmarshal([]byte(tricky.out), &got))
	assert.Greater(t, len(got.IDs), 4, "the special token in the message was split into text")
}

// TestScoreMatchesTransformers holds the command to the goldens of checkpoints: the log-prob of each
// next token, and the entropy of the distribution that follows each token.
func TestScoreMatchesTransformers(t *testing.T) {
	for _, name := range []string{"llama-tied", "qwen3", "gemma3", "phi3"} {
		folder := filepath.Join("..", "..", "tests", "testdata", "golden-hf", "models", name)
		raw, err := os.ReadFile(filepath.Join(folder, "golden.json"))
		require.NoError(t, err)
		var golden struct {
			IDs       [][]int32 `json:"input_ids"`
			Sequences []struct {
				NextLogP []float64 `json:"next_logp"`
				Entropy  []float64 `json:"entropy"`
			} `json:"sequences"`
		}
		require.NoError(t, json.Unmarshal(raw, &golden))
		for i, ids := range golden.IDs {
			line, err := json.Marshal(map[string]any{"ids": ids})
			require.NoError(t, err)
			r := rltrain(t, string(line), "score", "--model", folder)
			require.Equal(t, exitDone, r.code, r.err)
			var got struct {
				LogProbs  []*float64
				Entropies []float64
			}
			require.NoError(t, json.Unmarshal([]byte(r.out), &got))
			require.Len(t, got.LogProbs, len(ids))
			require.Nil(t, got.LogProbs[0])
			for j, want := range golden.Sequences[i].NextLogP {
				require.InDelta(t, want, *got.LogProbs[j+1], 1e-4)
			}
			require.Len(t, got.Entropies, len(ids))
			for j, want := range golden.Sequences[i].Entropy {
				require.InDelta(t, want, got.Entropies[j], 1e-4)
			}
		}
	}
}

func TestLinesNameTheLineAndLeaveNoHalfFile(t *testing.T) {
	for _, c := range []struct{ command, bad, want string }{
		{"score", `{"ids":[]}`, "no tokens to score"},
		{"score", `{"ids":[1],"text":"x"}`, "exactly one of"},
		{"score", `{}`, "exactly one of"},
		{"score", `{"ids":[1],"temperature":0}`, "temperature is 0"},
		{"score", `{"ids":[1],"temperature":1e-300}`, "line 2: temperature is 1e-300, want 0.0001 to 100"},
		{"score", `{"ids":[1],"temperature":1e300}`, "line 2: temperature is 1e+300, want 0.0001 to 100"},
		{"score", `{"ids":[-1]}`, "line 2: "},
		{"score", `[1]`, "the line is a list, want an object with some of ids, text, messages"},
		{"score", `7`, "the line is a number, want an object"},
		{"score", `{"ids":7}`, `"ids" has a number where a list of ids belongs`},
		{"score", `{"ids":[1.5]}`, `"ids" has the number 1.5 where a token id`},
		{"score", `{"ids":["a"]}`, `"ids" has text where a token id`},
		{"score", `{"ids":[99999999999]}`, `"ids" has the number 99999999999 where a token id`},
		{"score", `{"ids":[1],"temperature":"hot"}`, `"temperature" has text where a number belongs`},
		{"tokenize", `"a"`, "the line is text, want an object with some of text, add_special, plain_text"},
		{"tokenize", `{"text":["a"]}`, `"text" has a list where text belongs`},
		{"tokenize", `{"text":"a","add_special":1}`, `"add_special" has a number where true or false belongs`},
		{"tokenize", `{"txt":"a"}`, `unknown field "txt"; there are text, add_special, plain_text`},
		{"tokenize", `{`, "line 2"},
		{"score", `{"ids":[99999]}`, "out of the vocabulary"},
		{"score", `{"ids":[1],"temprature":2}`, "temprature"},
		{"score", `{"ids":[` + strings.Repeat("1,", 600) + `1]}`, "loaded for 512 positions"},
		{"score", `{"messages":3}`, "is no list"},
		{"tokenize", `{"txt":"a"}`, "txt"},
		{"tokenize", `{}`, `no "text"`},
		{"tokenize", `{"text":"a"} {"text":"b"}`, "more than one JSON value"},
		{"score", "{\"text\":\"\xff\"}", "not valid UTF-8"},
		{"tokenize", "{\"text\":\"\xff\"}", "not valid UTF-8"},
		{"score", `{"text":"\ud800"}`, `\ud800 is half of a character`},
		{"tokenize", `{"text":"\\\ud83d\ud83d"}`, `\ud83d is half of a character`},
		{"tokenize", `{"text":"\uDE00 a"}`, `\uDE00 is half of a character`},
		{"template", `{"messages":[{"role":"user","content":"\ud83d"}]}`, "half of a character"},
		{"score", `{"ids":[1],"ids":[2]}`, `"ids" is given twice`},
		{"template", `{"messages":[{"role":"user","role":"tool","content":"a"}]}`, `the key "role" is given twice`},
		{"score", `{"messages":[{}]}`, `message 0 has no "role"`},
		{"score", `{"messages":[{"role":"user","content":"a"},{"role":7}]}`, `message 1 has a "role" that is no text`},
		{"score", `{"messages":["hello"]}`, `message 0 is no object`},
	} {
		good := map[string]string{"score": `{"ids":[1,2]}`, "tokenize": `{"text":"a"}`, "template": `{"messages":[]}`}[c.command]
		out := filepath.Join(t.TempDir(), "out.jsonl")
		r := rltrain(t, good+"\n"+c.bad+"\n", c.command, "--model", "tiny", "--output", out)
		assert.Equal(t, exitFailed, r.code, "%s %s", c.command, c.bad)
		assert.Contains(t, r.err, "line 2", c.bad)
		assert.NotContains(t, r.err, "request 0", c.bad)
		assert.NotContains(t, r.err, "json:", c.bad)
		assert.NotContains(t, r.err, "Go ", c.bad)
		assert.Contains(t, r.err, c.want, c.bad)
		entries, err := os.ReadDir(filepath.Dir(out))
		require.NoError(t, err)
		assert.Empty(t, entries, "no half-written output")
	}
}

// A line that a template can not render is answered in its place; the others are rendered.
func TestTemplateAnswersEveryLine(t *testing.T) {
	for _, c := range []struct{ bad, want string }{
		{`{"messages":[],"toools":[]}`, "toools"},
		{`{"messages":[],"tools":5}`, `"tools" is no list`},
		{`{"messages":[],"tools":["f"]}`, `"tools": entry 0 is no object`},
		{`{"messages":[],"documents":{"a":1}}`, `"documents" is no list`},
		{`{"add_generation_prompt":true}`, `no "messages"`},
		{`{"messages":"x"}`, `"messages" is no list`},
	} {
		good := `{"messages":[{"role":"user","content":"hi"}]}`
		r := rltrain(t, c.bad+"\n"+good+"\n", "template", "--model", "tiny")
		require.Equal(t, exitDone, r.code, r.err)
		lines := strings.Split(strings.TrimSpace(r.out), "\n")
		require.Len(t, lines, 2)
		var answer struct{ Error string }
		require.NoError(t, json.Unmarshal([]byte(lines[0]), &answer))
		assert.Contains(t, answer.Error, c.want)
		assert.Equal(t, `{"text":"<|user|>hi<|end|>"}`, lines[1])
	}
	broken := rltrain(t, `{"messages":[]}`, "template", "--template", file(t, "broken.jinja", "{% if"))
	require.Equal(t, exitDone, broken.code, broken.err)
	assert.Contains(t, broken.out, `{"error":"`)
}

// A tokenizer needs no model around it.
func TestTokenizeNeedsOnlyATokenizer(t *testing.T) {
	data := filepath.Join("..", "..", "tests", "testdata")
	for _, c := range []struct{ path, want string }{
		{filepath.Join(data, "vocab", "ggml-vocab-llama-spm.gguf"), `{"ids":[15043,3186]}`},
		{filepath.Join(data, "vocab", "ggml-vocab-gpt-2.gguf"), `{"ids":[15496,995]}`},
		{filepath.Join(data, "golden-hf", "e2e"), ""},
		{filepath.Join(data, "golden-hf", "e2e", "tokenizer.json"), ""},
	} {
		r := rltrain(t, `{"text":"Hello world"}`, "tokenize", "--model", c.path)
		require.Equal(t, exitDone, r.code, r.err)
		if c.want != "" {
			assert.Equal(t, c.want, strings.TrimSpace(r.out))
		}
	}
}

func TestEscapesOfWholeCharactersAreRead(t *testing.T) {
	in := `{"text":"\ud83d\ude00 \\ud83d \u00e4"}`
	ids := rltrain(t, in, "tokenize", "--model", "tiny")
	require.Equal(t, exitDone, ids.code, ids.err)
	assert.Equal(t, `{"text":"😀 \\ud83d ä"}`+"\n", rltrain(t, ids.out, "tokenize", "--model", "tiny", "--decode").out)
}

func TestInputAndOutputFiles(t *testing.T) {
	in, out := file(t, "in.jsonl", `{"text":"1+1="}`), filepath.Join(t.TempDir(), "out.jsonl")
	ok(t, "tokenize", "--model", "tiny", "--input", in, "--output", out)
	raw, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, rltrain(t, `{"text":"1+1="}`, "tokenize", "--model", "tiny").out, string(raw))
}
