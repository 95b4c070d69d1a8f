package openai

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/infer"
	"graft/model/template"
)

// offered is a toolset with the tools add(a integer, s string) and now().
func offered(form callForm) *toolset {
	properties := template.NewMap("a", template.NewMap("type", "integer"), "s", template.NewMap("type", "string"), "o", template.NewMap("type", "object"))
	return &toolset{form: form, tools: map[string]*template.Map{"add": properties, "now": template.NewMap()}}
}

// reading is what a text comes to: its content and its calls as NAME(ARGUMENTS).
func reading(t *toolset, pieces []string) (content string, calls []string, finish infer.FinishReason) {
	r := callReader{toolset: t}
	for i, piece := range pieces {
		ev := &event{Event: infer.Event{Text: piece}}
		if i == len(pieces)-1 {
			ev.Finish = infer.FinishStop
		}
		text, found := r.event(ev)
		content += text
		for _, c := range found {
			calls = append(calls, c.Function.Name+"("+c.Function.Arguments+")")
		}
		finish = ev.Finish
	}
	return content, calls, finish
}

// written are texts of models, what is content in them, and their calls.
func written() []struct {
	form    callForm
	text    string
	content string
	calls   []string
} {
	const call = `<tool_call>` + "\n" + `{"name": "add", "arguments": {"a": 12}}` + "\n" + `</tool_call>`
	const list = `[{"name": "add", "arguments": {"a": 1}}, {"name": "now", "arguments": {}}]`
	return []struct {
		form    callForm
		text    string
		content string
		calls   []string
	}{
		{taggedCalls, "", "", nil},
		{taggedCalls, " plain < text <tool \n", " plain < text <tool \n", nil},
		{taggedCalls, call, "", []string{`add({"a": 12})`}},
		{taggedCalls, "Let me see.\n\n" + call + "\n" + call + "\n", "Let me see.", []string{`add({"a": 12})`, `add({"a": 12})`}},
		{taggedCalls, call + " and so on ", "and so on ", []string{`add({"a": 12})`}},
		{taggedCalls, "<<tool_call" + call, "<<tool_call", []string{`add({"a": 12})`}},
		{taggedCalls, `<tool_call>{"name": "now"}`, "", []string{`now({})`}},
		{taggedCalls, `<tool_call>{"name": "now", "arguments": null}</tool_call>`, "", []string{`now({})`}},
		{taggedCalls, `<tool_call>{"arguments":{"s":"</tool_call> \" }"},"name":"add"}</tool_call>`, "", []string{`add({"s":"</tool_call> \" }"})`}},
		{taggedCalls, `<tool_call>{"name": "add", "arguments": "{\"a\": 1}"}</tool_call>`, "", []string{`add({"a": 1})`}},
		{taggedCalls, `<tool_call>` + list + `</tool_call>`, "", []string{`add({"a": 1})`, `now({})`}},
		{taggedCalls, `<tool_call>{"name": "else", "arguments": {"日": "é😀", "n": 1e400, "big": 123456789012345678901234567890}}</tool_call>`, "",
			[]string{`else({"日": "é😀", "n": 1e400, "big": 123456789012345678901234567890})`}},
		{taggedCalls, "x \n<tool_call>\n{'name': 'add'}\n</tool_call>\n y", "x \n<tool_call>\n{'name': 'add'}\n</tool_call>\n y", nil},
		{taggedCalls, `<tool_call>{"name": "add", "arguments": {</tool_call>` + call, `<tool_call>{"name": "add", "arguments": {</tool_call>`, []string{`add({"a": 12})`}},
		{taggedCalls, `<tool_call>{"name": "add", "arg`, `<tool_call>{"name": "add", "arg`, nil},
		{taggedCalls, `<tool_call>{"name": "", "arguments": {}}</tool_call>`, `<tool_call>{"name": "", "arguments": {}}</tool_call>`, nil},
		{taggedCalls, `<tool_call>{"Name": "add", "arguments": {}}</tool_call>`, `<tool_call>{"Name": "add", "arguments": {}}</tool_call>`, nil},
		{taggedCalls, `<tool_call>{"name": "add", "arguments": [1]}</tool_call>`, `<tool_call>{"name": "add", "arguments": [1]}</tool_call>`, nil},
		{taggedCalls, `<tool_call>7</tool_call><tool_call></tool_call>`, `<tool_call>7</tool_call><tool_call></tool_call>`, nil},
		{taggedCalls, `<tool_call>"` + strings.Repeat(tagClose, 40), `<tool_call>"` + strings.Repeat(tagClose, 40), nil},
		{taggedCalls, "<tool_call>\n<function=add>\n<parameter=a>\n 12 \n</parameter>\n<parameter=s>\n12\n\n</parameter>\n<parameter=o>{\"x\": [True]}</parameter>\n<parameter=new>\ntrue\n</parameter>\n</function>\n</tool_call>", "",
			[]string{`add({"a": 12, "s": "12\n", "o": "{\"x\": [True]}", "new": "true"})`}},
		{taggedCalls, "<tool_call><function=now></function></tool_call>", "", []string{`now({})`}},
		{taggedCalls, "<tool_call><function=now>what</function></tool_call>", "<tool_call><function=now>what</function></tool_call>", nil},

		{bareCalls, `{"name": "add", "parameters": {"a": 12}}`, "", []string{`add({"a": 12})`}},
		{bareCalls, "\n<|python_tag|> " + `{"type": "function", "name": "add", "parameters": {"s": "}\"{"}}` + "\n", "", []string{`add({"s": "}\"{"})`}},
		{bareCalls, `{"name": "now", "parameters": {}}; {"name": "add", "parameters": {"a": 1}}`, "", []string{`now({})`, `add({"a": 1})`}},
		{bareCalls, `[{"name": "now", "parameters": {}}] done`, "done", []string{`now({})`}},
		{bareCalls, ` {"name": "Bob", "age": 7} `, ` {"name": "Bob", "age": 7} `, nil},
		{bareCalls, `{"name": "add", "parameters": {"a"`, `{"name": "add", "parameters": {"a"`, nil},
		{bareCalls, `It is {"name": "add", "parameters": {}}`, `It is {"name": "add", "parameters": {}}`, nil},
		{bareCalls, `<|python`, `<|python`, nil},
		{bareCalls, " \n", " \n", nil},

		{bracketCalls, `[TOOL_CALLS] ` + list, "", []string{`add({"a": 1})`, `now({})`}},
		{bracketCalls, `Yes. [TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]now[CALL_ID]a1b2c3d4e[ARGS] {}`, "Yes.", []string{`add({"a": 1})`, `now({})`}},
		{bracketCalls, `[TOOL_CALLS]now{}`, "", []string{`now({})`}},
		{bracketCalls, `[TOOL_CALLS] a word about [x] {y}`, `[TOOL_CALLS] a word about [x] {y}`, nil},
		{bracketCalls, `[TOOL_CALLS]add[ARGS]{"a": `, `[TOOL_CALLS]add[ARGS]{"a": `, nil},
		{bracketCalls, `[TOOL_CALLS][1, 2] [TOOL`, `[TOOL_CALLS][1, 2] [TOOL`, nil},
	}
}

