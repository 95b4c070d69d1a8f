package tokenizer

// mergeTable maps a pair of token ids to the rank of its merge and the token it makes: open addressing in a flat
// array, because a vocabulary has a quarter of a million merges and encoding asks for little else.
type mergeTable struct {
	slots []mergeSlot // a power of two of them
	shift uint8
}

type mergeSlot struct {
	key   uint64 // left<<32 | right+1; 0 is an empty slot
	value uint64 // rank<<32 | id
}

// newMergeTable makes a table for at most n merges.
func newMergeTable(n int) *mergeTable {
	bits := uint8(4)
	for 1<<bits < n+n/2 {
		bits++
	}
	return &mergeTable{slots: make([]mergeSlot, 1<<bits), shift: 64 - bits}
}

func mergeKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)+1) }

// slot returns the place of key: where it is, or the empty place where it belongs.
func (m *mergeTable) slot(key uint64) *mergeSlot {
	at := key * 0x9E3779B97F4A7C15 >> m.shift
	for {
		s := &m.slots[at&uint64(len(m.slots)-1)]
		if s.key == key || s.key == 0 {
			return s
		}
		at++
	}
}

// put records a merge; it reports false and leaves the table alone when the pair is already there and keep is set.
func (m *mergeTable) put(left, right int32, rank uint32, id int32, keep bool) bool {
	key := mergeKey(left, right)
	s := m.slot(key)
	if s.key == key && keep {
		return false
	}
	*s = mergeSlot{key, uint64(rank)<<32 | uint64(uint32(id))}
	return true
}

// get returns the rank of the merge of two tokens and the token it makes.
func (m *mergeTable) get(left, right int32) (rank uint32, id int32, ok bool) {
	s := m.slot(mergeKey(left, right))
	if s.key == 0 {
		return 0, 0, false
	}
	return uint32(s.value >> 32), int32(uint32(s.value)), true
}

// A symbol is a token, or a stretch of text, in the doubly linked list that merging shortens.
type symbol struct {
	id         int32 // token; dead when the symbol was swallowed
	start, end int32 // bytes of the word, for models that merge by text
	prev, next int32 // -1 at the ends
}

const dead = -1

// A candidate is a possible merge of the symbol at pos with its right neighbour.
type candidate struct {
	rank uint32
	pos  int32
	id   int32 // the token the merge makes
	size int32 // bytes of the two symbols, for models that merge by text
}

func (a candidate) before(b candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

// mergeQueue is a binary heap of candidates: lowest rank first, leftmost on ties.
type mergeQueue []candidate

func (q *mergeQueue) push(c candidate) {
	h := append(*q, c)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !c.before(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = c
	*q = h
}

func (q *mergeQueue) pop() candidate {
	h := *q
	top, c := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(c) {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = c
	}
	*q = h
	return top
}

// scratch holds the buffers of one Encode call.
type scratch struct {
	symbols []symbol
	queue   mergeQueue
	ranks   []uint32
	buf     []byte
	path    []pathNode
}

// link makes a list of the symbols.
func link(symbols []symbol) {
	for i := range symbols {
		symbols[i].prev, symbols[i].next = int32(i-1), int32(i+1)
	}
	if len(symbols) > 0 {
		symbols[len(symbols)-1].next = -1
	}
}

// join swallows the right neighbour of the symbol at pos and returns the neighbours that are left.
func join(symbols []symbol, pos int32) (prev, next int32) {
	left := &symbols[pos]
	right := &symbols[left.next]
	left.end, left.next = right.end, right.next
	right.id = dead
	right.end = right.start
	if left.next >= 0 {
		symbols[left.next].prev = pos
	}
	return left.prev, left.next
}
