package tokenizer

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// A piece is a part of the text on its way to the model.
type piece struct {
	text  string
	first bool // starts at the beginning of the encoded text
}

// A preTokenizer cuts a piece into words, appending them to dst.
type preTokenizer interface {
	split(dst []piece, p piece) ([]piece, error)
}

// A finder locates the matches of a pattern: match is called for consecutive spans that cover s.
type finder interface {
	find(s string, span func(start, end int, match bool)) error
}

// find walks s and merges what the scanner does not match into single spans.
func (next scanner) find(s string, span func(start, end int, match bool)) error {
	gap := 0
	for at := 0; at < len(s); {
		n := next(s[at:])
		if n == 0 {
			_, size := utf8.DecodeRuneInString(s[at:])
			at += size
			continue
		}
		if gap < at {
			span(gap, at, false)
		}
		span(at, at+n, true)
		at += n
		gap = at
	}
	if gap < len(s) {
		span(gap, len(s), false)
	}
	return nil
}

// literal finds the occurrences of a fixed string.
type literal string

func (l literal) find(s string, span func(start, end int, match bool)) error {
	for at := 0; at < len(s); {
		i := strings.Index(s[at:], string(l))
		if i < 0 || l == "" {
			span(at, len(s), false)
			return nil
		}
		if i > 0 {
			span(at, at+i, false)
		}
		span(at+i, at+i+len(l), true)
		at += i + len(l)
	}
	return nil
}

// pattern finds the matches of a regular expression that is not one of the known ones. Its letter classes are those of
// Go's Unicode tables.
type pattern struct{ re *regexp2.Regexp }

// patternTimeout and patternStack bound one search: a hostile pattern or text ends in an error.
const (
	patternTimeout = 5 * time.Second
	patternStack   = 1 << 22
)

// compilePattern returns the scanner of a known pattern, or compiles it.
func compilePattern(expr string) (finder, error) {
	if next, ok := scannerFor(expr); ok {
		return next, nil
	}
	return compileForeign(expr, patternTimeout)
}

// compileForeign compiles a pattern for the backtracking engine.
func compileForeign(expr string, timeout time.Duration) (finder, error) {
	if strings.Contains(expr, "&&") && strings.Contains(expr, "[") {
		return nil, fmt.Errorf("tokenizer: pattern %q: class intersection is not supported", expr)
	}
	re, err := regexp2.Compile(expr, regexp2.OptionMaxBacktrackingStackSize(patternStack))
	if err != nil {
		return nil, fmt.Errorf("tokenizer: pattern %q: %w", expr, err)
	}
	re.MatchTimeout = timeout
	return pattern{re}, nil
}

func (p pattern) find(s string, span func(start, end int, match bool)) error {
	runes := []rune(s)
	offset, counted, gap := 0, 0, 0 // byte offset of runes[counted]; end of the last match
	advance := func(to int) int {
		for ; counted < to; counted++ {
			_, size := utf8.DecodeRuneInString(s[offset:])
			offset += size
		}
		return offset
	}
	err := p.re.FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
		index, length, _ := m.GroupRange(0)
		start := advance(index)
		end := advance(index + length)
		if gap < start {
			span(gap, start, false)
		}
		if start < end {
			span(start, end, true)
		}
		gap = end
		return true
	})
	if err != nil {
		return fmt.Errorf("tokenizer: pattern %q on %d bytes of text: %w", p.re.String(), len(s), err)
	}
	if gap < len(s) {
		span(gap, len(s), false)
	}
	return nil
}

// class finds single characters.
type class func(rune) bool

func (in class) find(s string, span func(start, end int, match bool)) error {
	return scanner(func(s string) int { return runAtMost(s, 1, in) }).find(s, span)
}

// behavior says what becomes of the matches of a split.
type behavior string

const (
	removed            behavior = "Removed"
	isolated           behavior = "Isolated"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
	contiguous         behavior = "Contiguous"
)

// splitter cuts at the matches of a pattern.
type splitter struct {
	find     finder
	behavior behavior
	invert   bool
}

func (sp splitter) split(dst []piece, p piece) ([]piece, error) {
	base, start, pending, previous := len(dst), 0, false, false
	emit := func(from, to int) {
		if from < to {
			dst = append(dst, piece{p.text[from:to], p.first && from == 0})
		}
	}
	err := sp.find.find(p.text, func(from, to int, match bool) {
		match = match != sp.invert
		switch sp.behavior {
		case removed:
			if !match {
				emit(from, to)
			}
		case isolated:
			emit(from, to)
		case mergedWithPrevious:
			// A match joins the text before it, unless that was a match too.
			if match && !previous && len(dst) > base {
				last := &dst[len(dst)-1]
				last.text = p.text[from-len(last.text) : to]
			} else {
				emit(from, to)
			}
		case mergedWithNext:
			if pending {
				if match {
					emit(start, from)
				} else {
					emit(start, to)
				}
			}
			if match {
				start = from
			} else if !pending {
				emit(from, to)
			}
			pending = match
		case contiguous:
			if match == previous && len(dst) > base {
				last := &dst[len(dst)-1]
				last.text = p.text[from-len(last.text) : to]
			} else {
				emit(from, to)
			}
		}
		previous = match
	})
	if pending {
		emit(start, len(p.text))
	}
	return dst, err
}

// sequencePre applies pre-tokenizers one after another.
type sequencePre []preTokenizer

func (seq sequencePre) split(dst []piece, p piece) ([]piece, error) {
	if len(seq) == 0 {
		return append(dst, p), nil
	}
	if len(seq) == 1 {
		return seq[0].split(dst, p)
	}
	parts, err := seq[0].split(nil, p)
	for _, part := range parts {
		if err != nil {
			return dst, err
		}
		dst, err = seq[1:].split(dst, part)
	}
	return dst, err
}

// byteLevel is the ByteLevel pre-tokenizer. Unless raw is set it writes bytes as printable characters.
type byteLevel struct {
	prefixSpace bool
	regex       bool
	raw         bool
}

func (b byteLevel) split(dst []piece, p piece) ([]piece, error) {
	if b.prefixSpace && !strings.HasPrefix(p.text, " ") {
		p.text = " " + p.text
	}
	base := len(dst)
	if b.regex {
		for at := 0; at < len(p.text); {
			n := scanGPT2(p.text[at:])
			dst = append(dst, piece{p.text[at : at+n], p.first && at == 0})
			at += n
		}
	} else if p.text != "" {
		dst = append(dst, p)
	}
	if !b.raw {
		for i := base; i < len(dst); i++ {
			dst[i].text = byteText(dst[i].text)
		}
	}
	return dst, nil
}

// metaspace is the Metaspace pre-tokenizer: spaces become a visible character, which may also be put in front.
type metaspace struct {
	replacement string
	scheme      string // first, always, never
	cut         bool   // split before every replacement
}

func (m metaspace) split(dst []piece, p piece) ([]piece, error) {
	p.text = strings.ReplaceAll(p.text, " ", m.replacement)
	if m.scheme == "always" || m.scheme == "first" && p.first {
		if !strings.HasPrefix(p.text, m.replacement) {
			p.text = m.replacement + p.text
		}
	}
	if !m.cut {
		return append(dst, p), nil
	}
	return splitter{find: literal(m.replacement), behavior: mergedWithNext}.split(dst, p)
}

// scanWord matches \w+|[^\w\s]+ , the Whitespace pre-tokenizer.
func scanWord(s string) int {
	if n := run(s, isWord); n > 0 {
		return n
	}
	return run(s, func(r rune) bool { return !isWord(r) && !isSpace(r) })
}
