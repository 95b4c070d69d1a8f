package rl

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"graft/model/template"
)

// Prompt is a prompt to sample from, with what rewards need of its row.
type Prompt struct {
	IDs      []int32
	Messages []map[string]any // nil when the row is not conversational
	Columns  map[string]any   // every column of the row
	Row      int
}

// Example is a prompt with a completion to train on.
type Example struct {
	Tokens    []int32
	PromptLen int       // at least 1: the first token is predicted from nothing
	Mask      []float32 // [len(Tokens)-PromptLen] loss weights; nil: all 1
	Truncated bool      // cut at the length limit
	Row       int
}

// Rollout is the example as trainers take it.
func (e Example) Rollout(group, sample int) Rollout {
	return Rollout{Tokens: e.Tokens, PromptLen: e.PromptLen, Mask: e.Mask, Truncated: e.Truncated, Row: e.Row, Group: group, Sample: sample}
}

// Preference is two completions of one prompt.
type Preference struct{ Chosen, Rejected Example }

// tooLong is a row beyond a length limit.
type tooLong struct {
	row        Row
	what       string
	got, limit int
	bytes      int // of a text that was not tokenized, since got is what it has at least; 0: got is exact
}

func (e *tooLong) Error() string {
	size := fmt.Sprintf("%d tokens", e.got)
	if e.bytes > 0 {
		size = fmt.Sprintf("%d bytes, at least %d tokens", e.bytes, e.got)
	}
	return fmt.Sprintf("rl: %s: the %s has %s, the limit is %d; raise the limit, or skip such rows", e.row.Where(), e.what, size, e.limit)
}

// slack is how much longer a text may be before it is normalized: composing characters, marks that
// keep a user's text from spelling special tokens.
const slack = 4

// oversized refuses a text that has more than limit tokens whatever they are, before time is spent
// on finding them. limit 0: none.
func (r *Renderer) oversized(row Row, what, text string, limit int) error {
	if least := len(text) / slack / r.longest; limit > 0 && least > limit {
		return &tooLong{row, what, least, limit, len(text)}
	}
	return nil
}

// oversizedRow is oversized for a text whose end may be cut off.
func (r *Renderer) oversizedRow(row Row, text string) error {
	if r.o.TooLong == TooLongTruncate {
		return nil
	}
	return r.oversized(row, "row", text, r.o.MaxLength)
}

// oversizedPrompt is oversized for a prompt that a completion follows.
func (r *Renderer) oversizedPrompt(row Row, text string) error {
	if err := r.oversized(row, "prompt", text, r.o.MaxPromptLength); err != nil {
		return err
	}
	return r.oversized(row, "row", text, r.o.MaxLength)
}

// within names the row of an error; one about its length does so itself.
func within(row Row, err error) error {
	var long *tooLong
	if errors.As(err, &long) {
		return err
	}
	return fmt.Errorf("rl: %s: %w", row.Where(), err)
}

// Prompt renders a row for sampling.
func (r *Renderer) Prompt(row Row) (Prompt, error) {
	c, err := r.prompt(row)
	if err != nil {
		return Prompt{}, err
	}
	p := Prompt{Columns: row.Columns(), Row: row.Index}
	if p.IDs, err = r.promptIDs(row, c); err != nil {
		return Prompt{}, err
	}
	for _, m := range c.messages {
		p.Messages = append(p.Messages, plain(m).(map[string]any))
	}
	return p, r.checkPrompt(row, len(p.IDs))
}

func (r *Renderer) promptIDs(row Row, c conversation) ([]int32, error) {
	var ids []int32
	var err error
	if c.messages == nil {
		if err = r.oversized(row, "prompt", c.text, r.o.MaxPromptLength); err == nil {
			ids, err = r.encodeText(c.text, true)
		}
	} else {
		if roleOf(c.messages[len(c.messages)-1]) == "assistant" {
			return nil, fmt.Errorf("rl: %s: the prompt ends with an assistant message, so there is nothing to answer", row.Where())
		}
		var text string
		if text, _, err = r.render(c, c.messages, true); err == nil {
			if err = r.oversized(row, "prompt", text, r.o.MaxPromptLength); err == nil {
				ids, err = r.encodeRendered(text)
			}
		}
	}
	if err != nil {
		return nil, within(row, err)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("rl: %s: the prompt is empty", row.Where())
	}
	return ids, nil
}

