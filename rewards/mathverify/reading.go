package mathverify

import (
	"regexp"
	"strings"
)

// reading is one way to understand an answer.
type reading struct {
	root *node
	unit string // what followed the number, "" if nothing
}

// readings are the ways to understand an answer, the likeliest first.
func (v *Verifier) readings(text string) []reading {
	text = trim(text)
	if text == "" || len(text) > maxBytes {
		return nil
	}
	var all []reading
	if decimal, ok := v.decimalComma(text); ok {
		if n, ok := v.parse(decimal, false); ok {
			all = append(all, reading{root: n})
		}
	}
	if quantity, unit := v.splitUnit(text); unit != "" {
		if n, ok := v.parse(quantity, false); ok {
			return append(all, reading{root: n, unit: unit})
		}
	}
	if n, ok := v.parse(text, false); ok {
		all = append(all, reading{root: n})
	} else if n, ok := v.parse(strings.TrimLeft(text, "€£¥ "), false); ok {
		all = append(all, reading{root: n})
	}
	return all
}

// decimalComma reads 3,5 as 3.5. Three digits behind the comma are thousands.
func (v *Verifier) decimalComma(text string) (string, bool) {
	m := v.comma.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return m[1] + "." + m[2], true
}

// splitUnit divides "12 cm", "12\text{ cm}", "5 dollars", "12cm^2" into number and unit.
func (v *Verifier) splitUnit(text string) (quantity, unit string) {
	for _, expression := range []*regexp.Regexp{v.unitLaTeX, v.unitPlain, v.unitShort} {
		if m := expression.FindStringSubmatch(text); m != nil {
			unit := strings.TrimSpace(m[2])
			if unit == "pi" || unit == "sqrt" || strings.HasPrefix(unit, "or ") || strings.HasPrefix(unit, "and ") {
				continue
			}
			return m[1], unit
		}
	}
	return text, ""
}

// unitName makes spellings of a unit one.
func (v *Verifier) unitName(unit string) string {
	unit = strings.ToLower(strings.TrimRight(strings.Join(strings.Fields(unit), " "), ". "))
	if name, ok := v.units[unit]; ok {
		return name
	}
	if len(unit) > 3 && strings.HasSuffix(unit, "s") && !strings.HasSuffix(unit, "ss") {
		return strings.TrimSuffix(unit, "s")
	}
	return unit
}

// wordOf is the plain form of an answer that consists of words, or of a choice letter.
func (v *Verifier) wordOf(text string) (string, bool) {
	text = trim(text)
	if len(text) > 200 {
		return "", false
	}
	if m := v.textCommand.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	text = plainWord(text)
	if !v.words.MatchString(text) {
		return "", false
	}
	return text, true
}

// plainWord drops brackets and punctuation around words, and case.
func plainWord(text string) string {
	return strings.ToLower(strings.Join(strings.Fields(strings.Trim(text, " ().,:;{}[]")), " "))
}
