package openai

import (
	"strings"

	"graft/model/template"
	"graft/model/tokenizer"
)

// callForm is how a family of models spells its calls of tools.
type callForm uint8

const (
	noCalls      callForm = iota
	taggedCalls           // <tool_call>{"name", "arguments"}</tool_call> of Hermes and Qwen; also Qwen Coder's tags inside
	bareCalls             // Llama 3: a reply that is {"name", "parameters"}, perhaps behind <|python_tag|>
	bracketCalls          // Mistral: [TOOL_CALLS][{"name", "arguments"}], or [TOOL_CALLS]name[ARGS]{…}
)

const (
	tagOpen, tagClose = "<tool_call>", "</tool_call>"
	pythonTag         = "<|python_tag|>"
	bracketOpen       = "[TOOL_CALLS]"
	bracketID         = "[CALL_ID]"
	bracketArgs       = "[ARGS]"
)

// formOf tells from a chat template how its model was taught to call.
func formOf(source string) callForm {
	switch {
	case strings.Contains(source, tagOpen):
		return taggedCalls
	case strings.Contains(source, bracketOpen):
		return bracketCalls
	case strings.Contains(source, `{"name": function name, "parameters": `):
		return bareCalls
	}
	return noCalls
}

// opener begins a call; a bare call has none.
func (f callForm) opener() string {
	switch f {
	case taggedCalls:
		return tagOpen
	case bracketCalls:
		return bracketOpen
	}
	return ""
}

// hiddenMarkers are the markers of a form that are special tokens of the tokenizer: they do not show in
// text, so they are read off the tokens.
func (f callForm) hiddenMarkers(tok *tokenizer.Tokenizer) map[int32]string {
	out := map[int32]string{}
	for _, marker := range map[callForm][]string{taggedCalls: {tagOpen, tagClose}, bracketCalls: {bracketOpen, bracketID, bracketArgs}}[f] {
		if id, ok := tok.ID(marker); ok && tok.IsSpecial(id) {
			out[id] = marker
		}
	}
	return out
}

// newID names a call. Mistral's templates take nine letters and digits only.
func (f callForm) newID() string {
	if f == bracketCalls {
		return newID()[:9]
	}
	return "call_" + newID()[:24]
}

// toolset is what a request lets the model call, and how the model's calls are told from text.
type toolset struct {
	form   callForm
	tools  map[string]*template.Map // the properties of each tool's parameters, by its name
	hidden map[int32]string         // markers that the text does not show, by token
}

// readToolset keeps what is needed of a request's tools, which have been checked. It is nil when there
// are none, or when nothing is known of the model's calls: then they stay in the text.
func (s *Server) readToolset(b *body, keepSpecial bool) *toolset {
	list := b.list("tools", maxTools)
	if len(list) == 0 || s.form == noCalls || b.fault != nil {
		return nil
	}
	t := &toolset{form: s.form, tools: map[string]*template.Map{}}
	if !keepSpecial {
		t.hidden = s.hidden
	}
	for _, v := range list {
		tool, _ := v.(*template.Map)
		function := inner(tool, "function")
		name, _ := function.Get("name")
		if text, ok := name.(string); ok {
			t.tools[text] = inner(inner(function, "parameters"), "properties")
		}
	}
	return t
}

// inner is an object in an object, empty if there is none.
func inner(m *template.Map, key string) *template.Map {
	if m != nil {
		v, _ := m.Get(key)
		if found, ok := v.(*template.Map); ok {
			return found
		}
	}
	return template.NewMap()
}

// isText reports whether a parameter is declared as a string, or not at all.
func (t *toolset) isText(tool, parameter string) bool {
	kind, ok := inner(t.tools[tool], parameter).Get("type")
	return !ok || kind == "string"
}

// strip takes from a text the markers that a client does not see.
func (t *toolset) strip(text string) string {
	for _, marker := range t.hidden {
		text = strings.ReplaceAll(text, marker, "")
	}
	return text
}
