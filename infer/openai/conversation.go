package openai

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"graft/model/template"
)

// readConversation reads what a chat template renders, and renders it. Every text that a user
// controls is protected first: a special token spelled in it stays text.
func (s *Server) readConversation(b *body) prompt {
	var chat template.Chat
	chat.Messages = s.readMessages(b)
	if tools := b.list("tools", maxTools); len(tools) > 0 {
		chat.Tools = s.readTools(b, tools)
	}
	if documents := b.list("documents", 1024); len(documents) > 0 {
		chat.Documents = s.protect(documents)
	}
	chat.AddGenerationPrompt = b.flag("add_generation_prompt", true)
	if kwargs := b.object("chat_template_kwargs"); kwargs != nil {
		chat.Kwargs = s.readKwargs(b, kwargs.fields)
	}
	special := b.flag("add_special_tokens", false)
	b.refuse("chat_template", "templates of requests are not run; start the server with --chat-template")
	b.refuse("continue_final_message", "the reply always begins a new message", false)
	if b.fault != nil {
		return prompt{}
	}
	if s.template == nil {
		b.fail("messages", "this model has no chat template: use /v1/completions, or start the server with --chat-template FILE")
		return prompt{}
	}
	text, err := s.render(chat)
	if err != nil {
		b.fail("messages", "%s", renderMessage(err))
		return prompt{}
	}
	if b.keep(s.oversized("messages", text)) {
		return prompt{}
	}
	ids, err := s.encode(text, special)
	if err != nil {
		b.fail("messages", "%v", err)
	} else if len(ids) == 0 {
		b.fail("messages", "the chat template makes an empty prompt of these messages")
	}
	return prompt{ids: ids, text: text}
}

func (s *Server) render(chat template.Chat) (string, error) {
	piece := func(id int32, ok bool) string {
		if !ok {
			return ""
		}
		text, _ := s.tok.Token(id)
		return text
	}
	chat.BOS, chat.EOS = piece(s.tok.BOS()), piece(s.tok.EOS())
	chat.UNK, chat.PAD = piece(s.tok.UNK()), piece(s.tok.PAD())
	return s.template.RenderChat(chat)
}

// renderMessage says why a conversation could not be rendered.
func renderMessage(err error) string {
	var failed *template.Error
	if errors.As(err, &failed) && failed.Kind == template.Raised {
		return "the chat template refuses these messages: " + failed.Message
	}
	return fmt.Sprintf("the chat template can not render these messages: %v", err)
}

func (s *Server) readMessages(b *body) []any {
	list := b.list("messages", maxMessages)
	if len(list) == 0 {
		b.fail("messages", "messages is missing or empty")
		return nil
	}
	out := make([]any, 0, len(list))
	for i, v := range list {
		at := "messages[" + strconv.Itoa(i) + "]"
		m, ok := v.(*template.Map)
		if !ok {
			b.wrongType(at, v, "an object")
			return nil
		}
		message := s.readMessage(&body{fields: m, path: at + "."}, b)
		if b.fault != nil {
			return nil
		}
		out = append(out, message)
	}
	return out
}

// readMessage checks a message and returns what the template sees: content as one text, arguments of
// tool calls as objects, further fields as they are.
func (s *Server) readMessage(m, request *body) *template.Map {
	defer func() { request.keep(m.fault) }()
	role := m.text("role", "")
	if m.fault == nil && !isIdentifier(role) {
		m.fail("role", "%s is %q, want a role such as system, user, assistant or tool", m.path+"role", clip(role))
	}
	out := template.NewMap("role", role)
	for _, key := range m.fields.Keys() {
		v, _ := m.fields.Get(key)
		switch key {
		case "role":
		case "content":
			if content, ok := s.readContent(m, v); ok {
				out.Set(key, content)
			}
		case "tool_calls":
			if calls := s.readToolCalls(m); calls != nil {
				out.Set(key, calls)
			}
		case "function_call", "audio":
			m.refuse(key, "use tool_calls and text")
		case "refusal", "annotations":
		default:
			if !isIdentifier(key) {
				m.fail("", "a message has a field called %q", clip(key))
			}
			out.Set(key, s.protect(v))
		}
	}
	if _, ok := out.Get("content"); !ok {
		if _, calls := out.Get("tool_calls"); !calls && m.fault == nil {
			m.fail("content", "%scontent is missing", m.path)
		}
		out.Set("content", nil)
	}
	return out
}

