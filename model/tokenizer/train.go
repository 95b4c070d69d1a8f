package tokenizer

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
)

// FromVocabulary builds a byte-level BPE tokenizer from a vocabulary given by hand. pre is the name of a splitting rule
// as in tokenizer.ggml.pre; pieces come in id order, written as byte-level vocabularies are (ByteAlphabet); merges are
// pairs of pieces in order of rank; specials get the ids after the pieces.
func FromVocabulary(pre string, pieces []string, merges [][2]string, specials []string) (*Tokenizer, error) {
	tokens := slices.Concat(pieces, specials)
	seen := make(map[string]bool, len(tokens))
	types := make([]int32, len(tokens))
	for id, piece := range tokens {
		if piece == "" || seen[piece] {
			return nil, fmt.Errorf("tokenizer: piece %d %q is empty or given twice", id, piece)
		}
		seen[piece] = true
		types[id] = int32(kindNormal)
		if id >= len(pieces) {
			types[id] = int32(kindControl)
		}
	}
	lines := make([]string, len(merges))
	for i, m := range merges {
		lines[i] = m[0] + " " + m[1]
	}
	kv := map[string]any{
		ggmlPrefix + "model": "gpt2", ggmlPrefix + "pre": pre, ggmlPrefix + "tokens": tokens,
		ggmlPrefix + "token_type": types, ggmlPrefix + "merges": lines, ggmlPrefix + "add_bos_token": false,
	}
	for key, names := range map[string][]string{
		"bos":     {"<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>"},
		"eos":     {"<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"},
		"padding": {"<pad>", "<|pad|>", "[PAD]", "<|endoftext|>"},
	} {
		for _, name := range names {
			if at := slices.Index(specials, name); at >= 0 {
				kv[ggmlPrefix+key+"_token_id"] = uint32(len(pieces) + at)
				kv[ggmlPrefix+"add_bos_token"] = kv[ggmlPrefix+"add_bos_token"] == true || key == "bos"
				break
			}
		}
	}
	return FromGGUF(kv)
}

// ByteAlphabet returns the 256 pieces of the single bytes, in the order of their characters: the beginning of every
// byte-level vocabulary.
func ByteAlphabet() []string {
	var pieces []string
	for r := rune(0); r < 0x144; r++ {
		if _, ok := runeByte(r); ok {
			pieces = append(pieces, string(r))
		}
	}
	return pieces
}

// trainPre is the splitting rule of trained tokenizers: single digits, which arithmetic is easier to learn with.
const trainPre = "qwen2"

// TrainBPE makes a byte-level BPE tokenizer of vocabSize tokens from texts: 256 bytes, merges, specials. It repeatedly
// merges the most frequent pair, of equal ones the pair of lower ids, so the same texts give the same tokenizer. The
// vocabulary is smaller where the texts have no pair left that occurs twice.
func TrainBPE(texts []string, vocabSize int, specials []string) (*Tokenizer, error) {
	pieces := ByteAlphabet()
	room := vocabSize - len(pieces) - len(specials)
	if room < 0 {
		return nil, fmt.Errorf("tokenizer: vocabulary of %d tokens, want at least %d bytes and %d special tokens", vocabSize, len(pieces), len(specials))
	}
	tr, err := newTrainer(texts, pieces)
	if err != nil {
		return nil, err
	}
	index := make(map[string]bool, vocabSize)
	for _, piece := range slices.Concat(pieces, specials) {
		index[piece] = true
	}
	var merges [][2]string
	for len(merges) < room {
		pair, ok := tr.best()
		if !ok {
			break
		}
		left, right := pieces[pair.left], pieces[pair.right]
		if index[left+right] { // another pair made it before, or it spells a special token
			delete(tr.counts, pair)
			continue
		}
		index[left+right] = true
		merges = append(merges, [2]string{left, right})
		tr.merge(pair, int32(len(pieces)))
		pieces = append(pieces, left+right)
	}
	return FromVocabulary(trainPre, pieces, merges, specials)
}

