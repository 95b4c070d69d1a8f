package rl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"graft/model/template"
	"graft/model/tokenizer"
)

// RenderOptions say how dataset rows become token ids.
type RenderOptions struct {
	ChatTemplate string        // Jinja source instead of the tokenizer's own
	Kwargs       *template.Map // further variables of the chat template
	Now          time.Time     // what strftime_now sees; zero: the time NewRenderer was called

	// PromptColumn holds the prompt, text or messages. Empty: prompt, else question, else problem.
	PromptColumn string
	// CompletionColumn holds what SFT trains on. Empty: completion, else answer, else solution.
	CompletionColumn string
	// PromptTemplate writes the prompt from columns: "Q: {question}\nA:". {{ and }} are braces.
	PromptTemplate string
	// SystemPrompt goes before the conversation, and makes one of a text prompt.
	SystemPrompt string
	Chat         ChatMode
	// Special lets text rows spell special tokens: for prompts that were rendered before. Without it
	// what a row spells is text, whatever it looks like.
	Special bool

	MaxPromptLength int     // tokens; 0: no limit
	MaxLength       int     // tokens of prompt and completion; 0: no limit
	TooLong         TooLong // what happens beyond a limit
	AllTokens       bool    // SFT: loss on every token, not only on completions
}

// ChatMode says whether the prompt of a text row becomes a user's message.
type ChatMode string

// ChatAuto: messages are rendered by the chat template; so is text when a system prompt is given,
// and questions (columns question and problem) when the model has a template; other text is not,
// as in TRL. ChatAlways and ChatNever decide it for all text.
const (
	ChatAuto   ChatMode = ""
	ChatAlways ChatMode = "always"
	ChatNever  ChatMode = "never"
)

// TooLong is what happens to rows beyond a length limit.
type TooLong string

// TooLongError stops with the row's name, TooLongSkip leaves rows out and counts them,
// TooLongTruncate cuts completions at MaxLength (prompts are never cut).
const (
	TooLongError    TooLong = "error"
	TooLongSkip     TooLong = "skip"
	TooLongTruncate TooLong = "truncate"
)

// Renderer turns dataset rows into token ids. It keeps no state between rows and may be used by
// several goroutines.
type Renderer struct {
	o       RenderOptions
	tok     *tokenizer.Tokenizer
	chat    *template.Template // nil: there is none
	longest int                // bytes of the longest token
	before  []int32            // what begins a text that no template rendered: BOS, or nothing
	stops   []int32
}

