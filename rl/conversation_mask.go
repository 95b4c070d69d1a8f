package rl

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"graft/model/template"
)

// messages renders a conversation for SFT. The loss is on what the assistant wrote: the template's
// {% generation %} blocks, or else what each assistant message adds to the text before it.
func (r *Renderer) messages(row Row, v any) (Example, error) {
	list, ok := v.([]any)
	if !ok {
		return Example{}, row.wrong("messages", v, "a list of messages")
	}
	if err := checkMessages(row, "messages", list); err != nil {
		return Example{}, err
	}
	c, err := r.asChat(row, conversation{messages: list}, true)
	if err != nil {
		return Example{}, err
	}
	text, spans, err := r.render(c, c.messages, false)
	if err != nil {
		return Example{}, fmt.Errorf("rl: %s: %w", row.Where(), err)
	}
	if err := r.oversizedRow(row, text); err != nil {
		return Example{}, err
	}
	var turns []turn
	for _, s := range spans {
		turns = append(turns, turn{from: s[0], to: s[1]})
	}
	if turns == nil && !r.o.AllTokens {
		if turns, err = r.turns(c, text); err != nil {
			return Example{}, fmt.Errorf("rl: %s: %w", row.Where(), err)
		}
	}
	ids, err := r.encodeRendered(text)
	if err != nil {
		return Example{}, fmt.Errorf("rl: %s: %w", row.Where(), err)
	}
	if len(ids) < 2 {
		return Example{}, fmt.Errorf("rl: %s: the conversation has nothing to train on", row.Where())
	}
	e := Example{Tokens: ids, PromptLen: 1, Row: row.Index}
	if !r.o.AllTokens {
		mask, err := r.tokenMask(text, ids, turns)
		if err != nil {
			return Example{}, fmt.Errorf("rl: %s: %w", row.Where(), err)
		}
		from := slices.Index(mask, 1)
		if from < 0 {
			return Example{}, fmt.Errorf("rl: %s: the conversation has no assistant message to train on", row.Where())
		}
		e.PromptLen = max(1, from)
		e.Mask = mask[e.PromptLen:]
		var trained []int32
		for i, w := range e.Mask {
			if w != 0 {
				trained = append(trained, e.Tokens[e.PromptLen+i])
			}
		}
		if !r.stopsIn(trained) {
			return Example{}, r.neverStops(row, trained)
		}
	}
	return e, r.fit(row, &e)
}

// turn is a span of the rendered text that the assistant wrote.
type turn struct {
	from, to int
	bare     bool // the span ends with the content: the stop token behind it is the assistant's too
}

// turns finds the assistant's text by rendering the conversation up to each of its messages. Where a
// template writes a message otherwise once more follow (it drops old thoughts), the message is found
// where it stands.
func (r *Renderer) turns(c conversation, text string) ([]turn, error) {
	var turns []turn
	for i, m := range c.messages {
		if roleOf(m) != "assistant" {
			continue
		}
		t, ok, err := r.added(c, text, i)
		if err == nil && !ok {
			t, ok, err = r.inPlace(c, text, i)
		}
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("assistant message %d cannot be found in what the chat template makes of it, and the template has no {%% generation %%} blocks that mark it; give rows of prompt and completion, train on all tokens, or give a template with such blocks", i)
		}
		turns = append(turns, t)
	}
	return turns, nil
}

// added is what message i adds to the conversation before it, if the rest leaves that as it is.
func (r *Renderer) added(c conversation, text string, i int) (turn, bool, error) {
	var open, closed string
	var err error
	if i > 0 {
		if open, _, err = r.render(c, c.messages[:i], true); err != nil {
			return turn{}, false, err
		}
		if closed, _, err = r.render(c, c.messages[:i], false); err != nil {
			return turn{}, false, err
		}
	}
	through, _, err := r.render(c, c.messages[:i+1], false)
	if err != nil {
		return turn{}, false, err
	}
	from := len(commonPrefix(open, text))
	ok := strings.HasPrefix(text, through) && from >= len(closed) && from < len(through)
	return turn{from: from, to: len(through)}, ok, nil
}

// standIn is text that no conversation holds: private characters.
const standIn = "\uE0F0\uE0F1"

// inPlace finds the content of message i as the part of the text that changes with it.
func (r *Renderer) inPlace(c conversation, text string, i int) (turn, bool, error) {
	m := c.messages[i].(*template.Map)
	if content, _ := m.Get("content"); content == nil || strings.Contains(text, standIn) {
		return turn{}, false, nil
	}
	other := slices.Clone(c.messages)
	other[i] = template.NewMap("role", "assistant", "content", standIn)
	changed, _, err := r.render(c, other, false)
	if err != nil {
		return turn{}, false, err
	}
	at := strings.Index(changed, standIn)
	if at < 0 || strings.Count(changed, standIn) != 1 {
		return turn{}, false, nil
	}
	before, after := changed[:at], changed[at+len(standIn):]
	ok := strings.HasPrefix(text, before) && strings.HasSuffix(text, after) && len(before)+len(after) < len(text)
	return turn{from: len(before), to: len(text) - len(after), bare: true}, ok, nil
}

// farStop is how many tokens may lie between a bare turn and its stop token: a line end, say.
const farStop = 4

