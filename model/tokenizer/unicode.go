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

// isWord reports \w as Rust's regular expressions define it: Alphabetic, marks, decimal digits, connector punctuation,
// joiners.
func isWord(r rune) bool {
	switch c := categoryOf(r); {
	case catLu <= c && c <= catNl, c == catPc, r == 0x200C, r == 0x200D:
		return true
	default:
		return unicode.Is(unicode.Other_Alphabetic, r)
	}
}

// isDigit is the class of the Digits pre-tokenizer, whose table is one version ahead of ours.
func isDigit(r rune) bool {
	return isNumber(r) || 0x11DE0 <= r && r <= 0x11DE9 || 0x16FF4 <= r && r <= 0x16FF6
}

// isBertPunct is the punctuation of BERT: all printable ASCII but letters and digits, and \p{P} of Unicode 8, which is
// where the reference's table stands.
func isBertPunct(r rune) bool {
	if isASCIIPunct(r) || r == 0x166D || r == 0x111C9 {
		return true
	}
	return isPunct(r) && !inRanges(r, punctuationSince9)
}

func inRanges(r rune, ranges string) bool {
	low := rune(-1)
	for _, x := range ranges { // pairs: first and last
		if low < 0 {
			low = x
			continue
		}
		if low <= r && r <= x {
			return true
		}
		low = -1
	}
	return false
}

// punctuationSince9 lists, as pairs of first and last, the punctuation that came or changed after Unicode 8.
const punctuationSince9 = "" +
	"\u061D\u061D\u09FD\u09FD\u0A76\u0A76\u0C77\u0C77\u0C84\u0C84\u1B4E\u1B4F" +
	"\u1B7D\u1B7F\u2E43\u2E4F\u2E52\u2E5D\U00010D6E\U00010D6E\U00010EAD\U00010EAD\U00010F55\U00010F59" +
	"\U00010F86\U00010F89\U000113D4\U000113D5\U000113D7\U000113D8\U0001144B\U0001144F\U0001145A\U0001145B\U0001145D\U0001145D" +
	"\U00011660\U0001166C\U000116B9\U000116B9\U0001183B\U0001183B\U00011944\U00011946\U000119E2\U000119E2\U00011A3F\U00011A46" +
	"\U00011A9A\U00011A9C\U00011A9E\U00011AA2\U00011B00\U00011B09\U00011BE1\U00011BE1\U00011C41\U00011C45\U00011C70\U00011C71" +
	"\U00011EF7\U00011EF8\U00011F43\U00011F4F\U00011FFF\U00011FFF\U00012FF1\U00012FF2\U00016D6D\U00016D6F\U00016E97\U00016E9A" +
	"\U00016FE2\U00016FE2\U0001E5FF\U0001E5FF\U0001E95E\U0001E95F"

// undecomposed lists the characters whose compatibility decomposition is younger than the reference's NFKC and NFKD.
const undecomposed = "" +
	"\u32FF\u32FF\uA7F2\uA7F4\uAB69\uAB69\U00010781\U00010785\U00010787\U000107B0\U000107B2\U000107BA" +
	"\U0001CCD6\U0001CCF9\U0001E030\U0001E06D\U0001F16C\U0001F16C\U0001FBF0\U0001FBF9"

// isControl reports what BERT's cleaning removes: control, format and private-use characters but tab and line ends.
func isControl(r rune) bool {
	switch r {
	case '\t', '\n', '\r':
		return false
	}
	c := categoryOf(r)
	if c == catCf && (r == 0x890 || r == 0x891 || r == 0x8E2 || r == 0x110CD || 0x13430 <= r && r <= 0x1343F) {
		return false // younger than the reference's table
	}
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
