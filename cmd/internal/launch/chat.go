package launch

import (
	"errors"

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
		marked[i] = protect(tok, m)
	}
	text, err := t.RenderChat(template.Chat{Messages: marked, AddGenerationPrompt: open,
		BOS: piece(tok, tok.BOS), EOS: piece(tok, tok.EOS), UNK: piece(tok, tok.UNK), PAD: piece(tok, tok.PAD)})
	if err != nil {
		return nil, err
	}
	return tok.Encode(text, tokenizer.EncodeOptions{})
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
