package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// readPostProcessor fills what AddSpecial puts before and after a text.
func (t *Tokenizer) readPostProcessor(c *component) error {
	switch c.Type {
	case "Sequence":
		for i := range c.Processors {
			if err := t.readPostProcessor(&c.Processors[i]); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel": // moves offsets only
		return nil
	case "TemplateProcessing":
		return t.readTemplate(c)
	case "BertProcessing", "RobertaProcessing":
		cls, err := t.pairID(c.CLS)
		if err != nil {
			return fmt.Errorf("tokenizer: post-processor %s: cls: %w", c.Type, err)
		}
		sep, err := t.pairID(c.SEP)
		if err != nil {
			return fmt.Errorf("tokenizer: post-processor %s: sep: %w", c.Type, err)
		}
		t.before, t.after = append([]int32{cls}, t.before...), append(t.after, sep)
		return nil
	}
	return fmt.Errorf("tokenizer: post-processor %q is not supported", c.Type)
}

// readTemplate reads the template of a single text: special tokens around the sequence A.
func (t *Tokenizer) readTemplate(c *component) error {
	var before, after []int32
	seen := false
	for _, part := range c.Single {
		switch {
		case part.Sequence != nil && part.Sequence.ID == "A" && !seen:
			seen = true
		case part.SpecialToken != nil:
			special, ok := c.SpecialTokens[part.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("tokenizer: post-processor template names %q, which special_tokens lacks", part.SpecialToken.ID)
			}
			for _, id := range special.IDs {
				if !t.vocab.has(id) {
					return fmt.Errorf("tokenizer: post-processor token %q has id %d, which the vocabulary lacks", part.SpecialToken.ID, id)
				}
			}
			if seen {
				after = append(after, special.IDs...)
			} else {
				before = append(before, special.IDs...)
			}
		default:
			return fmt.Errorf("tokenizer: post-processor template is not special tokens around one text")
		}
	}
	if !seen {
		return fmt.Errorf("tokenizer: post-processor template does not contain the text")
	}
	t.before, t.after = append(before, t.before...), append(t.after, after...)
	return nil
}

// pairID reads ["[CLS]", 101].
func (t *Tokenizer) pairID(raw json.RawMessage) (int32, error) {
	var pair []any
	if err := json.Unmarshal(raw, &pair); err != nil || len(pair) != 2 {
		return 0, fmt.Errorf("%s is not a token and its id", raw)
	}
	id, ok := pair[1].(float64)
	if !ok || id != float64(int32(id)) || !t.vocab.has(int32(id)) {
		return 0, fmt.Errorf("id %v is not in the vocabulary", pair[1])
	}
	return int32(id), nil
}

// configSpec is what matters of a tokenizer_config.json.
type configSpec struct {
	BOS          json.RawMessage `json:"bos_token"`
	EOS          json.RawMessage `json:"eos_token"`
	PAD          json.RawMessage `json:"pad_token"`
	UNK          json.RawMessage `json:"unk_token"`
	AddBOS       *bool           `json:"add_bos_token"`
	AddEOS       *bool           `json:"add_eos_token"`
	ChatTemplate json.RawMessage `json:"chat_template"`
}

// readConfig takes names, switches and the chat template from tokenizer_config.json; what it does not say is guessed
// from the well-known names.
func (t *Tokenizer) readConfig(config []byte, doc *document) error {
	var spec configSpec
	if len(config) > 0 {
		if err := json.Unmarshal(config, &spec); err != nil {
			return fmt.Errorf("tokenizer: tokenizer_config.json: %w", err)
		}
	}
	for _, named := range []struct {
		role  string
		raw   json.RawMessage
		guess []string
	}{
		{roleBOS, spec.BOS, []string{"<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<｜begin▁of▁sentence｜>", "[CLS]"}},
		{roleEOS, spec.EOS, []string{"</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>", "<｜end▁of▁sentence｜>", "<|im_end|>", "[SEP]"}},
		{rolePAD, spec.PAD, []string{"<pad>", "[PAD]", "<|pad|>"}},
		{roleUNK, spec.UNK, nil},
	} {
		if named.raw != nil && string(named.raw) != "null" {
			piece, err := tokenName(named.raw)
			if err != nil {
				return fmt.Errorf("tokenizer: tokenizer_config.json: %s_token: %w", named.role, err)
			}
			id, ok := t.vocab.id(piece)
			if !ok {
				return fmt.Errorf("tokenizer: tokenizer_config.json: %s_token %q is not in the vocabulary", named.role, piece)
			}
			t.special[named.role] = id
			continue
		}
		if named.raw != nil && named.role != roleUNK {
			continue // null: the model has none
		}
		for _, piece := range named.guess {
			if id, ok := t.vocab.id(piece); ok && t.IsSpecial(id) {
				t.special[named.role] = id
				break
			}
		}
	}
	if bos, ok := t.BOS(); ok && spec.AddBOS != nil {
		t.before = slices.DeleteFunc(t.before, func(id int32) bool { return id == bos })
		if *spec.AddBOS {
			t.before = append([]int32{bos}, t.before...)
		}
	}
	if eos, ok := t.EOS(); ok && spec.AddEOS != nil {
		t.after = slices.DeleteFunc(t.after, func(id int32) bool { return id == eos })
		if *spec.AddEOS {
			t.after = append(t.after, eos)
		}
	}
	return t.readChatTemplate(spec.ChatTemplate)
}

// tokenName reads "<s>" or {"content": "<s>"}.
func tokenName(raw json.RawMessage) (string, error) {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return name, nil
	}
	var object struct {
		Content string `json:"content"`
	}
	err := json.Unmarshal(raw, &object)
	return object.Content, err
}

// readChatTemplate reads a template, or the one named default of several.
func (t *Tokenizer) readChatTemplate(raw json.RawMessage) error {
	if raw == nil || json.Unmarshal(raw, &t.template) == nil {
		return nil
	}
	var several []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(raw, &several); err != nil {
		return fmt.Errorf("tokenizer: tokenizer_config.json: chat_template: %w", err)
	}
	for _, one := range several {
		if one.Name == "default" || t.template == "" {
			t.template = one.Template
		}
	}
	return nil
}
