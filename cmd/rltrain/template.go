package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"graft/model/template"
	"graft/model/tokenizer"
)

type templateCmd struct {
	Model    string `help:"Model whose chat template and special tokens are used: GGUF file, folder, or tiny; default: the last run's." placeholder:"MODEL"`
	Runs     string `help:"Folder of runs." default:"runs" placeholder:"DIR"`
	Template string `help:"Jinja file instead of the model's own template; without --model the special tokens are empty unless kwargs give them." placeholder:"FILE"`
	Now      string `help:"Time that strftime_now sees, as 2006-01-02T15:04:05Z; default: now." placeholder:"TIME"`
	lines
}

// Help is the manual's long text.
func (templateCmd) Help() string {
	return `Reads {"messages":[…],"tools":[…],"documents":[…],"add_generation_prompt":true,"kwargs":{}} and writes {"text":"…"}, or {"error":"…"} where the template fails or refuses the messages, or the line is wrong. bos_token, eos_token, unk_token and pad_token may be given in kwargs.`
}

// Run renders line by line.
func (t templateCmd) Run(c *console) error {
	chat := template.Chat{}
	if t.Now != "" {
		now, err := time.Parse(time.RFC3339, t.Now)
		if err != nil {
			return usage("--now %s: write 2006-01-02T15:04:05Z", t.Now)
		}
		chat.Now = now
	}
	var source string
	if t.Template == "" || t.Model != "" {
		tok, err := openTokenizer(t.Model, t.Runs)
		if err != nil {
			return err
		}
		source = tok.ChatTemplate()
		chat.BOS, chat.EOS, chat.UNK, chat.PAD = spell(tok, tok.BOS), spell(tok, tok.EOS), spell(tok, tok.UNK), spell(tok, tok.PAD)
	}
	name := t.Model
	if t.Template != "" {
		raw, err := os.ReadFile(t.Template)
		if err != nil {
			return fmt.Errorf("--template %w", err)
		}
		source, name = string(raw), t.Template
	}
	if source == "" {
		return errors.New("the model has no chat template; give one with --template FILE")
	}
	parsed, err := template.Parse(source)
	return t.each(c, func(line []byte) (any, error) {
		if err != nil {
			return rendered{Error: fmt.Sprintf("%s: %v", name, err)}, nil
		}
		answer, err := renderLine(parsed, chat, line)
		if err != nil {
			return rendered{Error: err.Error()}, nil
		}
		return answer, nil
	})
}

// rendered is one line of output.
type rendered struct {
	Text  *string `json:"text,omitempty"`
	Error string  `json:"error,omitempty"`
}

// objects refuses what is no list of objects.
func objects(key string, v any) error {
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("%q is no list", key)
	}
	for i, x := range list {
		if _, ok := x.(*template.Map); !ok {
			return fmt.Errorf("%q: entry %d is no object", key, i)
		}
	}
	return nil
}

// spell is the text of a special token, "" if there is none.
func spell(tok *tokenizer.Tokenizer, which func() (int32, bool)) string {
	id, ok := which()
	if !ok {
		return ""
	}
	s, _ := tok.Token(id)
	return s
}

// renderLine renders one conversation; what the template refuses is an answer, what the line lacks
// is an error, which the command writes as one too: a bad line does not end the others.
func renderLine(t *template.Template, chat template.Chat, line []byte) (any, error) {
	v, err := template.DecodeJSON(line)
	if err != nil {
		return nil, err
	}
	in, ok := v.(*template.Map)
	if !ok {
		return nil, errors.New("the line is no object")
	}
	for _, key := range in.Keys() {
		v, _ := in.Get(key)
		if v == nil {
			continue
		}
		switch key {
		case "messages":
			if chat.Messages, ok = v.([]any); !ok {
				return nil, errors.New(`"messages" is no list`)
			}
		case "tools", "documents":
			if err := objects(key, v); err != nil {
				return nil, err
			}
			if key == "tools" {
				chat.Tools = v
			} else {
				chat.Documents = v
			}
		case "add_generation_prompt":
			if chat.AddGenerationPrompt, ok = v.(bool); !ok {
				return nil, errors.New(`"add_generation_prompt" is neither true nor false`)
			}
		case "kwargs", "chat_template_kwargs":
			if chat.Kwargs, ok = v.(*template.Map); !ok {
				return nil, fmt.Errorf("%q is no object", key)
			}
		default:
			return nil, fmt.Errorf("unknown field %q; there are messages, tools, documents, add_generation_prompt, kwargs", key)
		}
	}
	if chat.Messages == nil {
		return nil, errors.New(`the line has no "messages"`)
	}
	text, err := t.RenderChat(chat)
	if err != nil {
		return rendered{Error: err.Error()}, nil
	}
	return rendered{Text: &text}, nil
}