// NewRenderer checks the options against the tokenizer.
func NewRenderer(tok *tokenizer.Tokenizer, o RenderOptions) (*Renderer, error) {
	if tok == nil {
		return nil, fmt.Errorf("rl: the model's files hold no tokenizer, and a dataset of text needs one")
	}
	if o.TooLong == "" {
		o.TooLong = TooLongError
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	switch {
	case !slices.Contains([]ChatMode{ChatAuto, ChatAlways, ChatNever}, o.Chat):
		return nil, fmt.Errorf("rl: chat mode %q; want always, never, or nothing to decide by the row", o.Chat)
	case !slices.Contains([]TooLong{TooLongError, TooLongSkip, TooLongTruncate}, o.TooLong):
		return nil, fmt.Errorf("rl: %q is no policy for rows that are too long; want error, skip or truncate", o.TooLong)
	case o.Chat == ChatNever && o.SystemPrompt != "":
		return nil, fmt.Errorf("rl: a system prompt needs the chat template, which chat=never turns off")
	case o.PromptColumn != "" && o.PromptTemplate != "":
		return nil, fmt.Errorf("rl: give a prompt column or a prompt template that names columns, not both")
	case o.MaxPromptLength < 0 || o.MaxLength < 0:
		return nil, fmt.Errorf("rl: length limits are %d and %d; want 0 (none) or more", o.MaxPromptLength, o.MaxLength)
	}
	r := &Renderer{o: o, tok: tok, stops: tok.StopIDs(), longest: longestToken(tok)}
	source := o.ChatTemplate
	if source == "" {
		source = tok.ChatTemplate()
	}
	if source != "" && o.Chat != ChatNever {
		var err error
		if r.chat, err = template.Parse(source); err != nil {
			return nil, fmt.Errorf("rl: chat template: %w", err)
		}
	}
	if r.chat == nil && (o.SystemPrompt != "" || o.Chat == ChatAlways) {
		return nil, r.noTemplate()
	}
	if o.PromptTemplate != "" {
		if _, err := fill(o.PromptTemplate, func(string) (string, error) { return "", nil }); err != nil {
			return nil, err
		}
	}
	return r, r.readAffixes()
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

func (r *Renderer) noTemplate() error {
	if r.o.Chat == ChatNever {
		return fmt.Errorf("rl: the rows are conversations, which chat=never cannot render")
	}
	return fmt.Errorf("rl: the model has no chat template; give one with --chat-template, or rows of plain text")
}

// readAffixes finds what the tokenizer puts before a text; what it puts behind one (EOS, with some)
// does not belong to a prompt.
func (r *Renderer) readAffixes() error {
	with, err := r.tok.Encode("a", tokenizer.EncodeOptions{AddSpecial: true})
	if err != nil {
		return err
	}
	bare, err := r.tok.Encode("a", tokenizer.EncodeOptions{})
	if err != nil {
		return err
	}
	for n := 0; n+len(bare) <= len(with); n++ {
		if slices.Equal(with[n:n+len(bare)], bare) {
			r.before = with[:n]
			return nil
		}
	}
	return fmt.Errorf("rl: the tokenizer changes a text when it adds special tokens to it")
}

// Tokenizer is what rows are encoded with.
func (r *Renderer) Tokenizer() *tokenizer.Tokenizer { return r.tok }

// conversation is a prompt before it is tokens: messages, or text.
type conversation struct {
	messages []any // of *template.Map; nil: text
	text     string
	tools    any
	kwargs   *template.Map
}

// prompt finds a row's prompt.
func (r *Renderer) prompt(row Row) (conversation, error) {
	if r.o.PromptTemplate != "" {
		text, err := fill(r.o.PromptTemplate, row.Text)
		if err != nil {
			return conversation{}, err
		}
		return r.asChat(row, conversation{text: text}, r.chat != nil)
	}
	column := first(row, r.o.PromptColumn, "prompt", "question", "problem")
	v, ok := row.Get(column)
	if !ok {
		return conversation{}, row.missing(column)
	}
	switch v := v.(type) {
	case string:
		return r.asChat(row, conversation{text: v}, r.chat != nil && (column == "question" || column == "problem"))
	case []any:
		if err := checkMessages(row, column, v); err != nil {
			return conversation{}, err
		}
		return r.asChat(row, conversation{messages: v}, true)
	}
	return conversation{}, row.wrong(column, v, "text or a list of messages")
}

// asChat applies the options to a prompt: system prompt, tools, whether text is a user's message.
func (r *Renderer) asChat(row Row, c conversation, chat bool) (conversation, error) {
	if c.messages == nil {
		if chat = chat || r.o.SystemPrompt != ""; r.o.Chat != ChatAuto {
			chat = r.o.Chat == ChatAlways
		}
		if !chat {
			return c, nil
		}
		c.messages = []any{template.NewMap("role", "user", "content", c.text)}
	}
	if r.chat == nil {
		return c, fmt.Errorf("%s: %w", row.Where(), r.noTemplate())
	}
	if r.o.SystemPrompt != "" {
		if roleOf(c.messages[0]) == "system" {
			return c, fmt.Errorf("rl: %s: the conversation has a system message of its own; leave the system prompt out", row.Where())
		}
		c.messages = append([]any{template.NewMap("role", "system", "content", r.o.SystemPrompt)}, c.messages...)
	}
	return r.withTools(row, c)
}

// withTools reads the columns that TRL gives to the chat template.
func (r *Renderer) withTools(row Row, c conversation) (conversation, error) {
	if v, ok := row.Get("tools"); ok {
		if s, is := v.(string); is {
			var err error
			if v, err = template.DecodeJSON([]byte(s)); err == nil {
				err = CheckJSON([]byte(s))
			}
			if err != nil {
				return c, fmt.Errorf("rl: %s: column \"tools\": %w", row.Where(), err)
			}
		}
		if _, ok := v.([]any); !ok {
			return c, row.wrong("tools", v, "a list of tools")
		}
		c.tools = v
	}
	c.kwargs = r.o.Kwargs
	if v, ok := row.Get("chat_template_kwargs"); ok {
		m, is := v.(*template.Map)
		if !is {
			return c, row.wrong("chat_template_kwargs", v, "an object")
		}
		merged := &template.Map{}
		for _, from := range []*template.Map{r.o.Kwargs, m} {
			if from != nil {
				for _, k := range from.Keys() {
					x, _ := from.Get(k)
					merged.Set(k, x)
				}
			}
		}
		c.kwargs = merged
	}
	return c, nil
}

// first picks the column to use: the one asked for, else the first of names the row has, else the
// first name, for the message that it is missing.
func first(row Row, asked string, names ...string) string {
	if asked != "" {
		return asked
	}
	for _, n := range names {
		if _, ok := row.Get(n); ok {
			return n
		}
	}
	return names[0]
}

func roleOf(message any) string {
	role, _ := message.(*template.Map).Get("role")
	s, _ := role.(string)
	return s
}

// checkMessages refuses what no chat template could render as meant.
func checkMessages(row Row, column string, messages []any) error {
	if len(messages) == 0 {
		return fmt.Errorf("rl: %s: column %q is an empty conversation", row.Where(), column)
	}
	for i, v := range messages {
		m, ok := v.(*template.Map)
		if !ok {
			return fmt.Errorf("rl: %s: column %q: message %d is %s, want an object with role and content", row.Where(), column, i, kindOf(v))
		}
		if roleOf(m) == "" {
			return fmt.Errorf("rl: %s: column %q: message %d: %s", row.Where(), column, i, absentColumn("role", m.Keys()))
		}
		content, _ := m.Get("content")
		switch content.(type) {
		case string, []any:
		case nil:
			if roleOf(m) != "assistant" {
				return fmt.Errorf("rl: %s: column %q: message %d: %s", row.Where(), column, i, absentColumn("content", m.Keys()))
			}
		default:
			return fmt.Errorf("rl: %s: column %q: message %d: content is %s, want text", row.Where(), column, i, kindOf(content))
		}
	}
	return nil
}

// fill writes columns into a prompt template.
func fill(source string, column func(string) (string, error)) (string, error) {
	var b strings.Builder
	for rest := source; rest != ""; {
		at := strings.IndexAny(rest, "{}")
		if at < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:at])
		rest = rest[at:]
		if strings.HasPrefix(rest, "{{") || strings.HasPrefix(rest, "}}") {
			b.WriteByte(rest[0])
			rest = rest[2:]
			continue
		}
		end := strings.IndexByte(rest, '}')
		if rest[0] == '}' || end < 2 || strings.ContainsAny(rest[1:end], "{\n") {
			return "", fmt.Errorf("rl: prompt template: %.20q is no {column}; write braces twice to mean themselves", rest)
		}
		text, err := column(rest[1:end])
		if err != nil {
			return "", err
		}
		b.WriteString(text)
		rest = rest[end+1:]
	}
	return b.String(), nil
}

