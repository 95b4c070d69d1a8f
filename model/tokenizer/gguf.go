package tokenizer

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
)

// ggml is a view of the tokenizer keys of a GGUF file.
type ggml map[string]any

const ggmlPrefix = "tokenizer.ggml."

func (kv ggml) text(key string) string {
	s, _ := kv[ggmlPrefix+key].(string)
	return s
}

// integer returns an integer of any width.
func (kv ggml) integer(key string) (int64, bool) {
	switch n := kv[ggmlPrefix+key].(type) {
	case uint8:
		return int64(n), true
	case int8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case int16:
		return int64(n), true
	case uint32:
		return int64(n), true
	case int32:
		return int64(n), true
	case uint64:
		return int64(min(n, math.MaxInt64)), true
	case int64:
		return n, true
	}
	return 0, false
}

func (kv ggml) flag(key string, otherwise bool) bool {
	if b, ok := kv[ggmlPrefix+key].(bool); ok {
		return b
	}
	return otherwise
}

// FromGGUF builds a tokenizer from the metadata of a GGUF file: the keys tokenizer.ggml.*, tokenizer.chat_template and
// general.name, with values as a reader gives them. Ids are those of llama.cpp, with one difference for safety: text
// never spells a control token by merging.
func FromGGUF(kv map[string]any) (*Tokenizer, error) {
	g := ggml(kv)
	t := &Tokenizer{special: map[string]int32{}, export: exportGGUF(kv)}
	t.template, _ = kv["tokenizer.chat_template"].(string)
	if err := t.readTokens(g); err != nil {
		return nil, err
	}
	name := g.text("model")
	if err := t.readRoles(g, name); err != nil {
		return nil, err
	}
	var addBOS, addEOS bool
	var err error
	switch name {
	case "llama":
		addBOS, err = true, t.buildSPM(g)
	case "gpt2":
		addBOS, err = t.buildByteBPE(g)
	case "bert":
		addBOS, addEOS = true, true
		t.buildWordPiece()
	case "t5":
		addEOS, err = true, t.buildUnigram(g)
	default:
		err = fmt.Errorf("tokenizer: tokenizer.ggml.model %q is not supported (llama, gpt2, bert and t5 are)", name)
	}
	if err != nil {
		return nil, err
	}
	if id, ok := t.BOS(); ok && g.flag("add_bos_token", addBOS) {
		t.before = append(t.before, id)
	}
	if id, ok := t.closing(name); ok && g.flag("add_eos_token", addEOS) {
		t.after = append(t.after, id)
	}
	var stops []int32
	for _, key := range []string{"eos", "eot", "eom"} {
		if id, ok := g.integer(key + "_token_id"); ok {
			stops = append(stops, int32(id))
		}
	}
	return t, t.finish(t.ggufAdded(kv), stops)
}

// closing returns the token that ends a text: the separator for BERT, EOS else.
func (t *Tokenizer) closing(model string) (int32, bool) {
	if model == "bert" {
		if id, ok := t.special["seperator"]; ok {
			return id, true
		}
	}
	return t.EOS()
}

// readTokens reads pieces and kinds.
func (t *Tokenizer) readTokens(g ggml) error {
	tokens, ok := g[ggmlPrefix+"tokens"].([]string)
	if !ok || len(tokens) == 0 {
		return fmt.Errorf("tokenizer: tokenizer.ggml.tokens is missing or empty")
	}
	types, ok := g[ggmlPrefix+"token_type"].([]int32)
	if !ok && g[ggmlPrefix+"token_type"] != nil {
		return fmt.Errorf("tokenizer: tokenizer.ggml.token_type is %T, want int32 values", g[ggmlPrefix+"token_type"])
	}
	if ok && len(types) != len(tokens) {
		return fmt.Errorf("tokenizer: %d token types for %d tokens", len(types), len(tokens))
	}
	t.vocab = newVocabulary(len(tokens))
	for id, piece := range tokens {
		k := kindNormal
		if ok && types[id] >= int32(kindNormal) && types[id] <= int32(kindByte) {
			k = kind(types[id])
		}
		if endsTurn(piece) {
			k = kindControl
		}
		if err := t.vocab.set(id, piece, k); err != nil {
			return err
		}
	}
	return nil
}

// endsTurn names the tokens that are control tokens whatever a file says: llama.cpp corrects them too.
func endsTurn(piece string) bool {
	switch piece {
	case "<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>":
		return true
	}
	return false
}

