package tokenizer

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A normalizer rewrites text before it is cut into words.
type normalizer interface {
	normalize(s string) (string, error)
}

// textFunc is a normalizer that cannot fail.
type textFunc func(string) string

func (f textFunc) normalize(s string) (string, error) { return f(s), nil }

// sequenceNormalizer applies normalizers one after another.
type sequenceNormalizer []normalizer

func (seq sequenceNormalizer) normalize(s string) (string, error) {
	var err error
	for _, n := range seq {
		if s, err = n.normalize(s); err != nil {
			return "", err
		}
	}
	return s, nil
}

func prepend(prefix string) textFunc {
	return func(s string) string {
		if s == "" {
			return s
		}
		return prefix + s
	}
}

// replacer replaces every match of a pattern by fixed text.
type replacer struct {
	find    finder
	content string
}

func (r replacer) normalize(s string) (string, error) {
	if l, ok := r.find.(literal); ok && l != "" {
		return strings.ReplaceAll(s, string(l), r.content), nil
	}
	var b strings.Builder
	err := r.find.find(s, func(start, end int, match bool) {
		if match {
			b.WriteString(r.content)
		} else {
			b.WriteString(s[start:end])
		}
	})
	return b.String(), err
}

func stripSpace(left, right bool) textFunc {
	return func(s string) string {
		if left {
			s = strings.TrimLeftFunc(s, isSpace)
		}
		if right {
			s = strings.TrimRightFunc(s, isSpace)
		}
		return s
	}
}

func lowercase(s string) string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = appendLower(b, r)
	}
	return string(b)
}

// stripMarks removes what in selects; the StripAccents normalizer removes \p{M}, BERT's only Mn.
func stripMarks(in func(rune) bool) textFunc {
	return func(s string) string {
		return strings.Map(func(r rune) rune {
			if in(r) {
				return -1
			}
			return r
		}, s)
	}
}

func isNonspacing(r rune) bool { return categoryOf(r) == catMn }

// bertNormalizer is the normalizer of BERT: cleaning, spaces around ideographs, accents off, lower case.
type bertNormalizer struct{ clean, han, accents, lower bool }

func (n bertNormalizer) normalize(s string) (string, error) {
	if n.clean || n.han {
		b := make([]byte, 0, len(s))
		for _, r := range s {
			switch {
			case n.clean && (r == 0 || r == utf8.RuneError || isControl(r)):
			case n.clean && isSpace(r):
				b = append(b, ' ')
			case n.han && isHan(r):
				b = append(utf8.AppendRune(append(b, ' '), r), ' ')
			default:
				b = utf8.AppendRune(b, r)
			}
		}
		s = string(b)
	}
	if n.accents {
		s = stripMarks(isNonspacing)(unicodeForm(norm.NFD)(s))
	}
	if n.lower {
		s = lowercase(s)
	}
	return s, nil
}

// squeezeSpaces drops spaces at both ends and makes one of several: remove_extra_whitespaces of SentencePiece.
func squeezeSpaces(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' }), " ")
}
