package tokenizer

import "strings"

// Decode returns the text of ids, without the special tokens if skipSpecial is set. Ids that no token has are passed
// over; bytes that are not UTF-8 become U+FFFD.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	s := t.Stream(skipSpecial)
	for _, id := range ids {
		s.add(id)
	}
	return s.Flush()
}

// A Stream decodes token by token. The texts it returns, joined, are the text that Decode returns for all the ids; a
// character that is not complete yet is held. One goroutine uses a Stream.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	chain       *chain
	text        strings.Builder
}

// Stream begins a decoding.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream {
	s := &Stream{t: t, skipSpecial: skipSpecial}
	s.chain = t.decoder.start(func(text string) { s.text.WriteString(text) })
	return s
}

// Push adds a token and returns the text that became certain.
func (s *Stream) Push(id int32) string {
	s.add(id)
	return s.take()
}

// Flush ends the decoding and returns the text still held.
func (s *Stream) Flush() string {
	s.chain.flush()
	return s.take()
}

func (s *Stream) add(id int32) {
	if s.t.vocab.has(id) && !(s.skipSpecial && s.t.vocab.kinds[id].special()) {
		s.chain.push(s.t.vocab.pieces[id])
	}
}

func (s *Stream) take() string {
	text := s.text.String()
	s.text.Reset()
	return text
}
