package template

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokData
	tokBlockBegin
	tokBlockEnd
	tokPrintBegin
	tokPrintEnd
	tokName
	tokString
	tokNumber
	tokOperator
)

type token struct {
	kind  tokenKind
	line  int
	text  string // name, operator, decoded string or template data
	value any    // int64, *big.Int or float64 of a number
}

func (t token) is(kind tokenKind, text string) bool { return t.kind == kind && t.text == text }
func (t token) op(text string) bool                 { return t.is(tokOperator, text) }
func (t token) name(text string) bool               { return t.is(tokName, text) }

func (t token) describe() string {
	switch t.kind {
	case tokEOF:
		return "end of template"
	case tokData:
		return "template data"
	case tokBlockBegin:
		return "begin of statement block"
	case tokBlockEnd:
		return "end of statement block"
	case tokPrintBegin:
		return "begin of print statement"
	case tokPrintEnd:
		return "end of print statement"
	case tokNumber:
		return "number"
	case tokString:
		return "string"
	}
	return strconv.Quote(t.text)
}

// lexer cuts the source into tokens one at a time, so that the parser stops a
// hostile source before it is all in memory as tokens.
type lexer struct {
	src      string
	pos      int
	line     int
	lineHead bool   // the last match ended with a newline
	inside   string // closing delimiter of the tag we are in: "", "%}" or "}}"
	brackets []byte // closing brackets still to come inside the tag
	raw      bool
	queue    []token // tokens matched together with the one just returned
}

// maxBrackets bounds nesting of brackets inside one tag. Python's own parser
// stops at 200.
const maxBrackets = 200

func newLexer(source string) *lexer {
	if strings.IndexByte(source, '\r') >= 0 {
		source = strings.ReplaceAll(source, "\r\n", "\n")
		source = strings.ReplaceAll(source, "\r", "\n")
	}
	return &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, lineHead: true}
}

func (l *lexer) fail(format string, args ...any) error {
	return &Error{Kind: SyntaxError, Line: l.line, Message: sprintf(format, args...)}
}

// next returns the next token that the parser is interested in.
func (l *lexer) next() (token, error) {
	for {
		if len(l.queue) > 0 {
			t := l.queue[0]
			l.queue = l.queue[1:]
			return t, nil
		}
		if l.pos >= len(l.src) && !l.raw {
			return token{kind: tokEOF, line: l.line}, nil
		}
		var err error
		switch {
		case l.raw:
			err = l.rawBlock()
		case l.inside == "":
			err = l.text()
		default:
			return l.inTag()
		}
		if err != nil {
			return token{}, err
		}
	}
}

// advance moves past n bytes and counts their lines.
func (l *lexer) advance(n int) {
	part := l.src[l.pos : l.pos+n]
	l.line += strings.Count(part, "\n")
	if n > 0 {
		l.lineHead = part[n-1] == '\n'
	}
	l.pos += n
}

// pushData queues template data that stands before a tag, stripped as the
// tag's sign asks: '-' strips all white space, otherwise white space between a
// line's start and a statement or comment goes unless the sign is '+'.
func (l *lexer) pushData(text string, sign byte, isPrint bool) {
	if sign == '-' {
		text = strings.TrimRightFunc(text, isSpace)
	} else if sign != '+' && !isPrint {
		head := strings.LastIndexByte(text, '\n') + 1
		if (head > 0 || l.lineHead) && strings.TrimLeftFunc(text[head:], isSpace) == "" {
			text = text[:head]
		}
	}
	if text != "" {
		l.queue = append(l.queue, token{kind: tokData, line: l.line, text: text})
	}
}

func signAt(s string) byte {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[0]
	}
	return 0
}

// text reads template data up to and including the next tag's opening.
func (l *lexer) text() error {
	rest := l.src[l.pos:]
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 >= len(rest) {
			l.queue = append(l.queue, token{kind: tokData, line: l.line, text: rest})
			l.advance(len(rest))
			return nil
		}
		at += i
		if c := rest[at+1]; c == '%' || c == '#' || c == '{' {
			break
		}
		at++
	}
	open := rest[at+1]
	sign := signAt(rest[at+2:])
	l.pushData(rest[:at], sign, open == '{')
	n := at + 2
	if sign != 0 {
		n++
	}
	if open == '%' {
		if end := rawOpening(rest[n:]); end > 0 {
			l.advance(n + end)
			l.raw = true
			return nil
		}
	}
	l.advance(n)
	switch open {
	case '#':
		return l.comment()
	case '%':
		l.inside = "%}"
		l.queue = append(l.queue, token{kind: tokBlockBegin, line: l.line})
	default:
		l.inside = "}}"
		l.queue = append(l.queue, token{kind: tokPrintBegin, line: l.line})
	}
	return nil
}

