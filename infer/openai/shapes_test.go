package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"graft/infer"
)

const sum = `"messages":[{"role":"user","content":"12 + 7 ="}]`

// keys are exactly those of an object.
func keys(t *testing.T, v any, want ...string) {
	t.Helper()
	var got []string
	for k := range v.(map[string]any) {
		got = append(got, k)
	}
	require.ElementsMatch(t, want, got)
}

func TestChatShape(t *testing.T) {
	s := newSite(t, Options{}, infer.Options{})
	a := s.ask("/v1/chat/completions", `{`+sum+`,"temperature":0,"max_tokens":4,"logprobs":true,"top_logprobs":2}`)
	keys(t, a, "id", "object", "created", "model", "choices", "usage")
	require.True(t, strings.HasPrefix(text(t, a, "id"), "chatcmpl-"))
	require.Equal(t, "chat.completion", text(t, a, "object"))
	require.Equal(t, "base", text(t, a, "model"))
	choice := at(t, a, "choices", 0)
	keys(t, choice, "index", "message", "logprobs", "finish_reason", "stop_reason")
	keys(t, at(t, choice, "message"), "role", "content", "refusal")
	require.Equal(t, "assistant", text(t, choice, "message", "role"))
	require.Equal(t, "stop", text(t, choice, "finish_reason"))

	tokens := at(t, choice, "logprobs", "content").([]any)
	var spelled []byte
	for _, token := range tokens {
		keys(t, token, "token", "logprob", "bytes", "top_logprobs")
		top := at(t, token, "top_logprobs").([]any)
		require.Len(t, top, 2)
		require.Equal(t, at(t, token, "logprob"), at(t, top[0], "logprob"), "greedy takes the most probable")
		require.GreaterOrEqual(t, at(t, top[0], "logprob"), at(t, top[1], "logprob"))
		for _, b := range at(t, token, "bytes").([]any) {
			spelled = append(spelled, byte(b.(float64)))
		}
	}
	content := text(t, choice, "message", "content")
	require.NotEmpty(t, content)
	require.Equal(t, content+"<|end|>", string(spelled))

	u := at(t, a, "usage")
	keys(t, u, "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details")
	require.EqualValues(t, len(tokens), at(t, u, "completion_tokens"))
	require.EqualValues(t, at(t, u, "prompt_tokens").(float64)+float64(len(tokens)), at(t, u, "total_tokens"))

	plain := s.ask("/v1/chat/completions", `{`+sum+`,"temperature":0,"max_tokens":4}`)
	require.Nil(t, at(t, plain, "choices", 0, "logprobs"))
}

// A chat without max_tokens may go on to the end of the context.
func TestChatDefaultLength(t *testing.T) {
	s := newSite(t, Options{}, infer.Options{MaxModelLen: 64})
	a := s.ask("/v1/chat/completions", `{`+sum+`,"ignore_eos":true}`)
	require.Equal(t, "length", text(t, a, "choices", 0, "finish_reason"))
	require.EqualValues(t, 64, at(t, a, "usage", "total_tokens"))
	c := s.ask("/v1/completions", `{"prompt":"12","ignore_eos":true}`)
	require.EqualValues(t, 16, at(t, c, "usage", "completion_tokens"))

	small := newSite(t, Options{}, infer.Options{MaxModelLen: 64, Pages: 2})
	a = small.ask("/v1/chat/completions", `{`+sum+`,"ignore_eos":true}`)
	require.EqualValues(t, 32, at(t, a, "usage", "total_tokens"), "two pages hold 32 tokens")
}

func TestChatStreamFraming(t *testing.T) {
	s := newSite(t, Options{}, infer.Options{})
	for _, usage := range []bool{false, true} {
		body := fmt.Sprintf(`{%s,"temperature":1.5,"seed":4,"n":2,"max_tokens":6,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":%t}}`, sum, usage)
		all := chunks(t, s.stream("/v1/chat/completions", body))
		if usage {
			last := all[len(all)-1]
			require.Empty(t, at(t, last, "choices"))
			require.EqualValues(t, 12, at(t, last, "usage", "completion_tokens"))
			all = all[:len(all)-1]
		}
		for i, c := range all {
			require.Equal(t, "chat.completion.chunk", text(t, c, "object"))
			require.Equal(t, all[0]["id"], c["id"])
			require.Equal(t, all[0]["created"], c["created"])
			got, has := c["usage"]
			require.Equal(t, usage, has, "usage is null before the end if it was asked for, else absent")
			require.Nil(t, got)
			choice := at(t, c, "choices", 0)
			at(t, choice, "finish_reason") // there in every chunk
			at(t, choice, "logprobs")
			if i < 2 {
				require.Equal(t, map[string]any{"role": "assistant", "content": ""}, at(t, choice, "delta"))
			}
		}
		require.Equal(t, []int{1, 1}, finishes(t, all), "every choice ends once, and last")
	}
}

