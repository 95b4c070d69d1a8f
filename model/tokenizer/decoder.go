package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// A stage is one decoder of the chain, as a stream: it takes token texts and hands on what can no longer change.
// A stage belongs to one decoding.
type stage interface {
	push(token string, emit func(string))
	flush(emit func(string))
}

// A decoder makes the stages of one decoding, in order.
type decoder []func() stage

// chain runs stages one after another.
type chain struct {
	stages []stage
	out    func(string)
}

func (d decoder) start(out func(string)) *chain {
	c := &chain{out: out}
	for _, make := range d {
		c.stages = append(c.stages, make())
	}
	return c
}

func (c *chain) push(token string) { c.from(0, token) }

func (c *chain) from(i int, token string) {
	if i == len(c.stages) {
		c.out(token)
		return
	}
	c.stages[i].push(token, func(s string) { c.from(i+1, s) })
}

func (c *chain) flush() {
	for i, s := range c.stages {
		s.flush(func(text string) { c.from(i+1, text) })
	}
}

// each maps every token by its index.
type each struct {
	f func(i int, token string) string
	n int
}

func (e *each) push(token string, emit func(string)) {
	emit(e.f(e.n, token))
	e.n++
}

func (e *each) flush(func(string)) {}

func eachToken(f func(i int, token string) string) func() stage {
	return func() stage { return &each{f: f} }
}

// byteFallbackStage turns runs of <0xHH> tokens into text. A run that is not UTF-8 as a whole becomes one U+FFFD a
// byte, so a run is held until it ends.
type byteFallbackStage struct{ run []byte }

func (b *byteFallbackStage) push(token string, emit func(string)) {
	if c, ok := byteOf(token); ok {
		b.run = append(b.run, c)
		return
	}
	b.flush(emit)
	emit(token)
}

func (b *byteFallbackStage) flush(emit func(string)) {
	if len(b.run) == 0 {
		return
	}
	if utf8.Valid(b.run) {
		emit(string(b.run))
	} else {
		emit(strings.Repeat("\uFFFD", len(b.run)))
	}
	b.run = b.run[:0]
}

// byteLevelStage turns the characters of byte-level pieces into bytes and hands on complete UTF-8.
type byteLevelStage struct{ held []byte }

func (b *byteLevelStage) push(token string, emit func(string)) {
	b.held = appendTextBytes(b.held, token)
	var text string
	text, b.held = completeUTF8(b.held)
	if text != "" {
		emit(text)
	}
}

func (b *byteLevelStage) flush(emit func(string)) {
	if len(b.held) > 0 {
		emit(lossy(b.held))
		b.held = b.held[:0]
	}
}

// completeUTF8 splits b into the text that more bytes can not change and the beginning of a character at its end.
func completeUTF8(b []byte) (text string, rest []byte) {
	keep := len(b)
	for n := 1; n <= 3 && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				keep = len(b) - n
			}
			break
		}
	}
	text = lossy(b[:keep])
	return text, append(b[:0], b[keep:]...)
}

// lossy replaces every maximal invalid part by one U+FFFD, the practice that Unicode recommends (chapter 3.9).
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		if r, size := utf8.DecodeRune(b); r != utf8.RuneError || size > 1 {
			out.Write(b[:size])
			b = b[size:]
			continue
		}
		out.WriteRune(utf8.RuneError)
		b = b[invalidPart(b):]
	}
	return out.String()
}

// invalidPart returns the length of the maximal subpart of an ill-formed sequence: the bytes that begin a character
// (Unicode, table 3-7), or one.
func invalidPart(b []byte) int {
	low, high, size := byte(0x80), byte(0xBF), 0
	switch c := b[0]; {
	case 0xC2 <= c && c <= 0xDF:
		size = 2
	case c == 0xE0:
		low, size = 0xA0, 3
	case c == 0xED:
		high, size = 0x9F, 3
	case 0xE1 <= c && c <= 0xEF:
		size = 3
	case c == 0xF0:
		low, size = 0x90, 4
	case 0xF1 <= c && c <= 0xF3:
		size = 4
	case c == 0xF4:
		high, size = 0x8F, 4
	}
	n := 1
	for n < size && n < len(b) && low <= b[n] && b[n] <= high {
		low, high = 0x80, 0xBF
		n++
	}
	return n
}

// fusedStrip strips a character from both ends of the whole text.
type fusedStrip struct {
	char        string
	start, stop int
	tail        string
	begun       bool // something has been handed on, or a character that stays was met
}

func (f *fusedStrip) push(token string, emit func(string)) {
	for !f.begun && f.start > 0 && strings.HasPrefix(token, f.char) {
		token = token[len(f.char):]
		f.start--
	}
	if token == "" {
		return
	}
	f.begun = true
	if f.stop == 0 {
		emit(token)
		return
	}
	// What is held is what the end could still take: at most stop characters.
	text := f.tail + token
	keep := len(text)
	for n := 0; n < f.stop && strings.HasSuffix(text[:keep], f.char); n++ {
		keep -= len(f.char)
	}
	f.tail = text[keep:]
	if keep > 0 {
		emit(text[:keep])
	}
}

func (f *fusedStrip) flush(func(string)) {}

// whole collects everything and maps it at the end, for decoders that follow a fused text and can not stream.
type whole struct {
	f    func(i int, token string) string
	text strings.Builder
}

func (w *whole) push(token string, _ func(string)) { w.text.WriteString(token) }
func (w *whole) flush(emit func(string))           { emit(w.f(0, w.text.String())) }

// suffixStage is BPEDecoder: the end-of-word suffix becomes a space, but nothing in the last token.
type suffixStage struct {
	suffix string
	held   string
	any    bool
}

func (s *suffixStage) push(token string, emit func(string)) {
	if s.any {
		emit(strings.ReplaceAll(s.held, s.suffix, " "))
	}
	s.held, s.any = token, true
}

func (s *suffixStage) flush(emit func(string)) {
	if s.any {
		emit(strings.ReplaceAll(s.held, s.suffix, ""))
	}
	s.any = false
}

// metaspaceDecode makes the replacement character a space; in the first token it was put in front and is dropped.
func metaspaceDecode(replacement string, prepended bool) func(int, string) string {
	return func(i int, token string) string {
		if i == 0 && prepended {
			return strings.ReplaceAll(token, replacement, "")
		}
		return strings.ReplaceAll(token, replacement, " ")
	}
}

// wordPieceDecode joins pieces into words; cleanup undoes the spaces before punctuation.
func wordPieceDecode(mark func(token string) (string, bool), cleanup bool) func(int, string) string {
	return func(i int, token string) string {
		text, continues := mark(token)
		if i > 0 {
			if !continues {
				text = " " + text
			}
			token = text
		}
		if cleanup {
			token = cleanSpaces(token)
		}
		return token
	}
}

// cleanSpaces is the clean-up of the reference, one replacement after another.
func cleanSpaces(s string) string {
	for _, pair := range [...][2]string{
		{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
		{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
	} {
		s = strings.ReplaceAll(s, pair[0], pair[1])
	}
	return s
}

// stripToken strips up to start and stop characters from the ends of a token.
func stripToken(char string, start, stop int) func(int, string) string {
	return func(_ int, token string) string {
		for n := 0; n < start && strings.HasPrefix(token, char); n++ {
			token = token[len(char):]
		}
		for n := 0; n < stop && strings.HasSuffix(token, char); n++ {
			token = token[:len(token)-len(char)]
		}
		return token
	}
}
