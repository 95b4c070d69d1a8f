package rl

import (
	"fmt"
	"reflect"
	"strings"

	"graft/model/template"
)

// Preference renders a row with chosen and rejected, with prompt or with one that both begin with.
func (r *Renderer) Preference(row Row) (Preference, error) {
	values := [2]any{}
	for i, column := range [...]string{"chosen", "rejected"} {
		v, ok := row.Get(column)
		if !ok {
			return Preference{}, row.missing(column)
		}
		values[i] = v
	}
	row, err := r.explicit(row, values[0], values[1])
	if err != nil {
		return Preference{}, err
	}
	prompt, err := r.prompt(row)
	if err != nil {
		return Preference{}, err
	}
	chosen, err := r.completion(row, "chosen", prompt)
	if err != nil {
		return Preference{}, err
	}
	rejected, err := r.completion(row, "rejected", prompt)
	if err != nil {
		return Preference{}, err
	}
	both, err := r.join(row, prompt, chosen, rejected)
	if err != nil {
		return Preference{}, err
	}
	return Preference{both[0], both[1]}, nil
}

// explicit takes the common beginning of chosen and rejected away when the row has no prompt of
// their own kind, and makes it the prompt.
func (r *Renderer) explicit(row Row, chosen, rejected any) (Row, error) {
	if reflect.DeepEqual(plain(chosen), plain(rejected)) {
		return row, fmt.Errorf("rl: %s: chosen and rejected are the same", row.Where())
	}
	if reflect.TypeOf(chosen) != reflect.TypeOf(rejected) {
		return row, fmt.Errorf("rl: %s: chosen is %s but rejected %s", row.Where(), kindOf(chosen), kindOf(rejected))
	}
	_, given := row.Get(first(row, r.o.PromptColumn, "prompt", "question", "problem"))
	given = given || r.o.PromptTemplate != ""
	a, chat := chosen.([]any)
	if chat {
		b := rejected.([]any)
		for column, messages := range map[string][]any{"chosen": a, "rejected": b} {
			if err := checkMessages(row, column, messages); err != nil {
				return row, err
			}
		}
		// Whole conversations beside a prompt of text: the conversations know better.
		if given && roleOf(a[0]) == "assistant" {
			if p, is := row.Get("prompt"); is && r.o.PromptTemplate == "" {
				if s, text := p.(string); text {
					return row.with("prompt", []any{template.NewMap("role", "user", "content", s)}), nil
				}
			}
			return row, nil
		}
		n := 0
		for n < len(a) && n < len(b) && reflect.DeepEqual(plain(a[n]), plain(b[n])) {
			n++
		}
		if n == 0 || n == len(a) || n == len(b) {
			return row, fmt.Errorf("rl: %s: chosen and rejected share no prompt, or one is all of the other", row.Where())
		}
		return row.with("prompt", a[:n:n]).with("chosen", a[n:]).with("rejected", b[n:]), nil
	}
	if given {
		return row, nil
	}
	x, okx := chosen.(string)
	y, oky := rejected.(string)
	if !okx || !oky {
		return row, row.wrong("chosen", chosen, "text or a list of messages")
	}
	shared := strings.TrimSuffix(commonPrefix(x, y), " ") // a space before the first word belongs to it
	if shared == "" {
		return row, fmt.Errorf("rl: %s: there is no prompt, and chosen and rejected begin with different text", row.Where())
	}
	return row.with("prompt", shared).with("chosen", x[len(shared):]).with("rejected", y[len(shared):]), nil
}

// with is the row with another value in one column.
func (r Row) with(column string, v any) Row {
	fields := &template.Map{}
	for _, k := range r.fields.Keys() {
		x, _ := r.fields.Get(k)
		fields.Set(k, x)
	}
	fields.Set(column, v)
	r.fields = fields
	return r
}