func (r *Renderer) checkPrompt(row Row, n int) error {
	if r.o.MaxPromptLength > 0 && n > r.o.MaxPromptLength {
		return &tooLong{row: row, what: "prompt", got: n, limit: r.o.MaxPromptLength}
	}
	return nil
}

// Example renders a row for SFT: messages, prompt and completion, question and answer, or text.
func (r *Renderer) Example(row Row) (Example, error) {
	if v, ok := row.Get("messages"); ok && r.o.PromptColumn == "" && r.o.PromptTemplate == "" {
		return r.messages(row, v)
	}
	if v, ok := row.Get("text"); ok && r.o.PromptColumn == "" && r.o.PromptTemplate == "" && r.o.CompletionColumn == "" {
		return r.plainText(row, v)
	}
	c, err := r.prompt(row)
	if err != nil {
		return Example{}, err
	}
	column := first(row, r.o.CompletionColumn, "completion", "answer", "solution")
	if _, ok := row.Get(column); !ok && r.o.CompletionColumn == "" {
		return Example{}, fmt.Errorf("%w; rows to learn from have messages, or prompt and completion, or question and answer, or text", row.missing(column))
	}
	completion, err := r.completion(row, column, c)
	if err != nil {
		return Example{}, err
	}
	out, err := r.join(row, c, completion)
	if err != nil {
		return Example{}, err
	}
	if r.o.AllTokens {
		out[0].PromptLen = 1
	}
	return out[0], nil
}

// plainText is a row of text: every token is trained, and the end of it.
func (r *Renderer) plainText(row Row, v any) (Example, error) {
	s, ok := v.(string)
	if !ok {
		return Example{}, row.wrong("text", v, "text")
	}
	if err := r.oversizedRow(row, s); err != nil {
		return Example{}, err
	}
	ids, err := r.encodeText(s, true)
	if err != nil {
		return Example{}, fmt.Errorf("rl: %s: %w", row.Where(), err)
	}
	if ids, err = r.withEnd(ids); err != nil {
		return Example{}, err
	}
	if len(ids) < 2 {
		return Example{}, fmt.Errorf("rl: %s: column \"text\" has nothing to train on", row.Where())
	}
	e := Example{Tokens: ids, PromptLen: 1, Row: row.Index}
	return e, r.fit(row, &e)
}

// withEnd adds the token that ends a text, as TRL does for rows that no template renders.
func (r *Renderer) withEnd(ids []int32) ([]int32, error) {
	end, ok := r.tok.EOS()
	switch {
	case !ok && len(r.stops) == 0:
		return nil, errors.New("rl: the tokenizer names no token that ends a text, so a model trained on these rows would never stop")
	case !ok:
		end = r.stops[0]
	}
	if len(ids) > 0 && ids[len(ids)-1] == end {
		return ids, nil
	}
	return append(ids, end), nil
}

// completion reads a completion column: text, or messages behind those of the prompt.
func (r *Renderer) completion(row Row, column string, prompt conversation) (conversation, error) {
	v, ok := row.Get(column)
	if !ok {
		return conversation{}, row.missing(column)
	}
	switch v := v.(type) {
	case string:
		if prompt.messages != nil {
			return conversation{messages: []any{template.NewMap("role", "assistant", "content", v)}}, nil
		}
		return conversation{text: v}, nil
	case []any:
		if err := checkMessages(row, column, v); err != nil {
			return conversation{}, err
		}
		if prompt.messages == nil {
			return conversation{}, fmt.Errorf("rl: %s: column %q holds messages but the prompt is text; give both as messages, or use the chat template for text", row.Where(), column)
		}
		return conversation{messages: v}, nil
	case int64, float64:
		return r.completion(Row{Index: row.Index, file: row.file, line: row.line, fields: template.NewMap(column, fmt.Sprint(v))}, column, prompt)
	}
	return conversation{}, row.wrong(column, v, "text or a list of messages")
}