// readRoles reads the ids of the special tokens; llama.cpp's defaults hold where a file says nothing.
func (t *Tokenizer) readRoles(g ggml, model string) error {
	defaults := map[string]int32{}
	switch model {
	case "llama":
		defaults = map[string]int32{roleBOS: 1, roleEOS: 2, roleUNK: 0}
	case "bert":
		defaults = map[string]int32{roleBOS: 101, roleUNK: 100, "seperator": 102, rolePAD: 0}
	case "t5":
		defaults = map[string]int32{roleEOS: 1, roleUNK: 2, rolePAD: 0}
	}
	for role, key := range map[string]string{
		roleBOS: "bos", roleEOS: "eos", roleUNK: "unknown", rolePAD: "padding", "seperator": "seperator",
		"cls": "cls", "eot": "eot", "eom": "eom",
	} {
		id, ok := g.integer(key + "_token_id")
		if !ok {
			if id, ok := defaults[role]; ok && t.vocab.has(id) {
				t.special[role] = id
			}
			continue
		}
		if id < 0 || id >= int64(t.VocabSize()) {
			return fmt.Errorf("tokenizer: tokenizer.ggml.%s_token_id is %d, the vocabulary has %d tokens", key, id, t.VocabSize())
		}
		t.special[role] = int32(id)
	}
	if cls, ok := t.special["cls"]; ok && model == "bert" {
		t.special[roleBOS] = cls
	}
	return nil
}

func (t *Tokenizer) unknown() int32 {
	if id, ok := t.UNK(); ok {
		return id
	}
	return dead
}

// scores returns tokenizer.ggml.scores, [V].
func (t *Tokenizer) scores(g ggml) ([]float32, error) {
	scores, ok := g[ggmlPrefix+"scores"].([]float32)
	if !ok || len(scores) != t.VocabSize() {
		return nil, fmt.Errorf("tokenizer: tokenizer.ggml.scores has %d values for %d tokens", len(scores), t.VocabSize())
	}
	return scores, nil
}

func (t *Tokenizer) buildSPM(g ggml) error {
	scores, err := t.scores(g)
	if err != nil {
		return err
	}
	space := g.flag("add_space_prefix", true)
	escape := replacer{literal(" "), spaceMark}
	t.normalizer = escape
	if space {
		t.normalizer = sequenceNormalizer{prepend(spaceMark), escape}
	}
	t.model = &spm{vocab: t.vocab, scores: scores, byteIDs: t.vocab.byteTokens(), unk: t.unknown()}
	t.decoder, t.spaceMark = spmDecoder(space), true
	return nil
}

// spmDecoder writes spaces, joins bytes, and drops the space that was put in front.
func spmDecoder(space bool) decoder {
	d := decoder{
		eachToken(metaspaceDecode(spaceMark, false)),
		func() stage { return &byteFallbackStage{} },
	}
	if space {
		d = append(d, func() stage { return &fusedStrip{char: " ", start: 1} })
	}
	return d
}

func (t *Tokenizer) buildByteBPE(g ggml) (addBOS bool, err error) {
	pre, err := ggufPre(g.text("pre"))
	if err != nil {
		return false, err
	}
	lines, ok := g[ggmlPrefix+"merges"].([]string)
	if !ok {
		return false, fmt.Errorf("tokenizer: tokenizer.ggml.merges is missing")
	}
	table, err := ggufMerges(t.vocab, lines)
	if err != nil {
		return false, err
	}
	t.pre = append(pre.steps, &byteLevel{raw: true, prefixSpace: g.flag("add_space_prefix", false)})
	t.model = &bpe{vocab: t.vocab, merges: table, bytes: true, byteIDs: t.vocab.byteCharacters(), unk: dead, ignoreMerges: pre.ignoreMerges}
	t.decoder, t.byteLevel = decoder{func() stage { return &byteLevelStage{} }}, true
	return pre.addBOS, nil
}

// ggufMerge is a merge of two tokens into a third.
type ggufMerge struct{ left, right, id int32 }

// ggufMerges reads merges written as "left right", ranked by their order. Finding the tokens of their texts is most
// of the work of loading a tokenizer, and is shared out.
func ggufMerges(v *vocabulary, lines []string) (*mergeTable, error) {
	const least = 1 << 12 // merges that are worth a goroutine
	parts := max(1, min(runtime.GOMAXPROCS(0), len(lines)/least))
	merges, errs := make([]ggufMerge, len(lines)), make([]error, parts)
	var wg sync.WaitGroup
	for p := range parts {
		from, to := len(lines)*p/parts, len(lines)*(p+1)/parts
		wg.Go(func() { errs[p] = v.readMerges(merges[from:to], lines[from:to], from) })
	}
	wg.Wait()
	for _, err := range errs { // the first by rank
		if err != nil {
			return nil, err
		}
	}
	table := newMergeTable(len(lines))
	for rank, m := range merges {
		table.put(m.left, m.right, uint32(rank), m.id, true)
	}
	return table, nil
}

