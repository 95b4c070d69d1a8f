package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// unicodeForm is NFC, NFD, NFKC or NFKD, as of the version the reference has.
func unicodeForm(form norm.Form) textFunc {
	return func(s string) string {
		switch {
		case form.IsNormalString(s):
			return s
		case longMarks(s):
			return normalizeLong(form, s)
		case form == norm.NFC || form == norm.NFD:
			return form.String(s)
		}
		var b strings.Builder
		from := 0
		for at, r := range s {
			if r >= 0x32FF && inRanges(r, undecomposed) {
				b.WriteString(form.String(s[from:at]))
				b.WriteRune(r)
				from = at + utf8.RuneLen(r)
			}
		}
		b.WriteString(form.String(s[from:]))
		return b.String()
	}
}

// manyMarks is a run of marks near the 30 after which x/text breaks a run with U+034F, for streams. The reference
// breaks none.
const manyMarks = 20

func longMarks(s string) bool {
	n := 0
	for _, r := range s {
		if r < 0x300 || !isMark(r) {
			n = 0
		} else if n++; n > manyMarks {
			return true
		}
	}
	return false
}

// normalizeLong normalizes by the definition (Unicode, chapter 3.11): decompose, order the marks, compose.
func normalizeLong(form norm.Form, s string) string {
	decompose := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		decompose = norm.NFKD
	}
	var text []combining
	for _, r := range s {
		parts := string(r)
		if decompose == norm.NFD || !inRanges(r, undecomposed) {
			parts = decompose.String(parts)
		}
		for _, part := range parts {
			text = append(text, combining{part, norm.NFD.PropertiesString(string(part)).CCC()})
		}
	}
	for from := 0; from < len(text); {
		to := from + 1
		for text[from].class != 0 && to < len(text) && text[to].class != 0 {
			to++
		}
		slices.SortStableFunc(text[from:to], func(a, b combining) int { return int(a.class) - int(b.class) })
		from = to
	}
	if form == norm.NFC || form == norm.NFKC {
		text = compose(text)
	}
	var b strings.Builder
	for _, c := range text {
		b.WriteRune(c.r)
	}
	return b.String()
}

// combining is a character and its canonical combining class.
type combining struct {
	r     rune
	class uint8
}

// compose joins every character with the last starter, unless one of its own class or higher stands between.
func compose(text []combining) []combining {
	out := text[:0]
	starter := -1
	for _, c := range text {
		if starter >= 0 {
			last := out[len(out)-1]
			if adjacent := len(out)-1 == starter; adjacent || last.class != 0 && last.class < c.class {
				joined := norm.NFC.String(string(out[starter].r) + string(c.r))
				if r, size := utf8.DecodeRuneInString(joined); size == len(joined) && (c.class != 0 || adjacent) {
					out[starter].r = r
					continue
				}
			}
		}
		if c.class == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	return out
}
