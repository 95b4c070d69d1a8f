package infer

import (
	"strings"
	"unicode/utf8"

	"graft/model/tokenizer"
)

// textReader turns the tokens of a completion into text. The decoder sees the end of the prompt
// first, so that it knows that the completion does not begin a text: its first space stays, and a
// character that the prompt began is completed.
type textReader struct {
	stream *tokenizer.Stream
	skip   string // text of the prompt that the decoder still holds
}

// textContext is how many tokens of the prompt the decoder sees.
const textContext = 8

func newTextReader(tok *tokenizer.Tokenizer, prompt []int32, skipSpecial bool) *textReader {
	r := &textReader{stream: tok.Stream(skipSpecial)}
	context, told := prompt[max(0, len(prompt)-textContext):], ""
	for _, id := range context {
		told += r.stream.Push(id)
	}
	r.skip = strings.TrimPrefix(tok.Decode(context, skipSpecial), told)
	return r
}

// push adds a token and returns the text that became certain.
func (r *textReader) push(id int32) string { return r.own(r.stream.Push(id)) }

// flush returns the text still held.
func (r *textReader) flush() string { return r.own(r.stream.Flush()) }

// own cuts what belongs to the prompt. Where the decoder's text goes another way than the prompt's
// alone did, half a character has become a whole one.
func (r *textReader) own(text string) string {
	n := 0
	for n < len(text) && n < len(r.skip) {
		_, size := utf8.DecodeRuneInString(r.skip[n:])
		if !strings.HasPrefix(text[n:], r.skip[n:n+size]) {
			break
		}
		n += size
	}
	if r.skip = r.skip[n:]; n < len(text) {
		r.skip = ""
	}
	return text[n:]
}

// stopMatcher finds stop strings in text that arrives in pieces. It holds back the longest end of
// the text that is a proper beginning of a stop string, and nothing else. What it shows does not
// depend on how the text is cut: the stop that is complete first counts, of several the longest.
type stopMatcher struct {
	stops   []string
	include bool // show the stop string itself
	held    string
}

// push adds text and returns what may be shown, and the stop string that is now complete, or "".
func (m *stopMatcher) push(text string) (show, stop string) {
	if len(m.stops) == 0 {
		return text, ""
	}
	if text == "" {
		return "", ""
	}
	m.held += text
	if at, stop := m.first(); stop != "" {
		show = m.held[:at]
		if m.include {
			show += stop
		}
		m.held = ""
		return show, stop
	}
	keep := m.partial()
	show, m.held = m.held[:len(m.held)-keep], m.held[len(m.held)-keep:]
	return show, ""
}

// pass returns text, and what was held, without looking for stops.
func (m *stopMatcher) pass(text string) string { return m.flush() + text }

// flush returns what was held: no more text comes.
func (m *stopMatcher) flush() string {
	text := m.held
	m.held = ""
	return text
}

// first is the stop string that ends first in the held text, and where it begins.
func (m *stopMatcher) first() (at int, stop string) {
	end := len(m.held) + 1
	for _, s := range m.stops {
		i := strings.Index(m.held, s)
		if i < 0 {
			continue
		}
		if n := i + len(s); n < end || n == end && i < at {
			at, stop, end = i, s, n
		}
	}
	return at, stop
}

// partial is the length of the longest end of the held text that begins some stop string.
func (m *stopMatcher) partial() int {
	longest := 0
	for _, s := range m.stops {
		for n := min(len(s)-1, len(m.held)); n > longest; n-- {
			if strings.HasSuffix(m.held, s[:n]) {
				longest = n
				break
			}
		}
	}
	return longest
}