// Calls are found, the rest is content to the byte, however the text is cut.
func TestCallsInText(t *testing.T) {
	for _, c := range written() {
		var letters []string
		for _, r := range c.text {
			letters = append(letters, string(r))
		}
		cuts := [][]string{{c.text}, append(letters, ""), {c.text, ""}}
		for i := range c.text {
			cuts = append(cuts, []string{c.text[:i], c.text[i:]})
		}
		for _, pieces := range cuts {
			content, calls, finish := reading(offered(c.form), pieces)
			require.Equal(t, c.content, content, "%q", pieces)
			require.Equal(t, c.calls, calls, "%q", pieces)
			require.Equal(t, map[bool]infer.FinishReason{true: finishCalls, false: infer.FinishStop}[len(calls) > 0], finish, "%q", pieces)
		}
	}
}

// Content is told as soon as it can not belong to a call.
func TestContentIsNotHeldLongerThanNeeded(t *testing.T) {
	r := callReader{toolset: offered(taggedCalls)}
	for _, step := range [][2]string{{"Hi", "Hi"}, {" there", " there"}, {"<", ""}, {"b>", "<b>"}, {"<tool_ca", ""}, {"lm", "<tool_calm"}, {"\n", ""}, {"x", "\nx"}} {
		got, calls := r.event(&event{Event: infer.Event{Text: step[0]}})
		require.Equal(t, step[1], got, "%q", step[0])
		require.Empty(t, calls)
	}
}

