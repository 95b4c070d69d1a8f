package tokenizer

import (
	"math"
	"unicode/utf8"
)

// spm is SentencePiece BPE as GGUF files carry it: the adjacent pair whose text is the vocabulary's highest-scored
// piece is merged, leftmost first; characters that are no piece become byte tokens.
type spm struct {
	vocab   *vocabulary
	scores  []float32
	byteIDs [256]int32
	unk     int32
}

// scoreRank orders scores downwards as ranks upwards.
func scoreRank(score float32) uint32 {
	bits := math.Float32bits(score)
	if bits>>31 == 0 {
		bits |= 1 << 31
	} else {
		bits = ^bits
	}
	return ^bits
}

func (m *spm) tokenize(dst []int32, word string, s *scratch) []int32 {
	s.symbols, s.queue = s.symbols[:0], s.queue[:0]
	for at := 0; at < len(word); {
		_, size := utf8.DecodeRuneInString(word[at:])
		s.symbols = append(s.symbols, symbol{start: int32(at), end: int32(at + size)})
		at += size
	}
	symbols := s.symbols
	link(symbols)
	offer := func(pos int32) {
		if pos < 0 || symbols[pos].next < 0 {
			return
		}
		start, end := symbols[pos].start, symbols[symbols[pos].next].end
		if int(end-start) > m.vocab.longest {
			return
		}
		if id, ok := m.vocab.plain(word[start:end]); ok {
			s.queue.push(candidate{rank: scoreRank(m.scores[id]), pos: pos, size: end - start})
		}
	}
	for i := range symbols {
		offer(int32(i))
	}
	for len(s.queue) > 0 {
		top := s.queue.pop()
		left := &symbols[top.pos]
		if left.id == dead || left.next < 0 || symbols[left.next].end-left.start != top.size {
			continue // one of the two has changed since
		}
		prev, _ := join(symbols, top.pos)
		offer(prev)
		offer(top.pos)
	}
	for i := int32(0); i >= 0 && len(symbols) > 0; i = symbols[i].next {
		dst = m.resolve(dst, word[symbols[i].start:symbols[i].end])
	}
	return dst
}

// resolve appends the token of a piece, or its bytes, or the unknown token for a byte without one.
func (m *spm) resolve(dst []int32, text string) []int32 {
	if id, ok := m.vocab.plain(text); ok {
		return append(dst, id)
	}
	for i := 0; i < len(text); i++ {
		if id := m.byteIDs[text[i]]; id != dead {
			dst = append(dst, id)
		} else if m.unk != dead {
			dst = append(dst, m.unk)
		}
	}
	return dst
}
