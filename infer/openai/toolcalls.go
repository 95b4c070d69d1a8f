package openai

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Bounds of what a request offers and a model calls.
const (
	maxTools     = 1024
	maxNameBytes = 256
)

// toolCall is a call as the API tells it.
type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function calledByName `json:"function"`

	index int // within its choice
}

type calledByName struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // a JSON object, as the model wrote it
}

// callDelta is a call in a stream: whole, since only a whole one is known to be a call.
type callDelta struct {
	Index int `json:"index"`
	toolCall
}

// jsonSpan finds the end of a JSON object or array in text that comes in pieces, by its brackets.
type jsonSpan struct {
	at              int // scanned so far; behind the value when it is whole
	depth           int
	quoted, escaped bool
}

// scan goes on with text, in which the value begins at start, and reports whether it is whole.
func (s *jsonSpan) scan(text string, start int) bool {
	for s.at = max(s.at, start); s.at < len(text); {
		c := text[s.at]
		s.at++
		switch {
		case s.escaped:
			s.escaped = false
		case s.quoted && c == '\\':
			s.escaped = true
		case c == '"':
			s.quoted = !s.quoted
		case s.quoted:
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			if s.depth--; s.depth == 0 {
				return true
			}
		}
	}
	return false
}

// readCalls reads {"name", "arguments" or "parameters"}, or a list of such.
func readCalls(text string) ([]toolCall, bool) {
	if strings.HasPrefix(text, "{") {
		call, ok := readCall([]byte(text))
		return []toolCall{call}, ok
	}
	var list []json.RawMessage
	if json.Unmarshal([]byte(text), &list) != nil || len(list) == 0 || len(list) > maxTools {
		return nil, false
	}
	calls := make([]toolCall, len(list))
	for i, raw := range list {
		var ok bool
		if calls[i], ok = readCall(raw); !ok {
			return nil, false
		}
	}
	return calls, true
}

func readCall(raw []byte) (call toolCall, ok bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || json.Unmarshal(fields["name"], &call.Function.Name) != nil || !isName(call.Function.Name) {
		return call, false
	}
	if id := ""; json.Unmarshal(fields["id"], &id) == nil && isIdentifier(id) {
		call.ID = id
	}
	arguments, given := fields["arguments"]
	if !given {
		arguments = fields["parameters"]
	}
	call.Function.Arguments, ok = argumentsOf(arguments)
	return call, ok
}

// argumentsOf are arguments that are an object; one within a string is taken out, none is {}.
func argumentsOf(raw []byte) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		raw = []byte(text)
	}
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "{}", true
	case raw[0] != '{' || !json.Valid(raw):
		return "", false
	}
	return string(raw), true
}

// isName reports whether a text may be the name of a tool.
func isName(text string) bool {
	return text != "" && len(text) <= maxNameBytes && !strings.ContainsAny(text, white+"\"<>[]{}")
}

// taggedCall reads what stands between the tags. open: it ends within a string.
func (t *toolset) taggedCall(text string) ([]toolCall, status) {
	text = strings.Trim(text, white)
	if strings.HasPrefix(text, functionOpen) {
		return t.functionCall(text)
	}
	if text != "" {
		if calls, ok := readCalls(text); ok {
			return calls, good
		}
	}
	var span jsonSpan
	if span.scan(text, 0); span.quoted {
		return nil, open
	}
	return nil, bad
}

const (
	functionOpen, functionClose   = "<function=", "</function>"
	parameterOpen, parameterClose = "<parameter=", "</parameter>"
)

// functionCall reads <function=name><parameter=key>value</parameter>…</function>. Values are texts; the
// tool's schema says which of them are JSON.
func (t *toolset) functionCall(text string) ([]toolCall, status) {
	if !strings.HasSuffix(text, functionClose) {
		return nil, open
	}
	name, rest, _ := strings.Cut(text[len(functionOpen):len(text)-len(functionClose)], ">")
	if !isName(name) {
		return nil, bad
	}
	var out bytes.Buffer
	sep := "{"
	for rest = strings.TrimLeft(rest, white); rest != ""; rest = strings.TrimLeft(rest, white) {
		after, ok := strings.CutPrefix(rest, parameterOpen)
		key, after, named := strings.Cut(after, ">")
		value, after, closed := strings.Cut(after, parameterClose)
		if !ok || !named || !closed || !isName(key) {
			return nil, bad
		}
		rest = after
		spelled, err := encodeJSON(key)
		if err != nil {
			return nil, bad
		}
		out.WriteString(sep)
		out.Write(spelled)
		out.WriteString(": ")
		out.Write(t.value(name, key, strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")))
		sep = ", "
	}
	if sep == "{" {
		out.WriteString(sep)
	}
	out.WriteString("}")
	return []toolCall{{Function: calledByName{name, out.String()}}}, good
}

// value is a parameter's value as JSON.
func (t *toolset) value(tool, parameter, text string) []byte {
	if !t.isText(tool, parameter) {
		plain := strings.Trim(text, white)
		if word, ok := map[string]string{"True": "true", "False": "false", "None": "null"}[plain]; ok {
			plain = word // the template prints them as Python does
		}
		if json.Valid([]byte(plain)) {
			return []byte(plain)
		}
	}
	raw, err := encodeJSON(text)
	if err != nil {
		panic("openai: a text that is not JSON: " + err.Error())
	}
	return raw
}

// bracketHead reads name, [CALL_ID]id and [ARGS]; rest is what follows. more: the text ends before that
// is known.
func bracketHead(text string) (call toolCall, rest string, more bool) {
	end := strings.IndexAny(text, "[{")
	if end < 0 {
		return call, text, len(text) <= maxNameBytes
	}
	name := strings.TrimRight(text[:end], white)
	rest = text[end:]
	if after, ok := strings.CutPrefix(rest, bracketID); ok {
		end := strings.IndexAny(after, "[{")
		if end < 0 {
			return call, rest, len(after) <= maxNameBytes
		}
		if id := strings.Trim(after[:end], white); isIdentifier(id) {
			call.ID = id
		}
		rest = after[end:]
	}
	rest = strings.TrimLeft(strings.TrimPrefix(rest, bracketArgs), white)
	if rest == "" || rest[0] == '[' && (strings.HasPrefix(bracketArgs, rest) || strings.HasPrefix(bracketID, rest)) {
		return call, rest, true
	}
	if isName(name) {
		call.Function.Name = name
	}
	return call, rest, false
}