// readMerges finds the tokens of the merges from rank on.
func (v *vocabulary) readMerges(merges []ggufMerge, lines []string, rank int) error {
	last := int32(255 + rank) // bytes come first in a vocabulary, and then what merges make
	var both []byte
	for i, line := range lines {
		at := -1
		if line != "" {
			at = strings.IndexByte(line[1:], ' ') + 1
		}
		if at <= 0 || at+1 >= len(line) {
			return fmt.Errorf("tokenizer: merge %d is %q, want two pieces and a space", rank+i, line)
		}
		a, okA := v.id(line[:at])
		b, okB := v.id(line[at+1:])
		both = append(append(both[:0], line[:at]...), line[at+1:]...)
		id, ok := v.merged(both, last)
		if !okA || !okB || !ok {
			return fmt.Errorf("tokenizer: merge %d (%q) names a piece that is not in the vocabulary", rank+i, line)
		}
		merges[i] = ggufMerge{a, b, id}
		last = id
	}
	return nil
}

func (t *Tokenizer) buildUnigram(g ggml) error {
	scores, err := t.scores(g)
	if err != nil {
		return err
	}
	var steps sequenceNormalizer
	if blob, ok := byteValues(g[ggmlPrefix+"precompiled_charsmap"]); ok && len(blob) > 0 {
		table, err := newCharsmap(blob, true)
		if err != nil {
			return err
		}
		steps = append(steps, table)
	}
	if g.flag("remove_extra_whitespaces", false) {
		steps = append(steps, textFunc(squeezeSpaces))
	}
	space := g.flag("add_space_prefix", true)
	if space {
		steps = append(steps, prepend(spaceMark))
	}
	t.normalizer = append(steps, replacer{literal(" "), spaceMark})
	wide := make([]float64, len(scores))
	for i, s := range scores {
		wide[i] = float64(s)
	}
	t.model = newUnigram(t.vocab, wide, t.unknown())
	t.decoder, t.spaceMark = decoder{eachToken(metaspaceDecode(spaceMark, space))}, true
	return nil
}

// byteValues accepts what readers make of an array of 8-bit values.
func byteValues(v any) ([]byte, bool) {
	switch v := v.(type) {
	case []byte:
		return v, true
	case []int8:
		b := make([]byte, len(v))
		for i, x := range v {
			b[i] = byte(x)
		}
		return b, true
	}
	return nil, false
}

// buildWordPiece reads BERT vocabularies as converters write them: ▁ before the first piece of a word, nothing before
// the others.
func (t *Tokenizer) buildWordPiece() {
	t.normalizer = bertNormalizer{clean: true, han: true, accents: true, lower: true}
	t.pre = sequencePre{splitter{find: class(isSpace), behavior: removed}, splitter{find: class(isBertPunct), behavior: isolated}}
	t.model = &wordPiece{vocab: t.vocab, start: spaceMark, unk: t.unknown(), maxRunes: 100}
	t.decoder = decoder{eachToken(wordPieceDecode(func(token string) (string, bool) {
		text, starts := strings.CutPrefix(token, spaceMark)
		return text, !starts && !strings.HasPrefix(token, "[")
	}, false))}
	t.spaceMark = true
}

// ggufAdded lists the tokens that llama.cpp cuts out of text: control, unknown and user-defined ones. Phi-3's special
// tokens swallow the white space that follows them.
func (t *Tokenizer) ggufAdded(kv map[string]any) []addedToken {
	name, _ := kv["general.name"].(string)
	name = strings.ToLower(name)
	phi3 := strings.Contains(name, "phi-3") || strings.Contains(name, "phi3")
	var added []addedToken
	for id, piece := range t.vocab.pieces {
		k := t.vocab.kinds[id]
		if !k.special() && k != kindUserDefined {
			continue
		}
		token := addedToken{id: int32(id), content: piece, special: k.special()}
		if phi3 && (k.special() || piece == "</s>") {
			token.rstrip = piece != "<unk>" && piece != "<s>" && piece != "<|endoftext|>"
		}
		added = append(added, token)
	}
	return added
}
