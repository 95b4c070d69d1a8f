package tokenizer

import "unicode/utf8"

// wordPiece takes the longest piece that the rest of a word starts with, again and again; a word that can not be
// covered is one unknown token.
type wordPiece struct {
	vocab    *vocabulary
	start    string // what the first piece of a word is written with: "", or ▁ in GGUF files
	prefix   string // what the others are written with: "##", or nothing in GGUF files
	unk      int32
	maxRunes int
}

func (m *wordPiece) tokenize(dst []int32, word string, s *scratch) []int32 {
	unknown := func() []int32 {
		if m.unk == dead {
			return dst
		}
		return append(dst, m.unk)
	}
	if utf8.RuneCountInString(word) > m.maxRunes {
		return unknown()
	}
	base := len(dst)
	for start := 0; start < len(word); {
		mark := m.prefix
		if start == 0 {
			mark = m.start
		}
		s.buf = append(append(s.buf[:0], mark...), word[start:]...)
		end := len(s.buf)
		for end > len(mark) {
			if id, ok := m.vocab.plain(string(s.buf[:end])); ok {
				dst = append(dst, id)
				break
			}
			_, size := utf8.DecodeLastRune(s.buf[:end])
			end -= size
		}
		if end <= len(mark) {
			dst = dst[:base]
			return unknown()
		}
		start += end - len(mark)
	}
	return dst
}
