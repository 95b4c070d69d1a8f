package mathverify

import (
	"slices"
	"strings"
)

// extract finds the final answer in a text, in the order the package comment gives.
func (v *Verifier) extract(text string, lastNumber bool) (string, bool) {
	if at := strings.LastIndex(text, "</think>"); at >= 0 {
		text = text[at+len("</think>"):]
	} else if strings.Contains(text, "<think>") {
		return "", false
	}
	text = ending(text)
	if boxes := boxed(text); len(boxes) > 0 {
		return boxes[len(boxes)-1], true
	}
	if at := strings.LastIndex(text, "####"); at >= 0 {
		line, _, _ := strings.Cut(strings.TrimSpace(text[at+4:]), "\n")
		return trim(line), trim(line) != ""
	}
	if at := strings.LastIndex(text, "<answer>"); at >= 0 {
		inner, _, _ := strings.Cut(text[at+len("<answer>"):], "</answer>")
		return v.within(inner), trim(inner) != ""
	}
	if after, ok := v.afterMarker(text); ok {
		if answer := v.within(after); answer != "" {
			return answer, true
		}
	}
	if whole := trim(text); len(whole) <= 200 && whole != "" {
		if _, isWord := v.wordOf(whole); isWord || len(v.readings(whole)) > 0 {
			return whole, true
		}
	}
	if all := formulas(text); len(all) > 0 {
		return all[len(all)-1], true
	}
	if lastNumber {
		if all := v.numbers(text); len(all) > 0 {
			return all[len(all)-1], true
		}
	}
	return "", false
}

// ending is the last 64 KiB of a text, which bounds the work of looking through it.
func ending(text string) string {
	return text[max(0, len(text)-64<<10):]
}

// within is the answer in a short passage: all of it if it can be read, else its first
// formula, else its first number, else its words.
func (v *Verifier) within(passage string) string {
	passage = trim(passage)
	if boxes := boxed(passage); len(boxes) > 0 {
		return boxes[len(boxes)-1]
	}
	if len(v.readings(passage)) > 0 {
		return passage
	}
	if all := formulas(passage); len(all) > 0 {
		return all[0]
	}
	if all := v.numbers(passage); len(all) > 0 {
		return all[0]
	}
	return passage
}

// afterMarker is the rest of the sentence behind the last "answer is" or "answer:".
func (v *Verifier) afterMarker(text string) (string, bool) {
	all := v.marker.FindAllStringIndex(text, -1)
	if len(all) == 0 {
		return "", false
	}
	rest := strings.TrimLeft(text[all[len(all)-1][1]:], " \t\r\n*")
	if strings.HasPrefix(rest, `\[`) || strings.HasPrefix(rest, "$$") { // displayed over several lines
		return rest, true
	}
	rest, _, _ = strings.Cut(rest, "\n")
	for _, end := range []string{". ", ".\t"} {
		rest, _, _ = strings.Cut(rest, end)
	}
	return rest, trim(rest) != ""
}

// trim drops what surrounds an answer: white space, emphasis, quotes, a full stop.
func trim(text string) string {
	for {
		before := text
		text = strings.TrimSpace(text)
		text = strings.TrimRight(strings.Trim(text, "`*\""), ".;,:")
		if inner, ok := unwrapFormula(text); ok {
			text = inner
		}
		if text == before {
			return text
		}
	}
}

// unwrapFormula takes the delimiters off a text that is one formula.
func unwrapFormula(text string) (string, bool) {
	for _, d := range delimiters() {
		inner, ok := strings.CutPrefix(text, d[0])
		if !ok {
			continue
		}
		inner, ok = strings.CutSuffix(inner, d[1])
		if ok && inner != "" && !strings.Contains(inner, d[0]) && !strings.Contains(inner, d[1]) {
			return inner, true
		}
	}
	return text, false
}

func delimiters() [][2]string {
	return [][2]string{{"$$", "$$"}, {"$", "$"}, {`\(`, `\)`}, {`\[`, `\]`}}
}

// formulas are what stands between LaTeX delimiters, in order.
func formulas(text string) []string {
	var all []string
	for i := 0; i < len(text); {
		mark, end := "", -1
		for _, d := range delimiters() {
			if strings.HasPrefix(text[i:], d[0]) {
				mark, end = d[0], closing(text[i+len(d[0]):], d[1])
				break
			}
		}
		switch {
		case end >= 0:
			i += len(mark)
			if inner := strings.TrimSpace(text[i : i+end]); inner != "" {
				all = append(all, inner)
			}
			i += end + len(mark)
		case mark != "":
			i += len(mark)
		case text[i] == '\\':
			i += 2
		default:
			i++
		}
	}
	return all
}

// closing finds the mark that ends a formula. A dollar sign before a digit is money, and so is one
// with a space on its inner side unless the formula began with a space too.
// A formula has at most maxBytes.
func closing(text, mark string) int {
	text = text[:min(len(text), maxBytes)]
	if mark != "$" {
		return unescaped(text, mark)
	}
	spaced := func(c byte) bool { return c == ' ' || c == '\n' }
	for from := 0; ; {
		at := unescaped(text[from:], mark)
		if at < 0 {
			return -1
		}
		at += from
		money := at+1 < len(text) && digit(text[at+1]) || at > 0 && spaced(text[at-1]) != spaced(text[0])
		if !money {
			return at
		}
		from = at + 1
	}
}

// unescaped finds mark where no backslash stands before it.
func unescaped(text, mark string) int {
	for from := 0; ; {
		at := strings.Index(text[from:], mark)
		if at < 0 {
			return -1
		}
		if at += from; at == 0 || text[at-1] != '\\' {
			return at
		}
		from = at + 1
	}
}

// boxed are the contents of the last 32 \boxed{} and \fbox{} of a text, in order.
func boxed(text string) []string {
	var all []string
	for end := len(text); end > 0 && len(all) < 32; {
		at := strings.LastIndex(text[:end], "box")
		if at < 0 {
			break
		}
		end = at
		before, after := text[:at], text[at+3:]
		inner, ok := "", false
		switch {
		case strings.HasSuffix(before, `\f`):
			inner, ok = braced(strings.TrimLeft(after, " "))
		case strings.HasSuffix(before, `\`) && strings.HasPrefix(after, "ed"):
			inner, ok = braced(strings.TrimLeft(after[2:], " "))
		}
		if ok {
			all = append(all, strings.TrimSpace(inner))
		}
	}
	slices.Reverse(all)
	return all
}

// braced is the content of the balanced braces that text begins with.
func braced(text string) (string, bool) {
	if !strings.HasPrefix(text, "{") {
		return "", false
	}
	depth := 0
	for i := 0; i < len(text) && i <= maxBytes; i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[1:i], true
			}
		}
	}
	return "", false
}

// numbers are the numbers of a text, with sign, groups of three, fraction or percent.
func (v *Verifier) numbers(text string) []string {
	var all []string
	for _, m := range v.numeral.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.TrimSpace(m[1]))
	}
	return all
}