// rawOpening returns the length of `raw %}` at the start of s, or 0.
func rawOpening(s string) int {
	t, ok := strings.CutPrefix(trimSpace(s), "raw")
	if !ok {
		return 0
	}
	t = trimSpace(t)
	if u, ok := strings.CutPrefix(t, "-%}"); ok {
		return len(s) - len(trimSpace(u))
	}
	if u, ok := strings.CutPrefix(t, "%}"); ok {
		return len(s) - len(u)
	}
	return 0
}

func trimSpace(s string) string { return strings.TrimLeftFunc(s, isSpace) }

// tagEnd returns how many bytes the tag end at the start of s takes, with the
// white space that it swallows; 0 when s does not start with it.
func tagEnd(s, end string) int {
	if t, ok := strings.CutPrefix(s, end); ok {
		if end != "}}" && strings.HasPrefix(t, "\n") {
			return len(end) + 1
		}
		return len(end)
	}
	if len(s) <= len(end) || s[1:1+len(end)] != end {
		return 0
	}
	if s[0] == '-' {
		return len(s) - len(trimSpace(s[1+len(end):]))
	}
	if s[0] == '+' && end != "}}" {
		return 1 + len(end)
	}
	return 0
}

func (l *lexer) comment() error {
	rest := l.src[l.pos:]
	i := strings.Index(rest, "#}")
	if i < 0 {
		return l.fail("comment {# is never closed with #}")
	}
	if i > 0 && (rest[i-1] == '-' || rest[i-1] == '+') {
		i--
	}
	l.advance(i + tagEnd(rest[i:], "#}"))
	return nil
}

// rawBlock reads up to and including {% endraw %}.
func (l *lexer) rawBlock() error {
	rest := l.src[l.pos:]
	for at := 0; ; at += 2 {
		i := strings.Index(rest[at:], "{%")
		if i < 0 {
			return l.fail("raw block is never closed with {%% endraw %%}")
		}
		at += i
		tail := rest[at+2:]
		sign := signAt(tail)
		if sign != 0 {
			tail = tail[1:]
		}
		t, ok := strings.CutPrefix(trimSpace(tail), "endraw")
		if !ok {
			continue
		}
		t = trimSpace(t)
		if n := tagEnd(t, "%}"); n > 0 {
			l.pushData(rest[:at], sign, false)
			l.advance(len(rest) - len(t) + n)
			l.raw = false
			return nil
		}
	}
}

// inTag reads one token inside {% %} or {{ }}.
func (l *lexer) inTag() (token, error) {
	rest := l.src[l.pos:]
	if n := len(rest) - len(trimSpace(rest)); n > 0 {
		// The tag's closing delimiter never starts with white space.
		l.advance(n)
		return l.next()
	}
	line := l.line
	if len(l.brackets) == 0 {
		if n := tagEnd(rest, l.inside); n > 0 {
			kind := tokBlockEnd
			if l.inside == "}}" {
				kind = tokPrintEnd
			}
			l.advance(n)
			l.inside = ""
			return token{kind: kind, line: line}, nil
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case r >= '0' && r <= '9':
		return l.number(rest)
	case r == '_' || unicode.IsLetter(r):
		n := strings.IndexFunc(rest, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
		})
		if n < 0 {
			n = len(rest)
		}
		l.advance(n)
		return token{kind: tokName, line: line, text: rest[:n]}, nil
	case r == '\'' || r == '"':
		return l.quoted(rest)
	}
	return l.operator(rest)
}

func (l *lexer) operator(rest string) (token, error) {
	n := 0
	if len(rest) > 1 {
		switch rest[:2] {
		case "**", "//", "==", "!=", ">=", "<=":
			n = 2
		}
	}
	if n == 0 && strings.IndexByte("+-/*%~[](){}><=.:|,;", rest[0]) >= 0 {
		n = 1
	}
	if n == 0 {
		r, _ := utf8.DecodeRuneInString(rest)
		return token{}, l.fail("unexpected character %q", r)
	}
	if err := l.balance(rest[0]); err != nil {
		return token{}, err
	}
	t := token{kind: tokOperator, line: l.line, text: rest[:n]}
	l.advance(n)
	return t, nil
}

// balance keeps account of brackets: inside them a closing delimiter of the
// tag is an operator ({{ {'a': {}} }}).
func (l *lexer) balance(c byte) error {
	switch c {
	case '(':
		l.brackets = append(l.brackets, ')')
	case '[':
		l.brackets = append(l.brackets, ']')
	case '{':
		l.brackets = append(l.brackets, '}')
	case ')', ']', '}':
		last := len(l.brackets) - 1
		if last < 0 {
			return l.fail("unexpected %q", c)
		}
		if want := l.brackets[last]; want != c {
			return l.fail("unexpected %q, expected %q", c, want)
		}
		l.brackets = l.brackets[:last]
	}
	if len(l.brackets) > maxBrackets {
		return l.fail("more than %d brackets are open; split the expression with {%% set %%}", maxBrackets)
	}
	return nil
}