func TestCallIDs(t *testing.T) {
	for _, c := range []struct {
		form callForm
		text string
		want string
	}{
		{taggedCalls, `<tool_call>{"name":"now"}</tool_call>`, `^call_[0-9a-f]{24}$`},
		{bareCalls, `{"name":"now"}`, `^call_[0-9a-f]{24}$`},
		{bracketCalls, `[TOOL_CALLS][{"name":"now"}]`, `^[0-9a-f]{9}$`},
		{bracketCalls, `[TOOL_CALLS][{"name":"now","id":"abcdefghi"}]`, `^abcdefghi$`},
		{bracketCalls, `[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}`, `^abcdefghi$`},
		{bracketCalls, `[TOOL_CALLS][{"name":"now","id":"a b"}]`, `^[0-9a-f]{9}$`},
	} {
		r := callReader{toolset: offered(c.form)}
		_, calls := r.event(&event{Event: infer.Event{Text: c.text, Finish: infer.FinishLength}})
		require.Len(t, calls, 1, c.text)
		require.Regexp(t, c.want, calls[0].ID, c.text)
	}
}

// Markers that are special tokens are read off the tokens, and never shown.
func TestHiddenMarkers(t *testing.T) {
	for _, c := range []struct {
		pieces  []string // "#" in front: the token's marker, which has no text
		content string
		calls   int
	}{
		{[]string{"Yes.", "#[TOOL_CALLS]", "add", "#[ARGS]", `{"a"`, `: 1}`, "#[TOOL_CALLS]", "now", "#[ARGS]", "{}"}, "Yes.", 2},
		{[]string{"#[TOOL_CALLS]", "not", " a call"}, "not a call", 0},
		{[]string{"a", "#[ARGS]", "b"}, "ab", 0},
	} {
		set := offered(bracketCalls)
		set.hidden = map[int32]string{1: bracketOpen, 2: bracketID, 3: bracketArgs}
		r := callReader{toolset: set}
		content, n := "", 0
		for i, piece := range c.pieces {
			ev := &event{Event: infer.Event{HasToken: true, Text: piece, Token: 9}}
			for id, marker := range set.hidden {
				if piece == "#"+marker {
					ev.Token, ev.Text = id, ""
				}
			}
			if i == len(c.pieces)-1 {
				ev.Finish = infer.FinishLength
			}
			text, calls := r.event(ev)
			content += text
			n += len(calls)
			require.NotEqual(t, finishCalls, ev.Finish, "what was cut short says so")
		}
		require.Equal(t, c.content, content)
		require.Equal(t, c.calls, n)
	}
}

func TestFormsOfTemplates(t *testing.T) {
	for name, want := range map[string]callForm{
		"Qwen-Qwen2.5-7B-Instruct": taggedCalls, "Qwen3-Coder": taggedCalls, "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": taggedCalls,
		"meta-llama-Llama-3.2-3B-Instruct": bareCalls, "meta-llama-Llama-3.3-70B-Instruct": bareCalls,
		"Mistral-Small-3.2-24B-Instruct-2506": bracketCalls, "unsloth-mistral-Devstral-Small-2507": bracketCalls,
		"llama-cpp-rwkv-world": noCalls, "fireworks-ai-llama-3-firefunction-v2": noCalls,
	} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "tests", "testdata", "templates", name+".jinja"))
		require.NoError(t, err)
		require.Equal(t, want, formOf(string(raw)), name)
	}
}

// No text makes the reader fail, lose text, invent any, or depend on how it is cut.
func FuzzCallReader(f *testing.F) {
	for _, c := range written() {
		f.Add(uint8(c.form), c.text, uint16(7))
	}
	f.Fuzz(func(t *testing.T, kind uint8, text string, at uint16) {
		set := offered(callForm(kind%3) + taggedCalls)
		whole, calls, _ := reading(set, []string{text})
		i := int(at) % (len(text) + 1)
		content, again, _ := reading(set, []string{text[:i], text[i:]})
		if whole != content || fmt.Sprint(calls) != fmt.Sprint(again) {
			t.Fatalf("%q cut at %d: %q %q, whole: %q %q", text, i, content, again, whole, calls)
		}
		if len(calls) == 0 && whole != text {
			t.Fatalf("%q became %q", text, whole)
		}
		for _, c := range calls {
			_, arguments, _ := strings.Cut(c, "({") // no name holds a brace
			if !json.Valid([]byte("{" + strings.TrimSuffix(arguments, ")"))) {
				t.Fatalf("arguments of %q are not JSON", c)
			}
		}
	})
}
