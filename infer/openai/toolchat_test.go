package openai

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/infer"
	"graft/model/tokenizer"
)

// script is what the model of a caller says: one token each.
var script = []string{"Well", "\n<tool_", "call>\n{\"name\": \"ad", "d\", \"arguments\": {\"a\"", ": 12}}\n</tool_call>", "<tool_call>{\"name\":\"add\",\"parameters\":{\"a\":12}}</tool_call>"}

// caller is a server whose model says the script when told says is in the request.
func caller(t testing.TB) (s *site, says string) {
	t.Helper()
	const first, step = 140, 13
	bias := map[string]int{}
	for id := range 263 {
		bias[fmt.Sprint(id)] = -100
	}
	for i := range len(script) + 1 { // and the end
		bias[fmt.Sprint(first+i)] = 100 - step*i // a token that was said is not said again
	}
	raw, err := json.Marshal(bias)
	require.NoError(t, err)
	s = buildWith(t, Options{ChatTemplate: `{# <tool_call> #}{{ tools|tojson if tools }}{% for m in messages %}{{ m.content }}{{ m.tool_calls|tojson if m.tool_calls }}<|end|>{% endfor %}`}, infer.Options{},
		func(tok *tokenizer.Tokenizer) *tokenizer.Tokenizer {
			kv := tok.MarshalGGUF()
			tokens, kinds := append([]string{}, kv["tokenizer.ggml.tokens"].([]string)...), append([]int32{}, kv["tokenizer.ggml.token_type"].([]int32)...)
			for i, text := range script {
				tokens[first+i], kinds[first+i] = text, 4 // as it is written
			}
			kv["tokenizer.ggml.tokens"], kv["tokenizer.ggml.token_type"] = tokens, kinds
			out, err := tokenizer.FromGGUF(kv)
			require.NoError(t, err)
			return out
		})
	return s.listen(), `"temperature":0,"repetition_penalty":1000,"max_tokens":20,"stop_token_ids":[` + fmt.Sprint(first+len(script)) + `],"logit_bias":` + string(raw)
}

const addTool = `"tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}]`

func TestChatCalls(t *testing.T) {
	s, says := caller(t)
	const path = "/v1/chat/completions"
	plain := strings.Join(script, "")
	for _, without := range []string{"", `,` + addTool + `,"tool_choice":"none"`, `,"tools":[]`} {
		choice := at(t, s.ask(path, `{`+sum+`,`+says+without+`}`), "choices", 0)
		require.Equal(t, plain, text(t, choice, "message", "content"))
		require.Equal(t, "stop", text(t, choice, "finish_reason"))
		keys(t, at(t, choice, "message"), "role", "content", "refusal")
		require.Equal(t, plain, joined(t, s.stream(path, `{`+sum+`,`+says+without+`,"stream":true}`), 1)[0])
	}
	a := s.ask(path, `{`+sum+`,`+says+`,`+addTool+`,"tool_choice":"auto","logprobs":true}`)
	choice := at(t, a, "choices", 0)
	require.Equal(t, "tool_calls", text(t, choice, "finish_reason"))
	require.Equal(t, "Well", text(t, choice, "message", "content"))
	require.Len(t, at(t, choice, "message", "tool_calls"), 2)
	require.Len(t, at(t, choice, "logprobs", "content"), len(script)+1, "log-probs of all tokens, whatever they became")
	for i, arguments := range []string{`{"a": 12}`, `{"a":12}`} {
		call := at(t, choice, "message", "tool_calls", i)
		keys(t, call, "id", "type", "function")
		require.Equal(t, "function", text(t, call, "type"))
		require.Equal(t, map[string]any{"name": "add", "arguments": arguments}, at(t, call, "function"))
	}
	short := at(t, s.ask(path, `{`+sum+`,`+strings.Replace(says, "20", "5", 1)+`,`+addTool+`}`), "choices", 0)
	require.Equal(t, "length", text(t, short, "finish_reason"), "cut short, though a call was whole")
	require.Len(t, at(t, short, "message", "tool_calls"), 1)
	broken := at(t, s.ask(path, `{`+sum+`,`+strings.Replace(says, "20", "4", 1)+`,`+addTool+`}`), "choices", 0)
	require.Equal(t, strings.Join(script[:4], ""), text(t, broken, "message", "content"), "half a call is text")
	only := at(t, s.ask(path, `{`+sum+`,`+strings.Replace(says, `"140":100`, `"140":-100`, 1)+`,`+addTool+`}`), "choices", 0)
	require.Nil(t, at(t, only, "message", "content"))
	require.Len(t, at(t, only, "message", "tool_calls"), 2)
}

func TestChatCallsInStream(t *testing.T) {
	s, says := caller(t)
	all := chunks(t, s.stream("/v1/chat/completions", `{`+sum+`,`+says+`,`+addTool+`,"stream":true}`))
	content, ids := "", map[string]bool{}
	for i, c := range all {
		choice := at(t, c, "choices", 0).(map[string]any)
		delta := choice["delta"].(map[string]any)
		if piece, ok := delta["content"].(string); ok {
			content += piece
		}
		if last := i == len(all)-1; last {
			require.Equal(t, "tool_calls", choice["finish_reason"])
		} else {
			require.Nil(t, choice["finish_reason"])
		}
		calls, _ := delta["tool_calls"].([]any)
		for _, call := range calls {
			keys(t, call, "index", "id", "type", "function")
			require.EqualValues(t, len(ids), at(t, call, "index"))
			ids[text(t, call, "id")] = true
			require.Equal(t, "add", text(t, call, "function", "name"))
		}
	}
	require.Equal(t, "Well", content)
	require.Len(t, ids, 2)
	require.Equal(t, uint64(1), s.engine.Stats().Stopped)
}

// The official client reads calls, whole and in streams, and sends them back.
func TestOfficialClientReadsCalls(t *testing.T) {
	python := os.Getenv("GRAFT_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import openai").Run(); err != nil {
		t.Skipf("%s has no openai package: pip install openai, or name another Python in GRAFT_PYTHON", python)
	}
	s, says := caller(t)
	out, err := exec.Command(python, "testdata/tool_calls.py", s.url+"/v1", `{"model":"base",`+sum+`,`+says+`,`+addTool+`}`).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "ok\n", string(out))
}
