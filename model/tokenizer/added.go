package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// addedToken is a token that is cut out of the text as a whole.
type addedToken struct {
	id         int32
	content    string
	singleWord bool // only between word boundaries
	lstrip     bool // takes white space on its left
	rstrip     bool // and on its right
	normalized bool // looked for after normalization
	special    bool
}

// matcher finds added tokens: a trie over bytes, walked from every position whose byte starts a token.
type matcher struct {
	tokens []addedToken
	next   map[uint64]int32 // node<<8 | byte → node
	ends   []int32          // by node: index of the token that ends there, or dead
	starts [256]bool
}

func newMatcher(tokens []addedToken) *matcher {
	m := &matcher{tokens: tokens, next: map[uint64]int32{}, ends: []int32{dead}}
	for i, token := range tokens {
		if token.content == "" {
			continue
		}
		node := int32(0)
		for j := 0; j < len(token.content); j++ {
			key := uint64(node)<<8 | uint64(token.content[j])
			child, ok := m.next[key]
			if !ok {
				child = int32(len(m.ends))
				m.next[key] = child
				m.ends = append(m.ends, dead)
			}
			node = child
		}
		m.ends[node] = int32(i)
		m.starts[token.content[0]] = true
	}
	return m
}

// longest returns the longest token that s starts with and accept takes.
func (m *matcher) longest(s string, accept func(*addedToken) bool) *addedToken {
	var best *addedToken
	node := int32(0)
	for i := 0; i < len(s); i++ {
		child, ok := m.next[uint64(node)<<8|uint64(s[i])]
		if !ok {
			break
		}
		node = child
		if end := m.ends[node]; end != dead && accept(&m.tokens[end]) {
			best = &m.tokens[end]
		}
	}
	return best
}

// cut calls text for the stretches between added tokens and token for every one that is found, leftmost and longest
// first. Special tokens are passed over where plain is set, or where a break lies within them.
func (m *matcher) cut(s string, plain bool, breaks []int, text func(start, end int) error, token func(id int32)) error {
	done := 0
	for at := 0; at < len(s); {
		if !m.starts[s[at]] {
			at++
			continue
		}
		for len(breaks) > 0 && breaks[0] <= at {
			breaks = breaks[1:]
		}
		found := m.longest(s[at:], func(t *addedToken) bool {
			return !t.special || !plain && !broken(t.content, breaks, at+len(t.content))
		})
		if found == nil {
			at++
			continue
		}
		start, end := at, at+len(found.content)
		at = end
		if found.singleWord && !(wordBoundary(s[:start], utf8.DecodeLastRuneInString) && wordBoundary(s[end:], utf8.DecodeRuneInString)) {
			continue
		}
		if found.lstrip {
			start = max(done, len(strings.TrimRightFunc(s[:start], isSpace)))
		}
		if found.rstrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], isSpace))
			at = end
		}
		if done < start {
			if err := text(done, start); err != nil {
				return err
			}
		}
		token(found.id)
		done = end
	}
	if done < len(s) {
		return text(done, len(s))
	}
	return nil
}

// broken reports whether breaks, which all lie behind the start of content, forbid content to be a token that ends at
// end: one lies within it, or two lie at the end of a single character, which has no within.
func broken(content string, breaks []int, end int) bool {
	if len(breaks) == 0 || breaks[0] > end {
		return false
	}
	if breaks[0] < end {
		return true
	}
	return len(breaks) > 1 && breaks[1] == end && oneRune(content)
}

func oneRune(s string) bool {
	_, size := utf8.DecodeRuneInString(s)
	return size == len(s)
}

func wordBoundary(s string, decode func(string) (rune, int)) bool {
	r, size := decode(s)
	return size == 0 || !isWord(r)
}
