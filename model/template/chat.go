package template

import (
	"math/big"
	"slices"
	"time"
)

// Chat is what a chat template renders. Values are those of DecodeJSON: nil,
// bool, int64 or int, float64, string, []any, *Map.
type Chat struct {
	// Messages are *Map, in order. As the transformers library does, keys whose
	// value is nil count as absent, and a message with one of the keys
	// reasoning_content, thinking and reasoning has both of the first two.
	Messages []any
	// Tools and Documents are lists, or nil for none.
	Tools, Documents any
	// AddGenerationPrompt asks for the opening of an assistant message.
	AddGenerationPrompt bool
	// Kwargs are further variables (chat_template_kwargs of a request). They
	// may replace the special tokens but not the other fields of Chat.
	Kwargs *Map
	// BOS, EOS, UNK and PAD are the texts of the special tokens; an empty one
	// is not defined in the template.
	BOS, EOS, UNK, PAD string
	// Now is the time that strftime_now sees; zero means time.Now.
	Now time.Time
	// Limits bound the render; zero fields mean their defaults.
	Limits Limits
}

// RenderChat renders a conversation to text. An error is an *Error; its kind
// is Raised where the template rejects the messages by raise_exception.
func (t *Template) RenderChat(c Chat) (string, error) {
	r, err := t.prepare(&c)
	if err != nil {
		return "", err
	}
	return r.all()
}

// RenderChatSpans is RenderChat that also returns the byte spans [from, to) of
// the text that {% generation %} blocks printed: what the assistant wrote, for
// loss masks. Spans are in the order of the text; there are none when the
// template has no such blocks. Text of a block that a macro or set block
// caught counts where it is printed; it is an error to change such text (by a
// filter, say) before printing it, because its place is then unknown.
func (t *Template) RenderChatSpans(c Chat) (text string, spans [][2]int, err error) {
	r, err := t.prepare(&c)
	if err != nil {
		return "", nil, err
	}
	if text, err = r.all(); err != nil {
		return "", nil, err
	}
	for _, h := range r.held {
		if !h.used {
			return "", nil, fail(RuntimeError, "the text of a generation block was caught and then changed or dropped, so its place in the output is unknown; print it where it stands")
		}
	}
	slices.SortFunc(r.spans, func(a, b [2]int) int {
		if a[0] != b[0] {
			return a[0] - b[0]
		}
		return a[1] - b[1]
	})
	return text, r.spans, nil
}

// prepare starts a render with the variables of a chat.
func (t *Template) prepare(c *Chat) (*render, error) {
	now := time.Now
	if !c.Now.IsZero() {
		now = func() time.Time { return c.Now }
	}
	r := newRender(t, c.Limits, now)
	messages := make([]any, len(c.Messages))
	for i, v := range c.Messages {
		v, err := importValue(v, 0)
		if err != nil {
			return nil, fail(TypeError, "messages[%d]%v", i, err)
		}
		messages[i] = normalMessage(v)
	}
	for _, token := range [...]struct{ name, text string }{
		{"bos_token", c.BOS}, {"eos_token", c.EOS}, {"unk_token", c.UNK}, {"pad_token", c.PAD},
	} {
		if token.text != "" {
			r.define(token.name, token.text)
		}
	}
	if c.Kwargs != nil {
		for i, k := range c.Kwargs.keys {
			name, ok := asStr(k)
			if !ok || slices.Contains([]string{"messages", "tools", "documents", "add_generation_prompt"}, name) {
				return nil, fail(TypeError, "template argument %v: the name is reserved; set the field of the request instead", k)
			}
			v, err := importValue(c.Kwargs.vals[i], 0)
			if err != nil {
				return nil, fail(TypeError, "template argument %s%v", name, err)
			}
			r.define(name, v)
		}
	}
	r.define("messages", messages)
	r.define("add_generation_prompt", c.AddGenerationPrompt)
	for _, list := range [...]struct {
		name  string
		value any
	}{{"tools", c.Tools}, {"documents", c.Documents}} {
		v, err := importValue(list.value, 0)
		if err != nil {
			return nil, fail(TypeError, "%s%v", list.name, err)
		}
		r.define(list.name, v)
	}
	return r, nil
}

// normalMessage returns a message without its null values, and with both keys
// for reasoning where it has one.
func normalMessage(v any) any {
	m, ok := v.(*Map)
	if !ok {
		return v
	}
	var reasoning any
	for _, key := range [...]string{"reasoning_content", "thinking", "reasoning"} {
		if v, _ := m.Get(key); v != nil {
			reasoning = v
			break
		}
	}
	hasNull := false
	for _, v := range m.vals {
		hasNull = hasNull || v == nil
	}
	if !hasNull && reasoning == nil {
		return m
	}
	out := &Map{}
	for i, k := range m.keys {
		if m.vals[i] != nil {
			out.add(k, canonicalOf(k), m.vals[i])
		}
	}
	if reasoning != nil {
		for _, key := range [...]string{"reasoning_content", "thinking"} {
			if out.findString(key) < 0 {
				out.Set(key, reasoning)
			}
		}
	}
	return out
}

// importError says where in a value handed in there is a type that the
// language does not have.
type importError struct{ path, what string }

func (e *importError) Error() string { return e.path + " " + e.what }

// importValue checks a value handed in from Go and returns it, copied only
// where a Go type must become one of the language.
func importValue(v any, depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, &importError{what: sprintf("is nested more than %d deep", maxJSONDepth)}
	}
	switch v := v.(type) {
	case nil, bool, int64, float64, string, *big.Int:
		return v, nil
	case int:
		return int64(v), nil
	case []string:
		list := make([]any, len(v))
		for i, s := range v {
			list[i] = s
		}
		return list, nil
	case []any:
		return importList(v, depth)
	case *Map:
		if v == nil {
			return nil, nil
		}
		return importMap(v, depth)
	}
	return nil, &importError{what: sprintf("has Go type %T; use nil, bool, int64, float64, string, []any or *template.Map", v)}
}

func importList(list []any, depth int) (any, error) {
	out := list
	for i, x := range list {
		y, err := importValue(x, depth+1)
		if err != nil {
			e := err.(*importError)
			return nil, &importError{sprintf("[%d]%s", i, e.path), e.what}
		}
		if changed(x, y) {
			if &out[0] == &list[0] {
				out = slices.Clone(list)
			}
			out[i] = y
		}
	}
	return out, nil
}

func importMap(m *Map, depth int) (any, error) {
	out := m
	for i, x := range m.vals {
		y, err := importValue(x, depth+1)
		if err != nil {
			e := err.(*importError)
			return nil, &importError{sprintf("[%v]%s", quoteName(m.keys[i]), e.path), e.what}
		}
		if changed(x, y) {
			if out == m {
				out = m.clone()
			}
			out.vals[i] = y
		}
	}
	return out, nil
}

// changed says whether importValue made a new value.
func changed(x, y any) bool {
	switch x := x.(type) {
	case int, []string:
		return true
	case []any:
		z, ok := y.([]any)
		return !ok || len(x) > 0 && &x[0] != &z[0]
	case *Map:
		z, ok := y.(*Map)
		return !ok || x != z
	}
	return false
}
