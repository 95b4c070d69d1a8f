package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Protected text travels through a chat template as ordinary characters. Two noncharacters make a mark: breakMark
// forbids a special token to span the place, escapeMark is a noncharacter that the user wrote himself. Encode removes
// both, so the ids are those of the text as the user wrote it.
const (
	sentinel   = "\uFDD0"
	breakMark  = sentinel + "\uFDD1"
	escapeMark = sentinel + "\uFDD2"
)

// Protect returns userText with a private mark inside every occurrence of a special token, so that Encode of a
// rendered template does not take what a user wrote for a control token. A text that ends like the beginning of a
// special token, or begins like the end of one, gets a mark there too: two protected texts side by side spell no token
// either. Encode drops the marks; marks in userText itself survive as text.
//
// The promise holds for templates that keep the text of a message together; one that deletes characters from the
// middle of it can still join what it left over.
func (t *Tokenizer) Protect(userText string) string {
	if t.normalizedSpecials && t.spellsSpecial(userText) {
		return breakEverywhere(userText)
	}
	var b strings.Builder
	if t.endsSpecial(userText) {
		b.WriteString(breakMark)
	}
	for at := 0; at < len(userText); {
		_, size := utf8.DecodeRuneInString(userText[at:])
		if char := userText[at : at+size]; char == sentinel {
			b.WriteString(escapeMark)
		} else {
			b.WriteString(char)
		}
		if t.startsSpecial(userText[at:]) {
			b.WriteString(breakMark)
			if t.isSpecialText(userText[at : at+size]) {
				b.WriteString(breakMark) // a single character has no inside: two marks behind it
			}
		}
		at += size
	}
	if b.Len() == len(userText) {
		return userText
	}
	return b.String()
}

// breakEverywhere puts a mark after every character.
func breakEverywhere(s string) string {
	var b strings.Builder
	b.WriteString(breakMark)
	for at := 0; at < len(s); {
		_, size := utf8.DecodeRuneInString(s[at:])
		if char := s[at : at+size]; char == sentinel {
			b.WriteString(escapeMark)
		} else {
			b.WriteString(char)
		}
		b.WriteString(breakMark + breakMark)
		at += size
	}
	return b.String()
}

func (t *Tokenizer) isSpecialText(s string) bool {
	id, ok := t.vocab.id(s)
	return ok && t.IsSpecial(id)
}

// startsSpecial reports whether a special token, or the rest of s as a part of one, stands at the start of s.
func (t *Tokenizer) startsSpecial(s string) bool {
	m := t.specials
	if !m.starts[s[0]] {
		return false
	}
	node := int32(0)
	for i := 0; i < len(s); i++ {
		child, ok := m.next[uint64(node)<<8|uint64(s[i])]
		if !ok {
			return false
		}
		if node = child; m.ends[node] != dead {
			return true
		}
	}
	return true
}

// endsSpecial reports whether s begins with the end of a special token.
func (t *Tokenizer) endsSpecial(s string) bool {
	for i := range t.specials.tokens {
		content := t.specials.tokens[i].content
		for at := 1; at < len(content); at++ {
			if utf8.RuneStart(content[at]) && (strings.HasPrefix(s, content[at:]) || s != "" && strings.HasPrefix(content[at:], s)) {
				return true
			}
		}
	}
	return false
}

// spellsSpecial reports whether s holds a special token once it is normalized.
func (t *Tokenizer) spellsSpecial(s string) bool {
	n, err := t.normalizer.normalize(s)
	if err != nil {
		return true
	}
	for at := range n {
		if t.startsSpecial(n[at:]) {
			return true
		}
	}
	return t.endsSpecial(n)
}

// unprotect removes the marks of Protect and returns the places where no special token may span.
func unprotect(s string) (text string, breaks []int) {
	if !strings.Contains(s, sentinel) {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for s != "" {
		at := strings.Index(s, sentinel)
		if at < 0 {
			b = append(b, s...)
			break
		}
		b, s = append(b, s[:at]...), s[at:]
		switch {
		case strings.HasPrefix(s, breakMark):
			breaks = append(breaks, len(b))
			s = s[len(breakMark):]
		case strings.HasPrefix(s, escapeMark):
			b, s = append(b, sentinel...), s[len(escapeMark):]
		default:
			b, s = append(b, sentinel...), s[len(sentinel):]
		}
	}
	return string(b), breaks
}