// finishes counts the ends of every choice and checks that nothing follows one.
func finishes(t *testing.T, all []map[string]any) []int {
	t.Helper()
	n := make([]int, 2)
	for _, c := range all {
		i := int(at(t, c, "choices", 0, "index").(float64))
		require.Zero(t, n[i], "a chunk behind the end")
		if at(t, c, "choices", 0, "finish_reason") != nil {
			n[i]++
		}
	}
	return n
}

func TestCompletionShape(t *testing.T) {
	s := newSite(t, Options{}, infer.Options{})
	a := s.ask("/v1/completions", `{"model":"base","prompt":["12 +","3 -"],"n":2,"max_tokens":5,"seed":1,"logprobs":3,"ignore_eos":true}`)
	keys(t, a, "id", "object", "created", "model", "choices", "usage")
	require.True(t, strings.HasPrefix(text(t, a, "id"), "cmpl-"))
	require.Equal(t, "text_completion", text(t, a, "object"))
	require.Len(t, at(t, a, "choices"), 4)
	for i, c := range at(t, a, "choices").([]any) {
		keys(t, c, "index", "text", "logprobs", "finish_reason", "stop_reason")
		require.EqualValues(t, i, at(t, c, "index"))
		require.Equal(t, "length", text(t, c, "finish_reason"))
		l := at(t, c, "logprobs")
		for _, list := range []string{"tokens", "token_logprobs", "top_logprobs", "text_offset"} {
			require.Len(t, at(t, l, list), 5, list)
		}
		for j, top := range at(t, l, "top_logprobs").([]any) {
			require.Equal(t, at(t, l, "token_logprobs", j), at(t, top, text(t, l, "tokens", j)), "the sampled token is among the top ones")
			require.Contains(t, []int{3, 4}, len(top.(map[string]any)))
		}
	}
	// A token that is drawn against all odds is listed beside the most probable ones.
	odd := s.ask("/v1/completions", `{"prompt":"12 +","max_tokens":1,"logprobs":2,"temperature":0,"logit_bias":{"65":100}}`)
	top := at(t, odd, "choices", 0, "logprobs", "top_logprobs", 0).(map[string]any)
	require.Len(t, top, 3)
	require.Equal(t, at(t, odd, "choices", 0, "logprobs", "token_logprobs", 0), top[text(t, odd, "choices", 0, "logprobs", "tokens", 0)])
	require.EqualValues(t, 7, at(t, a, "usage", "prompt_tokens"), "a prompt counts once, not once per choice")
	require.EqualValues(t, 20, at(t, a, "usage", "completion_tokens"))
}

// What an evaluation harness asks for: token lists, echo, logprobs, one token that is thrown away.
func TestEchoLogProbsOfTokenLists(t *testing.T) {
	s := newSite(t, Options{}, infer.Options{MaxBatchedTokens: 5, MaxSeqs: 2})
	tok := s.engine.Tokenizer()
	var lists [][]int32
	for _, prompt := range []string{"12 + 7 = 19", "3 - 2 = 1", "grüße 😀"} {
		r := s.ask("/tokenize", fmt.Sprintf(`{"prompt":%q,"add_special_tokens":false}`, prompt))
		var ids []int32
		for _, v := range at(t, r, "tokens").([]any) {
			ids = append(ids, int32(v.(float64)))
		}
		require.EqualValues(t, len(ids), at(t, r, "count"))
		lists = append(lists, ids)
		raw, _ := json.Marshal(ids)
		require.Equal(t, prompt, text(t, s.ask("/detokenize", `{"tokens":`+string(raw)+`}`), "prompt"))
	}
	raw, _ := json.Marshal(lists)
	for _, most := range []int{1, 0} {
		a := s.ask("/v1/completions", fmt.Sprintf(`{"model":"base","prompt":%s,"echo":true,"logprobs":1,"max_tokens":%d,"temperature":0,"seed":1234,"logit_bias":{"259":-100}}`, raw, most))
		require.Len(t, at(t, a, "choices"), len(lists))
		for i, ids := range lists {
			c := at(t, a, "choices", i)
			require.EqualValues(t, i, at(t, c, "index"))
			l := at(t, c, "logprobs")
			got := at(t, l, "token_logprobs").([]any)
			require.Len(t, got, len(ids)+most)
			require.Nil(t, got[0])
			require.Nil(t, at(t, l, "top_logprobs", 0))
			want, _, err := s.engine.Score(context.Background(), ids, nil, 1)
			require.NoError(t, err)
			for j := 1; j < len(ids); j++ {
				require.Equal(t, want[j], float32(got[j].(float64)), "prompt %d token %d", i, j)
				best := -1e30
				for _, lp := range at(t, l, "top_logprobs", j).(map[string]any) {
					best = max(best, lp.(float64))
				}
				require.GreaterOrEqual(t, best, got[j].(float64))
			}
			whole := text(t, c, "text")
			require.True(t, strings.HasPrefix(whole, tok.Decode(ids, false)))
			standAt(whole, l)(t)
		}
	}
}

