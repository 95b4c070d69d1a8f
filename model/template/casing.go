package template

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// upper is Python's s.upper(), with its special cases ("ß" becomes "SS").
func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

func capitalize(s string) string {
	n := runeOffset(s, 1)
	return titleRune(s[:n]) + lower(s[n:])
}

// titleRune puts one character in title case.
func titleRune(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Title(language.Und, cases.NoLower).String(s)
}

func isCasedRune(r rune) bool { return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) }

// titleCase is Python's s.title(): a word starts behind what has no case.
func titleCase(s string) string {
	var b strings.Builder
	inWord := false
	for len(s) > 0 {
		n := runeOffset(s, 1)
		if inWord {
			b.WriteString(lower(s[:n]))
		} else {
			b.WriteString(titleRune(s[:n]))
		}
		for _, r := range s[:n] {
			inWord = isCasedRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

func swapCase(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		n := runeOffset(s, 1)
		c := s[:n]
		for _, r := range c {
			if unicode.IsUpper(r) {
				b.WriteString(lower(c))
			} else {
				b.WriteString(upper(c))
			}
		}
		s = s[n:]
	}
	return b.String()
}

// isCased is s.islower() or s.isupper(): there is a letter of the case and
// none of another.
func isCased(s string, isCase func(rune) bool) bool {
	found := false
	for _, r := range s {
		if isCase(r) {
			found = true
		} else if isCasedRune(r) {
			return false
		}
	}
	return found
}

// isTitleCase is s.istitle().
func isTitleCase(s string) bool {
	found, inWord := false, false
	for _, r := range s {
		switch {
		case unicode.IsUpper(r) || unicode.IsTitle(r):
			if inWord {
				return false
			}
			found, inWord = true, true
		case unicode.IsLower(r):
			if !inWord {
				return false
			}
		default:
			inWord = false
		}
	}
	return found
}

// caseMethod returns the methods of str about characters and their case.
func caseMethod(name string) (textMethod, bool) {
	convert := func(fn func(string) string) (textMethod, bool) {
		return textMethod{fn: func(r *render, s string, _ []any) (any, error) {
			if err := r.makeString(len(s)); err != nil {
				return nil, err
			}
			return fn(s), nil
		}}, true
	}
	test := func(fn func(s string) bool) (textMethod, bool) {
		return textMethod{fn: func(_ *render, s string, _ []any) (any, error) { return fn(s), nil }}, true
	}
	all := func(fn func(r rune) bool) (textMethod, bool) {
		return test(func(s string) bool {
			return s != "" && strings.IndexFunc(s, func(r rune) bool { return !fn(r) }) < 0
		})
	}
	switch name {
	case "upper":
		return convert(upper)
	case "lower", "casefold":
		return convert(lower)
	case "capitalize":
		return convert(capitalize)
	case "title":
		return convert(titleCase)
	case "swapcase":
		return convert(swapCase)
	case "islower":
		return test(func(s string) bool { return isCased(s, unicode.IsLower) })
	case "isupper":
		return test(func(s string) bool { return isCased(s, unicode.IsUpper) })
	case "istitle":
		return test(isTitleCase)
	case "isascii":
		return test(isASCII)
	case "isspace":
		return all(isSpace)
	case "isalpha":
		return all(unicode.IsLetter)
	case "isalnum":
		return all(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
	case "isdigit", "isdecimal":
		return all(unicode.IsDigit)
	case "isnumeric":
		return all(unicode.IsNumber)
	case "isprintable":
		return test(func(s string) bool {
			return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
		})
	case "isidentifier":
		return test(isIdentifier)
	}
	return textMethod{}, false
}

func isIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r) && !unicode.IsMark(r)) {
			return false
		}
	}
	return s != ""
}
