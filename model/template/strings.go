package template

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// quoted reads a string literal, whose escapes are those of Python.
func (l *lexer) quoted(rest string) (token, error) {
	quote := rest[0]
	i := 1
	for i < len(rest) && rest[i] != quote {
		if rest[i] == '\\' {
			i++
		}
		i++
	}
	if i >= len(rest) {
		return token{}, l.fail("string is never closed with %c", quote)
	}
	text := rest[1:i]
	if strings.IndexByte(text, '\\') >= 0 {
		var err error
		if text, err = unescape(text); err != nil {
			return token{}, l.fail("%v", err)
		}
	}
	t := token{kind: tokString, line: l.line, text: text}
	l.advance(i + 1)
	return t, nil
}

type escapeError string

func (e escapeError) Error() string { return string(e) }

// unescape decodes the escapes of a Python string literal. s does not end with
// a lone backslash.
func unescape(s string) (string, error) {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1]
		i += 2
		if k := strings.IndexByte("\\'\"abfnrtv", c); k >= 0 {
			b.WriteByte("\\'\"\a\b\f\n\r\t\v"[k])
			continue
		}
		switch {
		case c == '\n':
		case c >= '0' && c <= '7':
			n := i
			for n < len(s) && n < i+2 && s[n] >= '0' && s[n] <= '7' {
				n++
			}
			v, _ := strconv.ParseUint(s[i-1:n], 8, 32) // at most three octal digits
			b.WriteRune(rune(v))
			i = n
		case c == 'x' || c == 'u' || c == 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+n > len(s) {
				return "", escapeError("truncated \\" + string(c) + " escape in a string")
			}
			v, err := strconv.ParseUint(s[i:i+n], 16, 32)
			if err != nil || v > utf8.MaxRune {
				return "", escapeError("malformed escape \\" + string(c) + s[i:i+n])
			}
			b.WriteRune(rune(v)) // a lone surrogate becomes U+FFFD
			i += n
		case c == 'N':
			return "", escapeError(`\N{...} escapes are not supported; write the character itself`)
		case c >= utf8.RuneSelf:
			// Jinja2 spells the character as an escape first, which the
			// backslash then protects.
			r, size := utf8.DecodeRuneInString(s[i-1:])
			b.WriteString(asciiEscape(r))
			i += size - 1
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

func asciiEscape(r rune) string {
	switch {
	case r < 0x100:
		return sprintf(`\x%02x`, r)
	case r < 0x10000:
		return sprintf(`\u%04x`, r)
	}
	return sprintf(`\U%08x`, r)
}
