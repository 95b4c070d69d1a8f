package tokenizer

import "unicode/utf8"

// A scanner returns the length of the match of its pattern at the start of s, which is not empty; 0 means no match.
// Scanners are the known pre-tokenizer patterns written by hand: several times faster than a backtracking engine, and
// bound to the shipped Unicode tables.
type scanner func(s string) int

// The patterns the scanners stand for, as they are spelled in published tokenizer.json files.
const (
	gpt2Pattern       = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	gpt2ShortPattern  = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llama3Pattern     = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Pattern      = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen35Pattern     = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	deepseekPattern   = `[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_` + "`" + `{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	deepseekEscaped   = `[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_` + "`" + `{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	tekkenPattern     = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gpt4oPattern      = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gpt4oShortPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'(?i:[sdmt]|ll|ve|re))?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'(?i:[sdmt]|ll|ve|re))?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	kanaPattern       = `[一-龥぀-ゟ゠-ヿ]+`
	digits3Pattern    = `\p{N}{1,3}`
	digitPattern      = `\p{N}`
	digitsPattern     = `\p{N}+`
	ascii3Pattern     = `[0-9][0-9][0-9]`
	falconPattern     = `[\p{P}\$\+<=>\^~\|` + "`" + `]+`
	defaultPattern    = `[\p{P}\$\+<=>\^~\|]+`
)

// scannerFor returns the scanner of a pattern, and false when the pattern is not one of the known ones.
func scannerFor(pattern string) (scanner, bool) {
	switch pattern {
	case gpt2Pattern, gpt2ShortPattern:
		return scanGPT2, true
	case llama3Pattern:
		return func(s string) int { return scanLlama3(s, 3, isLetter) }, true
	case qwen2Pattern:
		return func(s string) int { return scanLlama3(s, 1, isLetter) }, true
	case qwen35Pattern:
		return func(s string) int { return scanLlama3(s, 1, isLetterOrMark) }, true
	case tekkenPattern:
		return func(s string) int { return scanCased(s, 1, false) }, true
	case gpt4oPattern, gpt4oShortPattern:
		return func(s string) int { return scanCased(s, 3, true) }, true
	case deepseekPattern, deepseekEscaped:
		return scanDeepSeek, true
	case kanaPattern:
		return func(s string) int { return run(s, isKana) }, true
	case digits3Pattern:
		return func(s string) int { return runAtMost(s, 3, isNumber) }, true
	case digitPattern:
		return func(s string) int { return runAtMost(s, 1, isNumber) }, true
	case digitsPattern:
		return func(s string) int { return run(s, isNumber) }, true
	case ascii3Pattern:
		return scanASCII3, true
	case falconPattern:
		return func(s string) int { return run(s, func(r rune) bool { return r == '`' || isDefaultPunct(r) }) }, true
	case defaultPattern:
		return func(s string) int { return run(s, isDefaultPunct) }, true
	}
	return nil, false
}

func isLetterOrMark(r rune) bool { return isLetter(r) || isMark(r) }

// isKana reports the class of DeepSeek's second split: ideographs, hiragana, katakana.
func isKana(r rune) bool {
	return 0x4E00 <= r && r <= 0x9FA5 || 0x3040 <= r && r <= 0x30FF
}

func isDefaultPunct(r rune) bool {
	switch r {
	case '$', '+', '<', '=', '>', '^', '~', '|':
		return true
	}
	return isPunct(r)
}

// run returns the length of the longest prefix of s whose runes all satisfy in.
func run(s string, in func(rune) bool) int {
	for at, r := range s {
		if !in(r) {
			return at
		}
	}
	return len(s)
}

// runAtMost is run, stopped after n runes.
func runAtMost(s string, n int, in func(rune) bool) int {
	for at, r := range s {
		if n == 0 || !in(r) {
			return at
		}
		n--
	}
	return len(s)
}

// contraction matches 's 't 're 've 'm 'll 'd; with fold in any case, where s also folds with U+017F.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	a := s[1]
	var b byte
	if len(s) > 2 {
		b = s[2]
	}
	if fold {
		if a == 0xC5 && b == 0xBF {
			return 3
		}
		a, b = lowerASCII(a), lowerASCII(b)
	}
	switch a {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if b == 'e' {
			return 3
		}
	case 'l':
		if b == 'l' {
			return 3
		}
	}
	return 0
}

func lowerASCII(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b | 0x20
	}
	return b
}

// spaces matches \s+(?!\S)|\s+ : a run of white space without its last character when something follows it.
func spaces(s string) int {
	end, last := 0, 0
	for at, r := range s {
		if !isSpace(r) {
			if last > 0 {
				return last
			}
			return end
		}
		last, end = at, at+utf8.RuneLen(r)
	}
	return end
}

// newlines matches \s*[\r\n]+ : white space up to its last line end.
func newlines(s string) int {
	end := 0
	for at, r := range s {
		if !isSpace(r) {
			break
		}
		if r == '\r' || r == '\n' {
			end = at + 1
		}
	}
	return end
}

