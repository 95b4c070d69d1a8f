package openai

import (
	"fmt"
	"strconv"
	"strings"

	"graft/model/tokenizer"
)

// prompt is what one group of choices continues.
type prompt struct {
	ids  []int32
	text string // as echo returns it
	bos  bool   // the first token is a BOS that text does not show
}

// readPrompts reads prompt: a text, several texts, token ids, or several lists of them.
func (s *Server) readPrompts(b *body) []prompt {
	special := b.flag("add_special_tokens", true)
	v, ok := b.value("prompt")
	if !ok {
		b.fail("prompt", "prompt is missing: give a string, an array of strings, an array of token ids, or an array of such arrays")
		return nil
	}
	list, isList := v.([]any)
	switch {
	case !isList:
		list = []any{v}
	case len(list) == 0:
		b.fail("prompt", "prompt is an empty array")
		return nil
	default:
		if _, isNumber := list[0].(int64); isNumber {
			list = []any{list}
		}
	}
	if len(list) > maxPrompts {
		b.fail("prompt", "%d prompts, at most %d", len(list), maxPrompts)
		return nil
	}
	if b.fault != nil {
		return nil
	}
	out := make([]prompt, 0, len(list))
	for i, v := range list {
		at := "prompt"
		if len(list) > 1 {
			at += "[" + strconv.Itoa(i) + "]"
		}
		p, ok := s.readPrompt(b, at, v, special)
		if !ok {
			return nil
		}
		out = append(out, p)
	}
	return out
}

func (s *Server) readPrompt(b *body, at string, v any, special bool) (p prompt, ok bool) {
	switch v := v.(type) {
	case string:
		if b.keep(s.oversized(at, v)) {
			return p, false
		}
		ids, err := s.encode(v, special)
		if err != nil {
			b.fail(at, "%s: %v", at, err)
			return p, false
		}
		p = prompt{ids: ids, text: v, bos: s.addedBOS(ids, v)}
	case []any:
		if len(v) > s.engine.Options().MaxModelLen {
			b.keep(tooLong(at, len(v), 0, s.engine.Options().MaxModelLen))
			return p, false
		}
		ids := b.tokens(at, v, s.vocab)
		if ids == nil && len(v) > 0 {
			return p, false
		}
		p = prompt{ids: ids, text: s.tok.Decode(ids, false)}
	default:
		b.wrongType(at, v, "a string or an array of token ids")
		return p, false
	}
	if len(p.ids) == 0 {
		b.fail(at, "%s is empty: give at least one token", at)
		return p, false
	}
	return p, true
}

// slack is how much longer a text may be before it is normalized: composing characters, dropping
// spaces.
const slack = 4

// oversized refuses a text that can not fit into the context whatever its tokens are, before time is
// spent on finding them.
func (s *Server) oversized(field, text string) *Fault {
	limit := s.engine.Options().MaxModelLen
	if len(text)/slack/s.longest <= limit {
		return nil
	}
	f := invalid(field, "This model's maximum context length is %d tokens, and a text of %d bytes has more. Shorten it.", limit, len(text))
	f.Code = "context_length_exceeded"
	return f
}

// longestToken is the most bytes that one token stands for.
func longestToken(tok *tokenizer.Tokenizer) int {
	longest := 1
	for id := range int32(tok.VocabSize()) {
		piece, _ := tok.Token(id)
		longest = max(longest, len(piece), len(tok.Bytes(id)))
	}
	return longest
}

// addedBOS reports whether ids begin with a BOS that is not in the text.
func (s *Server) addedBOS(ids []int32, text string) bool {
	bos, ok := s.tok.BOS()
	if !ok || len(ids) == 0 || ids[0] != bos {
		return false
	}
	piece, _ := s.tok.Token(bos)
	return !strings.HasPrefix(text, piece)
}

// encode turns the text of a whole prompt into ids. Special tokens in it are recognised, since such a
// text may be a rendered template; a BOS that it already begins with is not added again.
func (s *Server) encode(text string, special bool) ([]int32, error) {
	ids, err := s.tok.Encode(text, tokenizer.EncodeOptions{AddSpecial: special})
	if err != nil {
		return nil, fmt.Errorf("the text can not be tokenized: %w", err)
	}
	if bos, ok := s.tok.BOS(); special && ok && len(ids) > 1 && ids[0] == bos && ids[1] == bos {
		ids = ids[1:]
	}
	return ids, nil
}
