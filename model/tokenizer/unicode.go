package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// category is a Unicode general category of the shipped database. Go's own tables are older than the ones the
// reference tokenizers use, and one letter of difference moves a token boundary.
type category uint8

// categoryOf returns the general category of r; a value that is no code point is unassigned.
func categoryOf(r rune) category {
	if r < 0 || r > unicode.MaxRune {
		return catCn
	}
	at := 2 * (r >> categoryShift)
	page := rune(categoryIndex[at]) | rune(categoryIndex[at+1])<<8
	return category(categoryPages[page<<categoryShift|r&(1<<categoryShift-1)] - 'A')
}

// isLetter reports \p{L}.
func isLetter(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r|0x20 && r|0x20 <= 'z'
	}
	c := categoryOf(r)
	return catLu <= c && c <= catLo
}

// isMark reports \p{M}.
func isMark(r rune) bool {
	c := categoryOf(r)
	return catMn <= c && c <= catMe
}

// isNumber reports \p{N}.
func isNumber(r rune) bool {
	if r < utf8.RuneSelf {
		return '0' <= r && r <= '9'
	}
	c := categoryOf(r)
	return catNd <= c && c <= catNo
}

// isPunct reports \p{P}.
func isPunct(r rune) bool {
	c := categoryOf(r)
	return catPc <= c && c <= catPo
}

// isSymbol reports \p{S}.
func isSymbol(r rune) bool {
	c := categoryOf(r)
	return catSm <= c && c <= catSo
}

// isASCIIPunct reports the printable ASCII characters that are neither letters nor digits.
func isASCIIPunct(r rune) bool {
	return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
}

// isSpace reports the Unicode property White_Space, which is \s in the reference patterns.
func isSpace(r rune) bool {
	switch {
	case r == ' ', '\t' <= r && r <= '\r', r == 0x85, r == 0xA0:
		return true
	case r < 0x1680:
		return false
	}
	return r == 0x1680 || 0x2000 <= r && r <= 0x200A || r == 0x2028 || r == 0x2029 || r == 0x202F || r == 0x205F || r == 0x3000
}

// isWord reports \w as Oniguruma defines it: Alphabetic, marks, decimal digits, connector punctuation.
func isWord(r rune) bool {
	switch c := categoryOf(r); {
	case catLu <= c && c <= catNl, c == catPc:
		return true
	default:
		return unicode.Is(unicode.Other_Alphabetic, r)
	}
}

// isControl reports what BERT's cleaning removes: control, format and private-use characters but tab and line ends.
func isControl(r rune) bool {
	switch r {
	case '\t', '\n', '\r':
		return false
	}
	c := categoryOf(r)
	return c == catCc || c == catCf || c == catCs || c == catCo
}

// isHan reports the CJK ideographs that BERT surrounds by spaces.
func isHan(r rune) bool {
	return 0x4E00 <= r && r <= 0x9FFF || 0x3400 <= r && r <= 0x4DBF || 0x20000 <= r && r <= 0x2A6DF ||
		0x2A700 <= r && r <= 0x2B73F || 0x2B740 <= r && r <= 0x2B81F || 0x2B920 <= r && r <= 0x2CEAF ||
		0xF900 <= r && r <= 0xFAFF || 0x2F800 <= r && r <= 0x2FA1F
}

// appendLower appends the lower-case form of r: one rune but for İ, which becomes two. The pairs that Unicode 16
// added are listed because Go's tables end at 15.
func appendLower(dst []byte, r rune) []byte {
	switch {
	case r == 'İ':
		return append(dst, "i\u0307"...)
	case r == 0x1C89 || r == 0xA7CC || r == 0xA7DA:
		r++
	case r == 0xA7CB:
		r = 0x0264
	case r == 0xA7DC:
		r = 0x019B
	case 0x10D50 <= r && r <= 0x10D65:
		r += 0x20
	default:
		r = unicode.ToLower(r)
	}
	return utf8.AppendRune(dst, r)
}
