package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// spaceMark is the character that stands for a space in SentencePiece vocabularies.
const spaceMark = "▁"

// document is a tokenizer.json with its large parts still in place.
type document struct {
	normalizer, pre, post, decoder *component
	added                          []addedSpec
	model                          modelSpec
}

type addedSpec struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// modelSpec is the model of a tokenizer.json without vocabulary and merges, which are read in place.
type modelSpec struct {
	Type         string   `json:"type"`
	UnkToken     *string  `json:"unk_token"`
	UnkID        *int     `json:"unk_id"`
	Prefix       *string  `json:"continuing_subword_prefix"`
	Suffix       *string  `json:"end_of_word_suffix"`
	FuseUnk      bool     `json:"fuse_unk"`
	ByteFallback bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`
	MaxChars     *int     `json:"max_input_chars_per_word"`
	Dropout      *float64 `json:"dropout"`

	vocab, merges json.RawMessage
}

// FromJSON reads a tokenizer.json. config is the tokenizer_config.json beside it, or nil: names of the special tokens,
// add_bos_token and add_eos_token, chat template. Truncation and padding settings are the caller's business and are
// not applied. A component that is not supported is an error that names it.
func FromJSON(tokenizerJSON []byte, config []byte) (*Tokenizer, error) {
	doc, err := parseDocument(tokenizerJSON)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{special: map[string]int32{}}
	scores, err := t.readVocabulary(doc)
	if err != nil {
		return nil, err
	}
	if doc.normalizer != nil {
		if t.normalizer, err = buildNormalizer(doc.normalizer); err != nil {
			return nil, err
		}
	}
	if doc.pre != nil {
		if t.pre, err = buildPreTokenizer(doc.pre); err != nil {
			return nil, err
		}
	}
	if t.decoder, err = jsonDecoder(doc.decoder); err != nil {
		return nil, err
	}
	if err := t.buildModel(doc, scores); err != nil {
		return nil, err
	}
	if doc.post != nil {
		if err := t.readPostProcessor(doc.post); err != nil {
			return nil, err
		}
	}
	added := make([]addedToken, len(doc.added))
	for i, a := range doc.added {
		added[i] = addedToken{int32(a.ID), a.Content, a.SingleWord, a.LStrip, a.RStrip, a.Normalized, a.Special}
	}
	if err := t.readConfig(config, doc); err != nil {
		return nil, err
	}
	if err := t.finish(added, nil); err != nil {
		return nil, err
	}
	t.export = exportJSON(t, doc)
	return t, nil
}

// parseDocument walks the document once.
func parseDocument(data []byte) (*document, error) {
	doc := &document{}
	r := &jsonReader{data: data}
	var model json.RawMessage
	err := r.object(func(key []byte) error {
		name := string(key)
		raw, err := r.value()
		if err != nil {
			return err
		}
		switch name {
		case "normalizer":
			doc.normalizer, err = parseComponent(raw, name)
		case "pre_tokenizer":
			doc.pre, err = parseComponent(raw, name)
		case "post_processor":
			doc.post, err = parseComponent(raw, name)
		case "decoder":
			doc.decoder, err = parseComponent(raw, name)
		case "added_tokens":
			if err = json.Unmarshal(raw, &doc.added); err != nil {
				err = fmt.Errorf("tokenizer: added_tokens: %w", err)
			}
		case "model":
			model = raw
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if model == nil {
		return nil, fmt.Errorf("tokenizer: tokenizer.json has no model")
	}
	return doc, doc.model.parse(model)
}

// parse reads everything of a model but its vocabulary and merges.
func (m *modelSpec) parse(raw json.RawMessage) error {
	r := &jsonReader{data: raw}
	small := map[string]json.RawMessage{}
	err := r.object(func(key []byte) error {
		name := string(key)
		value, err := r.value()
		switch name {
		case "vocab":
			m.vocab = value
		case "merges":
			m.merges = value
		default:
			small[name] = value
		}
		return err
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(small)
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err != nil {
		return fmt.Errorf("tokenizer: model: %w", err)
	}
	if m.vocab == nil {
		return fmt.Errorf("tokenizer: model %q has no vocab", m.Type)
	}
	return nil
}

// readVocabulary reads pieces, scores (Unigram only, [V]) and added tokens.
func (t *Tokenizer) readVocabulary(doc *document) (scores []float64, err error) {
	t.vocab = newVocabulary(len(doc.model.vocab) / 16)
	r := &jsonReader{data: doc.model.vocab}
	pair := 0
	if doc.model.Type == "Unigram" || r.peek() == '[' {
		err = r.array(func() error {
			var piece []byte
			var score float64
			pair = 0
			err := r.array(func() (err error) {
				switch pair++; pair {
				case 1:
					piece, err = r.text()
				case 2:
					score, err = r.number()
				default:
					err = r.errorf("a piece has more than text and score")
				}
				return err
			})
			if err == nil && pair != 2 {
				err = r.errorf("a piece has no score")
			}
			if err == nil {
				err = t.vocab.set(len(scores), string(piece), kindNormal)
			}
			scores = append(scores, score)
			return err
		})
	} else {
		err = r.object(func(key []byte) error {
			piece := string(key)
			id, err := r.integer()
			if err == nil {
				err = t.setSparse(piece, id, len(doc.model.vocab))
			}
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	for i := range doc.added {
		a := &doc.added[i]
		if id, ok := t.vocab.id(a.Content); ok {
			a.ID = int(id) // a token of the model keeps its id, whatever the list says
		}
		k := kindUserDefined
		if a.Special {
			k = kindControl
		}
		if err := t.vocab.set(a.ID, a.Content, k); err != nil {
			return nil, err
		}
	}
	return scores, nil
}

// setSparse records a piece of an object whose keys may come in any order: its bytes bound the ids.
func (t *Tokenizer) setSparse(piece string, id, documentBytes int) error {
	if id < 0 || id > documentBytes+1<<16 {
		return fmt.Errorf("tokenizer: token %q has id %d, out of proportion to a vocabulary of %d bytes", piece, id, documentBytes)
	}
	if grow := id + 1 - len(t.vocab.pieces); grow > 0 {
		t.vocab.pieces = append(t.vocab.pieces, make([]string, grow)...)
		t.vocab.kinds = append(t.vocab.kinds, make([]kind, grow)...)
	}
	return t.vocab.set(id, piece, kindNormal)
}

// buildModel makes the model and, for byte-level BPE, lets it read bytes instead of their characters.
func (t *Tokenizer) buildModel(doc *document, scores []float64) error {
	spec := &doc.model
	unk := int32(dead)
	if spec.UnkToken != nil {
		if id, ok := t.vocab.id(*spec.UnkToken); ok {
			unk = id
			t.special[roleUNK] = id
		}
	}
	switch spec.Type {
	case "BPE":
		return t.buildBPE(doc, unk)
	case "WordPiece":
		prefix, limit := "##", 100
		if spec.Prefix != nil {
			prefix = *spec.Prefix
		}
		if spec.MaxChars != nil {
			limit = *spec.MaxChars
		}
		t.model = &wordPiece{vocab: t.vocab, prefix: prefix, unk: unk, maxRunes: limit}
		return nil
	case "Unigram":
		if spec.UnkID != nil {
			if !t.vocab.has(int32(*spec.UnkID)) {
				return fmt.Errorf("tokenizer: unk_id %d, the vocabulary has %d tokens", *spec.UnkID, t.VocabSize())
			}
			unk = int32(*spec.UnkID)
			t.special[roleUNK] = unk
		}
		m := newUnigram(t.vocab, scores, unk)
		m.fallback = spec.ByteFallback
		t.model, t.spaceMark = m, true
		return nil
	}
	return fmt.Errorf("tokenizer: model %q is not supported", spec.Type)
}

func (t *Tokenizer) buildBPE(doc *document, unk int32) error {
	spec := &doc.model
	if spec.Dropout != nil && *spec.Dropout != 0 {
		return fmt.Errorf("tokenizer: BPE dropout %g is not supported: ids would be random", *spec.Dropout)
	}
	m := &bpe{vocab: t.vocab, unk: unk, fuseUnk: spec.FuseUnk, fallback: spec.ByteFallback, ignoreMerges: spec.IgnoreMerges}
	if spec.Prefix != nil {
		m.prefix = *spec.Prefix
	}
	if spec.Suffix != nil {
		m.suffix = *spec.Suffix
	}
	var err error
	if m.merges, err = readMerges(t.vocab, spec.merges, m.prefix); err != nil {
		return err
	}
	t.model = m
	var last *byteLevel
	if t.pre, last = lastByteLevel(t.pre); last != nil {
		t.byteLevel = true
		if m.prefix == "" && m.suffix == "" && !m.fallback {
			last.raw, m.bytes = true, true
			m.byteIDs = t.vocab.byteCharacters()
		}
		return nil
	}
	t.spaceMark = true
	m.byteIDs = t.vocab.byteTokens()
	if m.fallback {
		for _, id := range m.byteIDs {
			if id != dead && t.vocab.kinds[id] == kindNormal {
				t.vocab.kinds[id] = kindByte
			}
		}
	}
	return nil
}

// byteCharacters returns the token of every byte's character, dead where there is none.
func (v *vocabulary) byteCharacters() (ids [256]int32) {
	for b := range ids {
		ids[b] = dead
		if id, ok := v.plain(string(byteRune(byte(b)))); ok {
			ids[b] = id
		}
	}
	return ids
}

// lastByteLevel returns p with its last step addressable, if that is ByteLevel.
func lastByteLevel(p preTokenizer) (preTokenizer, *byteLevel) {
	switch p := p.(type) {
	case byteLevel:
		return &p, &p
	case sequencePre:
		if len(p) > 0 {
			last, found := lastByteLevel(p[len(p)-1])
			p[len(p)-1] = last
			return p, found
		}
	}
	return p, nil
}

// readMerges reads merges written as "left right" or ["left","right"].
func readMerges(v *vocabulary, raw json.RawMessage, prefix string) (*mergeTable, error) {
	if raw == nil {
		return newMergeTable(0), nil
	}
	table := newMergeTable(len(raw)/6 + 1) // "a b" with quotes and a comma
	r := &jsonReader{data: raw}
	rank, last := uint32(0), int32(255)
	var both []byte
	err := r.array(func() error {
		var left, right []byte
		var err error
		if r.peek() == '[' {
			n := 0
			err = r.array(func() (err error) {
				switch n++; n {
				case 1:
					left, err = r.text()
				case 2:
					right, err = r.text()
				default:
					err = r.errorf("merge %d has more than two parts", rank)
				}
				return err
			})
			if err == nil && n != 2 {
				err = r.errorf("merge %d has %d parts, want 2", rank, n)
			}
		} else {
			var line []byte
			if line, err = r.text(); err == nil {
				left, right, err = cutMerge(line, int(rank))
			}
		}
		if err != nil {
			return err
		}
		a, okA := v.id(string(left))
		b, okB := v.id(string(right))
		both = append(append(both[:0], left...), strings.TrimPrefix(string(right), prefix)...)
		id, ok := v.merged(both, last)
		if !okA || !okB || !ok {
			return fmt.Errorf("tokenizer: merge %d (%q %q) names a piece that is not in the vocabulary", rank, left, right)
		}
		table.put(a, b, rank, id, false)
		rank, last = rank+1, id
		return nil
	})
	return table, err
}

// cutMerge splits a merge at its first space behind the first character.
func cutMerge(line []byte, rank int) (left, right []byte, err error) {
	at := -1
	if len(line) > 1 {
		at = slices.Index(line[1:], ' ')
	}
	if at < 0 || at+2 >= len(line) {
		return nil, nil, fmt.Errorf("tokenizer: merge %d is %q, want two pieces and a space", rank, line)
	}
	return line[:at+1], line[at+2:], nil
}

func cutPrefix(prefix string) func(string) (string, bool) {
	return func(token string) (string, bool) { return strings.CutPrefix(token, prefix) }
}

// jsonDecoder makes the decoder; without one, tokens are joined by spaces.
func jsonDecoder(c *component) (decoder, error) {
	if c == nil {
		return decoder{eachToken(func(i int, token string) string {
			if i > 0 {
				return " " + token
			}
			return token
		})}, nil
	}
	d, _, err := buildDecoder(nil, c, false)
	return d, err
}