// tokenMask marks the tokens of byte spans; a token that is partly within a span belongs to it. What
// a template puts behind the stop token within a turn is not the model's to write.
func (r *Renderer) tokenMask(text string, ids []int32, turns []turn) ([]float32, error) {
	mask := make([]float32, len(ids))
	place := func(at int) (n int, split bool, err error) {
		if at == len(text) {
			return len(ids), false, nil
		}
		head, err := r.encodeRendered(text[:at])
		if err != nil {
			return 0, false, err
		}
		for n < len(head) && n < len(ids) && head[n] == ids[n] {
			n++
		}
		return n, n < len(head), nil
	}
	for _, turn := range turns {
		if turn.from == turn.to {
			continue
		}
		from, _, err := place(turn.from)
		if err != nil {
			return nil, err
		}
		to, split, err := place(turn.to)
		if err != nil {
			return nil, err
		}
		if split && to < len(ids) {
			to++
		}
		if turn.bare {
			if at := slices.IndexFunc(ids[to:min(to+farStop, len(ids))], r.isStop); at >= 0 {
				to += at + 1
			}
		}
		last := to
		for i := to - 1; i >= from; i-- {
			if r.isStop(ids[i]) {
				last = i + 1
				break
			}
		}
		for i := from; i < last; i++ {
			mask[i] = 1
		}
	}
	return mask, nil
}

func (r *Renderer) isStop(id int32) bool { return slices.Contains(r.stops, id) }

func (r *Renderer) stopsIn(ids []int32) bool { return slices.ContainsFunc(ids, r.isStop) }

func (r *Renderer) stopNames() string {
	var names []string
	for _, id := range r.stops {
		s, _ := r.tok.Token(id)
		names = append(names, strconv.Quote(s))
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (r *Renderer) neverStops(row Row, tail []int32) error {
	return fmt.Errorf("rl: %s: the training target ends in %q without a stop token (%s): a model trained so would never stop; give a chat template that ends the assistant's message with one",
		row.Where(), r.tok.Decode(tail[max(0, len(tail)-8):], false), r.stopNames())
}

// AuditToken is one token of an audited conversation.
type AuditToken struct {
	ID      int32
	Piece   string
	Special bool
	Trained bool // part of what the assistant writes
	Stop    bool // ends a turn
}

// Audit renders a short conversation and returns its exact tokens. It fails when the template never
// emits a stop token behind an assistant's message, or emits BOS twice.
func (r *Renderer) Audit() ([]AuditToken, error) {
	if r.chat == nil {
		return nil, nil
	}
	row := Row{file: "audit", line: 1, fields: template.NewMap("messages", []any{
		template.NewMap("role", "user", "content", "Hello"), template.NewMap("role", "assistant", "content", "Hi")})}
	v, _ := row.Get("messages")
	auditor := *r
	auditor.o.AllTokens, auditor.o.MaxLength, auditor.o.SystemPrompt = false, 0, ""
	e, err := auditor.messages(row, v)
	if err != nil {
		var long *tooLong
		if errors.As(err, &long) {
			return nil, err
		}
		return nil, fmt.Errorf("%w (found by rendering a user's \"Hello\" and an assistant's \"Hi\")", err)
	}
	bos, hasBOS := r.tok.BOS()
	var out []AuditToken
	for i, id := range e.Tokens {
		piece, _ := r.tok.Token(id)
		out = append(out, AuditToken{ID: id, Piece: piece, Special: r.tok.IsSpecial(id), Stop: slices.Contains(r.stops, id),
			Trained: i >= e.PromptLen && e.Mask[i-e.PromptLen] != 0})
		if hasBOS && i == 1 && id == bos && e.Tokens[0] == bos {
			return out, fmt.Errorf("rl: the chat template begins with %q twice", piece)
		}
	}
	return out, nil
}

// Rendered is what a dataset became.
type Rendered[T any] struct {
	Items   []T
	Skipped int // rows left out because they are too long
	Longest int // tokens of the longest prompt, or of the longest example
}

// Prompts renders every row for sampling, so that a bad row is known before the first step.
func (r *Renderer) Prompts(d *Dataset) (Rendered[Prompt], error) {
	return each(r, d, r.Prompt, func(p Prompt) int { return len(p.IDs) })
}

// Examples renders every row for SFT.
func (r *Renderer) Examples(d *Dataset) (Rendered[Example], error) {
	return each(r, d, r.Example, func(e Example) int { return len(e.Tokens) })
}

// Preferences renders every row for DPO.
func (r *Renderer) Preferences(d *Dataset) (Rendered[Preference], error) {
	return each(r, d, r.Preference, func(p Preference) int { return max(len(p.Chosen.Tokens), len(p.Rejected.Tokens)) })
}

func each[T any](r *Renderer, d *Dataset, render func(Row) (T, error), size func(T) int) (out Rendered[T], err error) {
	if d.Len() == 0 {
		return out, fmt.Errorf("rl: dataset %s has no rows", d.Name)
	}
	var shortest *tooLong
	for _, row := range d.Rows {
		item, err := render(row)
		var long *tooLong
		if errors.As(err, &long) && r.o.TooLong != TooLongError {
			if out.Skipped++; shortest == nil || long.got < shortest.got {
				shortest = long
			}
			continue
		}
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, item)
		out.Longest = max(out.Longest, size(item))
	}
	if len(out.Items) == 0 {
		return out, fmt.Errorf("rl: all %d rows of %s are too long; the shortest: %w", d.Len(), d.Name, shortest)
	}
	return out, nil
}
