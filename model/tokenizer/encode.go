package tokenizer

import "fmt"

// EncodeOptions chooses how Encode reads a text. The zero value recognises special tokens and adds none.
type EncodeOptions struct {
	AddSpecial bool // put BOS, EOS and the like around the text, as the model was trained
	PlainText  bool // special tokens written in the text stay text, and so do the marks of Protect
}

// maxText bounds one text, because positions within it are 32-bit.
const maxText = 1 << 30

// Encode returns the token ids of text. Bytes that are not UTF-8 survive where the model knows bytes. It fails on text
// of a gigabyte, and when a foreign pre-tokenizer pattern exceeds its time.
func (t *Tokenizer) Encode(text string, opt EncodeOptions) ([]int32, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("tokenizer: text of %d bytes, the limit is %d", len(text), maxText)
	}
	var breaks []int
	if !opt.PlainText {
		text, breaks = unprotect(text)
	}
	e := encoding{t: t, plain: opt.PlainText, ids: make([]int32, 0, len(text)/3+8)}
	if opt.AddSpecial {
		e.ids = append(e.ids, t.before...)
	}
	token := func(id int32) { e.ids = append(e.ids, id) }
	err := t.raw.cut(text, opt.PlainText, breaks, func(start, end int) error {
		return e.normalize(text[start:end], start == 0, within(breaks, start, end))
	}, token)
	if err != nil {
		return nil, err
	}
	if opt.AddSpecial {
		e.ids = append(e.ids, t.after...)
	}
	return e.ids, nil
}

// encoding is one Encode call.
type encoding struct {
	t       *Tokenizer
	plain   bool
	ids     []int32
	pieces  []piece
	scratch scratch
	known   map[string][2]int // words of this text and where their ids lie in ids
}

// maxKnown bounds the words an encoding remembers.
const maxKnown = 1 << 14

// normalize handles a stretch of text without added tokens, first if it begins the whole text.
func (e *encoding) normalize(text string, first bool, breaks []int) error {
	t := e.t
	original := text
	if t.normalizer != nil {
		var err error
		if text, err = t.normalizer.normalize(text); err != nil {
			return err
		}
	}
	if t.normalized == nil {
		return e.words(text, first)
	}
	plain := e.plain
	breaks = t.moveBreaks(original, breaks)
	if len(breaks) > maxMovedBreaks {
		plain = true
	}
	return t.normalized.cut(text, plain, breaks, func(start, end int) error {
		return e.words(text[start:end], first && start == 0)
	}, func(id int32) { e.ids = append(e.ids, id) })
}

// words cuts normalized text into words and gives them to the model.
func (e *encoding) words(text string, first bool) error {
	e.pieces = append(e.pieces[:0], piece{text, first})
	if e.t.pre != nil {
		var err error
		if e.pieces, err = e.t.pre.split(e.pieces[:0], piece{text, first}); err != nil {
			return err
		}
	}
	for _, p := range e.pieces {
		e.word(p.text)
	}
	return nil
}

// word appends the ids of a word. Most words of a text come again, and then their ids are copied.
func (e *encoding) word(text string) {
	if text == "" {
		return
	}
	if at, ok := e.known[text]; ok {
		e.ids = append(e.ids, e.ids[at[0]:at[1]]...)
		return
	}
	from := len(e.ids)
	e.ids = e.t.model.tokenize(e.ids, text, &e.scratch)
	if len(e.pieces) > 1 && len(e.known) < maxKnown {
		if e.known == nil {
			e.known = map[string][2]int{}
		}
		e.known[text] = [2]int{from, len(e.ids)}
	}
}

// within returns the breaks between start and end, relative to start.
func within(breaks []int, start, end int) []int {
	var inside []int
	for _, b := range breaks {
		if start <= b && b <= end {
			inside = append(inside, b-start)
		}
	}
	return inside
}

// maxMovedBreaks is how many breaks are followed through normalization; a text with more has its special tokens
// looked for before normalization only.
const maxMovedBreaks = 256

// moveBreaks returns where breaks of text lie in its normalized form.
func (t *Tokenizer) moveBreaks(text string, breaks []int) []int {
	if len(breaks) > maxMovedBreaks || t.normalizer == nil {
		return breaks
	}
	moved := make([]int, 0, len(breaks))
	for _, b := range breaks {
		if prefix, err := t.normalizer.normalize(text[:b]); err == nil {
			moved = append(moved, len(prefix))
		}
	}
	return moved
}