// join renders completions of one prompt, which all share its tokens.
func (r *Renderer) join(row Row, prompt conversation, completions ...conversation) ([]Example, error) {
	var head []int32
	var tails [][]int32
	var err error
	if prompt.messages == nil {
		head, tails, err = r.joinText(row, prompt, completions)
	} else {
		head, tails, err = r.joinChat(row, prompt, completions)
	}
	if err != nil {
		return nil, within(row, err)
	}
	if len(head) == 0 {
		return nil, fmt.Errorf("rl: %s: the prompt is empty", row.Where())
	}
	if err := r.checkPrompt(row, len(head)); err != nil {
		return nil, err
	}
	out := make([]Example, len(tails))
	for i, tail := range tails {
		out[i] = Example{Tokens: slices.Concat(head, tail), PromptLen: len(head), Row: row.Index}
		if !r.stopsIn(tail) {
			return nil, r.neverStops(row, tail)
		}
		if err := r.fit(row, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *Renderer) joinText(row Row, prompt conversation, completions []conversation) (head []int32, tails [][]int32, err error) {
	if err := r.oversizedPrompt(row, prompt.text); err != nil {
		return nil, nil, err
	}
	if head, err = r.encodeText(prompt.text, true); err != nil {
		return nil, nil, err
	}
	for _, c := range completions {
		if err := r.oversizedRow(row, prompt.text+c.text); err != nil {
			return nil, nil, err
		}
		whole, err := r.encodeText(prompt.text+c.text, true)
		if err != nil {
			return nil, nil, err
		}
		tail, err := behind(head, whole, func() ([]int32, error) { return r.encodeText(c.text, false) })
		if err != nil {
			return nil, nil, err
		}
		if tail, err = r.withEnd(tail); err != nil {
			return nil, nil, err
		}
		tails = append(tails, tail)
	}
	return head, tails, nil
}

// behind is the part of whole behind head. Where tokens span the seam, the completion is encoded on
// its own: the prompt's tokens are what a sampler starts from, and stay.
func behind(head, whole []int32, alone func() ([]int32, error)) ([]int32, error) {
	if len(whole) >= len(head) && slices.Equal(whole[:len(head)], head) {
		return whole[len(head):], nil
	}
	return alone()
}

// joinChat renders with and without completions. Where a template opens the assistant's message
// otherwise than it writes one (thinking models), the prompt is what both have in common, as in TRL.
func (r *Renderer) joinChat(row Row, prompt conversation, completions []conversation) (head []int32, tails [][]int32, err error) {
	open, _, err := r.render(prompt, prompt.messages, true)
	if err != nil {
		return nil, nil, err
	}
	closed, _, err := r.render(prompt, prompt.messages, false)
	if err != nil {
		return nil, nil, err
	}
	var texts []string
	for _, c := range completions {
		text, _, err := r.render(prompt, slices.Concat(prompt.messages, c.messages), false)
		if err != nil {
			return nil, nil, err
		}
		if err := r.oversizedRow(row, text); err != nil {
			return nil, nil, err
		}
		open = commonPrefix(open, text)
		texts = append(texts, text)
	}
	if len(open) < len(closed) {
		return nil, nil, errors.New("the chat template writes the prompt otherwise once an answer follows, so prompt and completion have no seam; give another template with --chat-template")
	}
	if err := r.oversizedPrompt(row, open); err != nil {
		return nil, nil, err
	}
	if head, err = r.encodeRendered(open); err != nil {
		return nil, nil, err
	}
	for _, text := range texts {
		whole, err := r.encodeRendered(text)
		if err != nil {
			return nil, nil, err
		}
		tail, err := behind(head, whole, func() ([]int32, error) { return r.encodeRendered(text[len(open):]) })
		if err != nil {
			return nil, nil, err
		}
		tails = append(tails, tail)
	}
	return head, tails, nil
}

func commonPrefix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) {
		n--
	}
	return a[:n]
}

// fit applies the length limit to an example.
func (r *Renderer) fit(row Row, e *Example) error {
	limit := r.o.MaxLength
	if limit == 0 || len(e.Tokens) <= limit {
		return nil
	}
	if r.o.TooLong != TooLongTruncate || e.PromptLen >= limit {
		return &tooLong{row: row, what: "row", got: len(e.Tokens), limit: limit}
	}
	e.Tokens, e.Truncated = e.Tokens[:limit], true
	if e.Mask != nil {
		if e.Mask = e.Mask[:limit-e.PromptLen]; !slices.Contains(e.Mask, 1) {
			return &tooLong{row: row, what: "row", got: len(e.Tokens), limit: limit}
		}
	}
	return nil
}
