package tokenizer

import (
	"math"
	"unicode/utf8"
)

// A model turns one word into tokens, appended to dst.
type model interface {
	tokenize(dst []int32, word string, s *scratch) []int32
}

// bpe is byte pair encoding: starting from characters or bytes, the adjacent pair whose merge has the lowest rank is
// merged, leftmost first, until no merge applies (Sennrich et al. 2016, arXiv:1508.07909).
type bpe struct {
	vocab        *vocabulary
	merges       *mergeTable
	bytes        bool       // symbols are bytes of the word, through byteIDs
	byteIDs      [256]int32 // token of every byte: its printable character, or <0xHH>; dead when absent
	fallback     bool       // characters out of vocabulary become <0xHH> tokens
	ignoreMerges bool       // a word that is a token needs no merges
	unk          int32      // dead when absent
	fuseUnk      bool
	prefix       string // continuing_subword_prefix
	suffix       string // end_of_word_suffix
}

func (m *bpe) tokenize(dst []int32, word string, s *scratch) []int32 {
	if word == "" {
		return dst
	}
	if m.ignoreMerges {
		key := word
		if m.bytes {
			s.buf = appendByteText(s.buf[:0], word)
			key = string(s.buf)
		}
		if id, ok := m.vocab.plain(key); ok {
			return append(dst, id)
		}
	}
	s.symbols = s.symbols[:0]
	if m.bytes {
		for i := 0; i < len(word); i++ {
			if id := m.byteIDs[word[i]]; id != dead {
				s.symbols = append(s.symbols, symbol{id: id})
			} else if m.unk != dead && !(m.fuseUnk && i > 0 && m.byteIDs[word[i-1]] == dead) {
				s.symbols = append(s.symbols, symbol{id: m.unk})
			}
		}
	} else {
		m.characters(word, s)
	}
	return m.merge(dst, s)
}

// characters fills the symbols with the tokens of the word's characters.
func (m *bpe) characters(word string, s *scratch) {
	unknown := false
	flush := func() {
		if unknown {
			s.symbols = append(s.symbols, symbol{id: m.unk})
			unknown = false
		}
	}
	for at := 0; at < len(word); {
		_, size := utf8.DecodeRuneInString(word[at:])
		char := word[at : at+size]
		key := char
		if at > 0 {
			key = m.prefix + key
		}
		at += size
		if at == len(word) {
			key += m.suffix
		}
		if id, ok := m.vocab.plain(key); ok {
			flush()
			s.symbols = append(s.symbols, symbol{id: id})
			continue
		}
		if m.fallback && m.appendBytes(key, s) {
			continue
		}
		if m.unk != dead {
			if !m.fuseUnk {
				flush()
			}
			unknown = true
		}
	}
	flush()
}

// appendBytes appends the byte tokens of a character, unless one is missing from the vocabulary.
func (m *bpe) appendBytes(char string, s *scratch) bool {
	for i := 0; i < len(char); i++ {
		if m.byteIDs[char[i]] == dead {
			return false
		}
	}
	for i := 0; i < len(char); i++ {
		s.symbols = append(s.symbols, symbol{id: m.byteIDs[char[i]]})
	}
	return true
}

// shortWord is the length up to which looking at every pair after every merge beats a heap.
const shortWord = 48

func (m *bpe) merge(dst []int32, s *scratch) []int32 {
	if len(s.symbols) > shortWord {
		return m.mergeLong(dst, s)
	}
	const none = math.MaxUint32
	rank := func(i int) uint32 {
		if r, _, ok := m.merges.get(s.symbols[i].id, s.symbols[i+1].id); ok {
			return r
		}
		return none
	}
	s.ranks = s.ranks[:0]
	for i := 0; i+1 < len(s.symbols); i++ {
		s.ranks = append(s.ranks, rank(i))
	}
	for len(s.ranks) > 0 {
		best := 0
		for i, r := range s.ranks {
			if r < s.ranks[best] {
				best = i
			}
		}
		if s.ranks[best] == none {
			break
		}
		_, id, _ := m.merges.get(s.symbols[best].id, s.symbols[best+1].id)
		s.symbols[best].id = id
		s.symbols = append(s.symbols[:best+1], s.symbols[best+2:]...)
		s.ranks = append(s.ranks[:best], s.ranks[best+1:]...)
		if best > 0 {
			s.ranks[best-1] = rank(best - 1)
		}
		if best < len(s.ranks) {
			s.ranks[best] = rank(best)
		}
	}
	for _, sym := range s.symbols {
		dst = append(dst, sym.id)
	}
	return dst
}

// mergeLong is merge with a heap: n log n in the length of the word.
func (m *bpe) mergeLong(dst []int32, s *scratch) []int32 {
	symbols := s.symbols
	link(symbols)
	s.queue = s.queue[:0]
	offer := func(pos int32) {
		if pos < 0 || symbols[pos].next < 0 {
			return
		}
		if rank, id, ok := m.merges.get(symbols[pos].id, symbols[symbols[pos].next].id); ok {
			s.queue.push(candidate{rank: rank, pos: pos, id: id})
		}
	}
	for i := range symbols {
		offer(int32(i))
	}
	for len(s.queue) > 0 {
		top := s.queue.pop()
		left := &symbols[top.pos]
		if left.id == dead || left.next < 0 {
			continue
		}
		if _, id, ok := m.merges.get(left.id, symbols[left.next].id); !ok || id != top.id {
			continue // one of the two has changed since
		}
		prev, _ := join(symbols, top.pos)
		left.id = top.id
		offer(prev)
		offer(top.pos)
	}
	for i := int32(0); i >= 0 && len(symbols) > 0; i = symbols[i].next {
		dst = append(dst, symbols[i].id)
	}
	return dst
}
