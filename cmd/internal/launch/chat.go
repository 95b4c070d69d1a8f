package launch

import (
	"errors"
	"fmt"

	"graft/model/template"
	"graft/model/tokenizer"
)

// Conversation renders messages (of *template.Map) by a tokenizer's chat template and encodes them.
// What the messages spell stays text, whatever it looks like; only the template writes special
// tokens. open adds the beginning of an assistant's message.
func Conversation(tok *tokenizer.Tokenizer, messages []any, open bool) ([]int32, error) {
	if tok.ChatTemplate() == "" {
		return nil, errors.New("the model has no chat template")
	}
	t, err := template.Parse(tok.ChatTemplate())
	if err != nil {
		return nil, err
	}
	marked := make([]any, len(messages))
	for i, m := range messages {
		if err := hasRole(m); err != nil {
			return nil, fmt.Errorf("message %d %w", i, err)
		}
		marked[i] = protect(tok, m)
	}
	text, err := t.RenderChat(template.Chat{Messages: marked, AddGenerationPrompt: open,
		BOS: piece(tok, tok.BOS), EOS: piece(tok, tok.EOS), UNK: piece(tok, tok.UNK), PAD: piece(tok, tok.PAD)})
	if err != nil {
		return nil, err
	}
	return tok.Encode(text, tokenizer.EncodeOptions{})
}

// hasRole refuses what is no message: a template would render it as one that nobody speaks.
func hasRole(m any) error {
	fields, ok := m.(*template.Map)
	if !ok {
		return errors.New(`is no object; want {"role":"user","content":"…"}`)
	}
	role, ok := fields.Get("role")
	if !ok {
		return errors.New(`has no "role", such as user or assistant`)
	}
	if text, ok := role.(string); !ok || text == "" {
		return errors.New(`has a "role" that is no text, such as user or assistant`)
	}
	return nil
}

func piece(tok *tokenizer.Tokenizer, which func() (int32, bool)) string {
	id, ok := which()
	if !ok {
		return ""
	}
	s, _ := tok.Token(id)
	return s
}

// protect marks every text but the names that templates compare with.
func protect(tok *tokenizer.Tokenizer, v any) any {
	switch v := v.(type) {
	case string:
		return tok.Protect(v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = protect(tok, x)
		}
		return out
	case *template.Map:
		out := &template.Map{}
		for _, k := range v.Keys() {
			x, _ := v.Get(k)
			if k != "role" && k != "type" {
				x = protect(tok, x)
			}
			out.Set(k, x)
		}
		return out
	}
	return v
}