// scanGPT2 matches gpt2Pattern.
func scanGPT2(s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	lead := 0
	if s[0] == ' ' {
		lead = 1
	}
	r, _ := utf8.DecodeRuneInString(s[lead:])
	switch {
	case lead == len(s) || isSpace(r):
		return spaces(s)
	case isLetter(r):
		return lead + run(s[lead:], isLetter)
	case isNumber(r):
		return lead + run(s[lead:], isNumber)
	}
	return lead + run(s[lead:], isOther)
}

// isOther reports [^\s\p{L}\p{N}].
func isOther(r rune) bool { return !isSpace(r) && !isLetter(r) && !isNumber(r) }

// scanLlama3 matches llama3Pattern, qwen2Pattern (one digit) or qwen35Pattern (one digit, marks are letters).
func scanLlama3(s string, digits int, letter func(rune) bool) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	r, size := utf8.DecodeRuneInString(s)
	if letter(r) {
		return run(s, letter)
	}
	if isNumber(r) {
		return runAtMost(s, digits, isNumber)
	}
	if r != '\r' && r != '\n' {
		if n := run(s[size:], letter); n > 0 {
			return size + n
		}
	}
	lead := 0
	if r == ' ' {
		lead = 1
	}
	if n := run(s[lead:], func(r rune) bool { return isOther(r) && !letter(r) }); n > 0 {
		n += lead
		return n + run(s[n:], isLineEnd)
	}
	if n := newlines(s); n > 0 {
		return n
	}
	return spaces(s)
}

func isLineEnd(r rune) bool { return r == '\r' || r == '\n' }

// scanDeepSeek matches deepseekPattern. Control characters and numbers may match nothing.
func scanDeepSeek(s string) int {
	r, size := utf8.DecodeRuneInString(s)
	if isASCIIPunct(r) {
		if n := run(s[1:], func(r rune) bool { return 'a' <= r|0x20 && r|0x20 <= 'z' }); n > 0 {
			return 1 + n
		}
	}
	if isLetterOrMark(r) {
		return run(s, isLetterOrMark)
	}
	if !isLineEnd(r) && !isPunctOrSymbol(r) {
		if n := run(s[size:], isLetterOrMark); n > 0 {
			return size + n
		}
	}
	lead := 0
	if r == ' ' {
		lead = 1
	}
	if n := run(s[lead:], isPunctOrSymbol); n > 0 {
		n += lead
		return n + run(s[n:], isLineEnd)
	}
	if n := newlines(s); n > 0 {
		return n
	}
	return spaces(s)
}

func isPunctOrSymbol(r rune) bool { return isPunct(r) || isSymbol(r) }

func scanASCII3(s string) int {
	if len(s) < 3 || runAtMost(s, 3, func(r rune) bool { return '0' <= r && r <= '9' }) < 3 {
		return 0
	}
	return 3
}

// isUpperPart and isLowerPart are the two classes of the GPT-4o pattern; modifier and other letters are in both.
func isUpperPart(r rune) bool {
	c := categoryOf(r)
	return c == catLu || c == catLt || c == catLm || c == catLo || isMark(r)
}

func isLowerPart(r rune) bool {
	c := categoryOf(r)
	return c == catLl || c == catLm || c == catLo || isMark(r)
}

// scanCased matches gpt4oPattern (with contractions) or tekkenPattern (without).
func scanCased(s string, digits int, contractions bool) int {
	r, size := utf8.DecodeRuneInString(s)
	starts := []int{0}
	if !isLetter(r) && !isNumber(r) && !isLineEnd(r) {
		starts = []int{size, 0}
	}
	for _, word := range []func(string) int{lowerWord, upperWord} {
		for _, lead := range starts {
			if n := word(s[lead:]); n > 0 {
				n += lead
				if contractions {
					n += contraction(s[n:], true)
				}
				return n
			}
		}
	}
	if isNumber(r) {
		return runAtMost(s, digits, isNumber)
	}
	lead := 0
	if r == ' ' {
		lead = 1
	}
	if n := run(s[lead:], isOther); n > 0 {
		n += lead
		return n + run(s[n:], func(r rune) bool { return isLineEnd(r) || r == '/' })
	}
	if n := newlines(s); n > 0 {
		return n
	}
	return spaces(s)
}

// lowerWord matches upper* lower+, giving back upper characters that are lower ones too until the rest matches.
func lowerWord(s string) int {
	upper, shared := 0, 0 // end of the upper run, end of its last character that is in both classes
	for at, r := range s {
		if !isUpperPart(r) {
			break
		}
		upper = at + utf8.RuneLen(r)
		if isLowerPart(r) {
			shared = upper
		}
	}
	if n := run(s[upper:], isLowerPart); n > 0 {
		return upper + n
	}
	return shared
}

// upperWord matches upper+ lower*.
func upperWord(s string) int {
	n := run(s, isUpperPart)
	if n == 0 {
		return 0
	}
	return n + run(s[n:], isLowerPart)
}