// readContent joins the text parts of a content with line ends between them.
func (s *Server) readContent(m *body, v any) (text string, ok bool) {
	switch v := v.(type) {
	case nil:
		return "", false
	case string:
		if m.keep(s.oversized(m.path+"content", v)) {
			return "", false
		}
		return s.tok.Protect(v), true
	case []any:
		texts := make([]string, 0, len(v))
		for i, part := range v {
			fields, isMap := part.(*template.Map)
			if !isMap {
				m.wrongType("content["+strconv.Itoa(i)+"]", part, "an object with type and text")
				return "", false
			}
			p := &body{fields: fields, path: m.path + "content[" + strconv.Itoa(i) + "]."}
			kind := p.text("type", "")
			if kind != "text" && kind != "refusal" && p.fault == nil {
				p.fail("type", "%stype is %q: this model reads text only", p.path, clip(kind))
			}
			texts = append(texts, p.text(kind, ""))
			if m.keep(p.fault) {
				return "", false
			}
		}
		return s.readContent(m, strings.Join(texts, "\n"))
	}
	m.wrongType("content", v, "a string or an array of parts")
	return "", false
}

// readToolCalls gives templates the arguments as an object: that is what they print.
func (s *Server) readToolCalls(m *body) []any {
	list := m.list("tool_calls", 1024)
	out := make([]any, 0, len(list))
	for i, v := range list {
		at := "tool_calls[" + strconv.Itoa(i) + "]"
		fields, ok := v.(*template.Map)
		if !ok {
			m.wrongType(at, v, "an object")
			return nil
		}
		call := &body{fields: fields, path: m.path + at + "."}
		function := call.object("function")
		if call.fault == nil && function == nil {
			call.fail("function", "%sfunction is missing", call.path)
		}
		if m.keep(call.fault) {
			return nil
		}
		arguments, _ := function.fields.Get("arguments")
		if text, isText := arguments.(string); isText {
			var err error
			if arguments, err = decodeArguments(text); err != nil {
				m.fail(at+".function.arguments", "%sfunction.arguments is not JSON: %v", call.path, err)
				return nil
			}
		}
		inner := s.protect(function.fields).(*template.Map)
		inner.Set("arguments", s.protect(arguments))
		outer := s.protect(fields).(*template.Map)
		outer.Set("function", inner)
		out = append(out, outer)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func decodeArguments(text string) (any, error) {
	if strings.TrimSpace(text) == "" {
		return template.NewMap(), nil
	}
	return template.DecodeJSON([]byte(text))
}

func (s *Server) readTools(b *body, list []any) any {
	for i, v := range list {
		at := "tools[" + strconv.Itoa(i) + "]"
		m, ok := v.(*template.Map)
		if !ok {
			b.wrongType(at, v, "an object")
			return nil
		}
		tool := &body{fields: m, path: at + "."}
		if kind := tool.text("type", ""); kind != "function" && tool.fault == nil {
			tool.fail("type", "%stype is %q, want \"function\"", tool.path, clip(kind))
		}
		if function := tool.object("function"); function == nil {
			tool.fail("function", "%sfunction is missing", tool.path)
		} else if name := function.text("name", ""); name == "" || len(name) > 256 {
			function.fail("name", "%sname has %d bytes, want 1 to 256", function.path, len(name))
			b.keep(function.fault)
		}
		b.keep(tool.fault)
	}
	return s.protect(list)
}

// readKwargs refuses template variables that have fields of their own in the request.
func (s *Server) readKwargs(b *body, m *template.Map) *template.Map {
	for _, key := range m.Keys() {
		switch {
		case !isIdentifier(key):
			b.fail("chat_template_kwargs", "chat_template_kwargs: %q is not a variable name", clip(key))
		case key == "messages", key == "tools", key == "documents", key == "add_generation_prompt":
			b.fail("chat_template_kwargs", "chat_template_kwargs: %s is a field of the request itself", key)
		case key == "chat_template", key == "tokenize", key == "bos_token", key == "eos_token", key == "unk_token", key == "pad_token":
			b.fail("chat_template_kwargs", "chat_template_kwargs: %s can not be changed by a request", key)
		}
	}
	return s.protect(m).(*template.Map)
}

// protect copies a value with every text in it protected. Plain words are left as they are, so that
// templates can compare them with their own (a type, a role, a mode), unless a word is itself a
// special token.
func (s *Server) protect(v any) any {
	switch v := v.(type) {
	case string:
		return s.protectText(v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = s.protect(x)
		}
		return out
	case *template.Map:
		out := template.NewMap()
		if v == nil {
			return out
		}
		for _, key := range v.Keys() {
			x, _ := v.Get(key)
			out.Set(s.protectText(key), s.protect(x))
		}
		return out
	}
	return v
}

func (s *Server) protectText(text string) string {
	if isIdentifier(text) {
		if id, ok := s.tok.ID(text); !ok || !s.tok.IsSpecial(id) {
			return text
		}
	}
	return s.tok.Protect(text)
}

// isIdentifier reports whether a text is one short plain word.
func isIdentifier(text string) bool {
	if text == "" || len(text) > 64 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return true
}