// protect marks every text of a message, so that special tokens in it stay text. Names that
// templates compare with are left alone.
func (r *Renderer) protect(v any) any {
	switch v := v.(type) {
	case string:
		return r.tok.Protect(v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = r.protect(x)
		}
		return out
	case *template.Map:
		out := &template.Map{}
		for _, k := range v.Keys() {
			x, _ := v.Get(k)
			if k != "role" && k != "type" {
				x = r.protect(x)
			}
			out.Set(k, x)
		}
		return out
	}
	return v
}

// render renders messages to text that Encode reads: with the spans of {% generation %} blocks.
func (r *Renderer) render(c conversation, messages []any, open bool) (string, [][2]int, error) {
	protected := make([]any, len(messages))
	for i, m := range messages {
		protected[i] = r.protect(m)
	}
	name := func(id int32, ok bool) string {
		if !ok {
			return ""
		}
		s, _ := r.tok.Token(id)
		return s
	}
	return r.chat.RenderChatSpans(template.Chat{Messages: protected, Tools: r.protect(c.tools), Kwargs: c.kwargs, AddGenerationPrompt: open, Now: r.o.Now,
		BOS: name(r.tok.BOS()), EOS: name(r.tok.EOS()), UNK: name(r.tok.UNK()), PAD: name(r.tok.PAD())})
}

// encodeText encodes text that no template rendered; start: it begins the sequence.
func (r *Renderer) encodeText(text string, start bool) ([]int32, error) {
	ids, err := r.tok.Encode(text, tokenizer.EncodeOptions{PlainText: !r.o.Special})
	if err != nil || !start {
		return ids, err
	}
	if len(r.before) > 0 && len(ids) >= len(r.before) && slices.Equal(ids[:len(r.before)], r.before) {
		return ids, nil // it was spelled in the text already
	}
	return append(slices.Clone(r.before), ids...), nil
}

func (r *Renderer) encodeRendered(text string) ([]int32, error) {
	return r.tok.Encode(text, tokenizer.EncodeOptions{})
}