// standAt checks that every token's text stands where text_offset says.
func standAt(whole string, l any) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		runes := []rune(whole)
		for j, token := range at(t, l, "tokens").([]any) {
			from := int(at(t, l, "text_offset", j).(float64))
			require.LessOrEqual(t, from, len(runes))
			if piece := token.(string); !strings.HasPrefix(piece, "bytes:") && !strings.HasPrefix(piece, "<|") {
				require.True(t, strings.HasPrefix(string(runes[from:]), piece), "token %d %q at %d of %q", j, piece, from, whole)
			}
		}
	}
}

func TestModelsAndTokenizerInfo(t *testing.T) {
	s := newSite(t, Options{Names: []string{"org/name"}, Root: "file.gguf"}, infer.Options{})
	list := s.do("GET", "/v1/models", "").json(t)
	require.Equal(t, "list", text(t, list, "object"))
	require.Len(t, at(t, list, "data"), 2)
	card := at(t, list, "data", 0)
	keys(t, card, "id", "object", "created", "owned_by", "root", "parent", "max_model_len", "precision", "permission")
	require.Equal(t, "f32", text(t, card, "precision"))
	require.Equal(t, "org/name", text(t, card, "id"))
	require.Equal(t, "file.gguf", text(t, card, "root"))
	for _, path := range []string{"/v1/models/org/name", "/v1/models/org%2Fname"} {
		require.Equal(t, "org/name", text(t, s.do("GET", path, "").json(t), "id"))
	}
	missing := s.do("GET", "/v1/models/none", "")
	require.Equal(t, 404, missing.status)
	require.Equal(t, "not_found_error", text(t, missing.json(t), "error", "type"))

	info := s.do("GET", "/tokenizer_info", "").json(t)
	require.Equal(t, "<|end|>", text(t, info, "eos_token"))
	require.Nil(t, at(t, info, "bos_token"))
	require.Contains(t, text(t, info, "chat_template"), "message.role")
	require.Equal(t, 200, s.do("GET", "/health", "").status)
}

// Text never splits a character and never shows the beginning of a stop string that came true.
func TestStreamsEqualWholeAnswers(t *testing.T) {
	s := newSite(t, Options{}, infer.Options{MaxSeqs: 8, MaxBatchedTokens: 16})
	tok := s.engine.Tokenizer()
	bias := func(text string) string {
		ids := map[string]int{}
		for i := range len(text) {
			for id := range int32(tok.VocabSize()) {
				if string(tok.Bytes(id)) == text[i:i+1] {
					ids[fmt.Sprint(id)] = 100
				}
			}
		}
		raw, _ := json.Marshal(ids)
		return string(raw)
	}
	for _, c := range []struct{ name, alphabet, stop string }{
		{"emoji", "😀é", `[]`},
		{"stops", "ab", `["aabb","bba"]`},
		{"characters as stops", "😀é", `["é","😀"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range 6 {
				for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
					start := `"prompt":"1"`
					if strings.Contains(path, "chat") {
						start = sum
					}
					body := fmt.Sprintf(`%s,"logit_bias":%s,"temperature":2,"max_tokens":40,"seed":%d`, start, bias(c.alphabet), seed)
					free := s.ask(path, `{`+body+`}`)
					whole := s.ask(path, `{`+body+`,"stop":`+c.stop+`}`)
					events := s.stream(path, `{`+body+`,"stop":`+c.stop+`,"stream":true}`)
					for _, e := range events {
						require.True(t, utf8.ValidString(e))
					}
					got := content(t, whole)
					require.Equal(t, got, joined(t, events, 1)[0])
					require.Equal(t, cut(content(t, free), c.stop), got)
				}
			}
		})
	}
}

// content is the text of the first choice.
func content(t *testing.T, answer any) string {
	t.Helper()
	c := at(t, answer, "choices", 0).(map[string]any)
	if m, ok := c["message"]; ok {
		return text(t, m, "content")
	}
	return text(t, c, "text")
}

// cut is a text up to the stop string that is complete first.
func cut(whole, stops string) string {
	var list []string
	_ = json.Unmarshal([]byte(stops), &list)
	for end := range len(whole) + 1 {
		from := -1
		for _, stop := range list {
			if strings.HasSuffix(whole[:end], stop) && (from < 0 || end-len(stop) < from) {
				from = end - len(stop)
			}
		}
		if from >= 0 {
			return whole[:from]
		}
	}
	return whole
}
