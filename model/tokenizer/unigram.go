package tokenizer

import (
	"math"
	"sort"
	"strings"
	"unicode/utf8"
)

// unigram is the unigram language model of SentencePiece (Kudo 2018, arXiv:1804.10959): the segmentation of highest
// total score, found by Viterbi. Control tokens are no pieces: text can not spell them.
type unigram struct {
	vocab    *vocabulary
	scores   []float64
	sorted   []int32 // ids of the pieces in byte order: a prefix of the text narrows a range of it
	unkScore float64
	unk      int32
	byteIDs  [256]int32
	fallback bool
}

// unkPenalty is how far below the worst piece an unknown character scores.
const unkPenalty = 10

func newUnigram(v *vocabulary, scores []float64, unk int32) *unigram {
	m := &unigram{vocab: v, scores: scores, unk: unk, byteIDs: v.byteTokens()}
	lowest := math.Inf(1)
	for id, text := range v.pieces {
		if v.kinds[id] == kindHole || id >= len(scores) {
			continue
		}
		lowest = math.Min(lowest, scores[id])
		if v.kinds[id].ordinary() && text != "" {
			m.sorted = append(m.sorted, int32(id))
		}
	}
	m.unkScore = lowest - unkPenalty
	sort.Slice(m.sorted, func(i, j int) bool {
		a, b := m.sorted[i], m.sorted[j]
		if c := strings.Compare(v.pieces[a], v.pieces[b]); c != 0 {
			return c < 0
		}
		return a > b // of equal pieces the last one counts
	})
	return m
}

// pathNode is the best way to reach a byte of the word.
type pathNode struct {
	score   float64
	start   int32
	id      int32
	reached bool
}

func (m *unigram) tokenize(dst []int32, word string, s *scratch) []int32 {
	s.path = append(s.path[:0], make([]pathNode, len(word)+1)...)
	path := s.path
	offer := func(start, end int, score float64, id int32) {
		if node := &path[end]; !node.reached || score > node.score {
			*node = pathNode{score, int32(start), id, true}
		}
	}
	for start := 0; start < len(word); {
		_, size := utf8.DecodeRuneInString(word[start:])
		here := path[start].score
		single := false
		m.prefixes(word[start:], func(length int, id int32) {
			offer(start, start+length, here+m.scores[id], id)
			single = single || length == size
		})
		if !single {
			offer(start, start+size, here+m.unkScore, m.unk)
		}
		start += size
	}
	base := len(dst)
	for end := len(word); end > 0; {
		node := path[end]
		start := int(node.start)
		if node.id == m.unk {
			for start > 0 && path[start].id == m.unk { // neighbouring unknowns are one
				start = int(path[start].start)
			}
			dst = m.appendUnknown(dst, word[start:end])
		} else {
			dst = append(dst, node.id)
		}
		end = start
	}
	for i, j := base, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}

// appendUnknown appends the tokens of unknown text in reverse order.
func (m *unigram) appendUnknown(dst []int32, text string) []int32 {
	if m.fallback {
		known := true
		for i := 0; i < len(text); i++ {
			known = known && m.byteIDs[text[i]] != dead
		}
		if known {
			for i := len(text) - 1; i >= 0; i-- {
				dst = append(dst, m.byteIDs[text[i]])
			}
			return dst
		}
	}
	if m.unk == dead {
		return dst
	}
	return append(dst, m.unk)
}

// prefixes calls found for every piece that s starts with, shortest first.
func (m *unigram) prefixes(s string, found func(length int, id int32)) {
	low, high := 0, len(m.sorted)
	for n := 0; n < len(s) && low < high; n++ {
		c := s[n]
		at := func(i int) int { // byte n of piece i; -1 past its end
			if text := m.vocab.pieces[m.sorted[i]]; n < len(text) {
				return int(text[n])
			}
			return -1
		}
		from := low + sort.Search(high-low, func(i int) bool { return at(low+i) >= int(c) })
		high = from + sort.Search(high-from, func(i int) bool { return at(from+i) > int(c) })
		low = from
		if low < high && len(m.vocab.pieces[m.sorted[low]]) == n+1 {
			found(n+1, m.sorted[low])
		}
	}
}
