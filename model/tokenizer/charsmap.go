package tokenizer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// charsmap is SentencePiece's precompiled normalization table: a double-array trie from byte strings to offsets into
// a blob of zero-terminated replacements. Layout of the blob: uint32 trie bytes, trie (uint32 units), replacements.
type charsmap struct {
	trie    []uint32
	text    []byte
	longest bool // longest match at every byte, as SentencePiece and llama.cpp; else by grapheme, as Hugging Face
}

func newCharsmap(blob []byte, longest bool) (*charsmap, error) {
	if len(blob) < 4 {
		return nil, fmt.Errorf("tokenizer: precompiled charsmap: %d bytes, want at least 4", len(blob))
	}
	size := uint64(binary.LittleEndian.Uint32(blob))
	if size%4 != 0 || size == 0 || size > uint64(len(blob)-4) {
		return nil, fmt.Errorf("tokenizer: precompiled charsmap: trie of %d bytes in a blob of %d", size, len(blob))
	}
	c := &charsmap{trie: make([]uint32, size/4), text: blob[4+size:], longest: longest}
	for i := range c.trie {
		c.trie[i] = binary.LittleEndian.Uint32(blob[4+4*i:])
	}
	return c, nil
}

// lookup returns the replacement of a prefix of s and that prefix's length: the longest or the shortest known one.
func (c *charsmap) lookup(s string) (replacement []byte, n int, ok bool) {
	offset := func(unit uint32) uint32 { return (unit >> 10) << ((unit & 0x200) >> 6) }
	node := offset(c.trie[0])
	for i := 0; i < len(s) && s[i] != 0; i++ {
		node ^= uint32(s[i])
		if uint64(node) >= uint64(len(c.trie)) {
			break
		}
		unit := c.trie[node]
		if unit&0x800000FF != uint32(s[i]) {
			break
		}
		node ^= offset(unit)
		if unit>>8&1 == 0 || uint64(node) >= uint64(len(c.trie)) {
			continue
		}
		if at := uint64(c.trie[node] & 0x7FFFFFFF); at < uint64(len(c.text)) {
			replacement, n, ok = c.text[at:], i+1, true
			if !c.longest {
				break
			}
		}
	}
	if end := bytes.IndexByte(replacement, 0); end >= 0 {
		replacement = replacement[:end]
	}
	return replacement, n, ok
}

func (c *charsmap) normalize(s string) (string, error) {
	out := make([]byte, 0, len(s))
	for len(s) > 0 {
		if c.longest {
			replacement, n, ok := c.lookup(s)
			if !ok {
				_, n = utf8.DecodeRuneInString(s)
				replacement = []byte(s[:n])
			}
			out, s = append(out, replacement...), s[n:]
			continue
		}
		cluster := s[:clusterLen(s)]
		s = s[len(cluster):]
		if replacement, _, ok := c.lookup(cluster); ok && len(cluster) < 6 {
			out = append(out, replacement...)
			continue
		}
		for len(cluster) > 0 {
			_, n := utf8.DecodeRuneInString(cluster)
			if replacement, _, ok := c.lookup(cluster[:n]); ok {
				out = append(out, replacement...)
			} else {
				out = append(out, cluster[:n]...)
			}
			cluster = cluster[n:]
		}
	}
	return string(out), nil
}

// clusterLen returns the length of the grapheme at the start of s: a rune and the marks and joiners after it, or CR LF.
// The table is only asked about graphemes under six bytes, where this is the whole of the rule that matters.
func clusterLen(s string) int {
	if len(s) > 1 && s[0] == '\r' && s[1] == '\n' {
		return 2
	}
	r, n := utf8.DecodeRuneInString(s)
	if r < ' ' {
		return n
	}
	return n + run(s[n:], func(r rune) bool { return isMark(r) || r == 0x200C || r == 0x200D })
}