// tokenPair is two neighbouring tokens.
type tokenPair struct{ left, right int32 }

// trainWord is a word of the texts and how often it occurs.
type trainWord struct {
	ids   []int32
	count int
}

// trainer counts pairs over the distinct words of the texts.
type trainer struct {
	words  []trainWord
	counts map[tokenPair]int
	where  map[tokenPair]map[int]struct{} // words that hold, or held, the pair
	queue  pairQueue
}

func newTrainer(texts []string, alphabet []string) (*trainer, error) {
	rule, err := ggufPre(trainPre)
	if err != nil {
		return nil, err
	}
	frequency := map[string]int{}
	for _, text := range texts {
		words, err := rule.steps.split(nil, piece{text: text})
		if err != nil {
			return nil, err
		}
		for _, word := range words {
			frequency[word.text]++
		}
	}
	var byteID [256]int32
	for id, piece := range alphabet {
		byteID[appendTextBytes(nil, piece)[0]] = int32(id)
	}
	tr := &trainer{counts: map[tokenPair]int{}, where: map[tokenPair]map[int]struct{}{}}
	for word, count := range frequency {
		ids := make([]int32, len(word))
		for i := range ids {
			ids[i] = byteID[word[i]]
		}
		at := len(tr.words)
		tr.words = append(tr.words, trainWord{ids, count})
		tr.count(at, 1)
	}
	for pair, n := range tr.counts {
		tr.queue = append(tr.queue, pairCount{pair, n})
	}
	heap.Init(&tr.queue)
	return tr, nil
}

// count adds the pairs of a word, sign times.
func (tr *trainer) count(word, sign int) {
	w := tr.words[word]
	for i := 0; i+1 < len(w.ids); i++ {
		pair := tokenPair{w.ids[i], w.ids[i+1]}
		tr.counts[pair] += sign * w.count
		if tr.where[pair] == nil {
			tr.where[pair] = map[int]struct{}{}
		}
		tr.where[pair][word] = struct{}{}
	}
}

// best returns the most frequent pair, if it occurs twice.
func (tr *trainer) best() (tokenPair, bool) {
	for len(tr.queue) > 0 {
		top := heap.Pop(&tr.queue).(pairCount)
		n, ok := tr.counts[top.pair]
		switch {
		case !ok || n < 2:
		case n == top.count:
			return top.pair, true
		case n < top.count: // it has lost occurrences since
			heap.Push(&tr.queue, pairCount{top.pair, n})
		}
	}
	return tokenPair{}, false
}

// merge replaces a pair by a new token in every word.
func (tr *trainer) merge(pair tokenPair, id int32) {
	changed := map[tokenPair]struct{}{}
	for word := range tr.where[pair] {
		ids := tr.words[word].ids
		tr.count(word, -1)
		out := ids[:0]
		for i := 0; i < len(ids); i++ {
			if i+1 < len(ids) && ids[i] == pair.left && ids[i+1] == pair.right {
				out = append(out, id)
				i++
				continue
			}
			out = append(out, ids[i])
		}
		tr.words[word].ids = out
		tr.count(word, 1)
		for i := 0; i+1 < len(out); i++ {
			if out[i] == id || out[i+1] == id {
				changed[tokenPair{out[i], out[i+1]}] = struct{}{}
			}
		}
	}
	delete(tr.counts, pair)
	delete(tr.where, pair)
	for p := range changed {
		heap.Push(&tr.queue, pairCount{p, tr.counts[p]})
	}
}

// pairCount is a pair as it was counted when it entered the queue.
type pairCount struct {
	pair  tokenPair
	count int
}

// pairQueue is a heap: highest count first, then lower ids.
type pairQueue []pairCount

func (q pairQueue) Len() int      { return len(q) }
func (q pairQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q pairQueue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[j].count, q[i].count), cmp.Compare(q[i].pair.left, q[j].pair.left), cmp.Compare(q[i].pair.right, q[j].pair.right)) < 0
}
func (q *pairQueue) Push(x any) { *q = append(*q, x.(pairCount)) }
func (q *pairQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
