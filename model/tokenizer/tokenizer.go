package tokenizer

import (
	"fmt"
	"slices"
	"sort"
)

// A Tokenizer turns text into ids and ids into text. It never changes after construction and is safe for concurrent use.
type Tokenizer struct {
	vocab      *vocabulary
	model      model
	normalizer normalizer
	pre        preTokenizer
	decoder    decoder
	byteLevel  bool // pieces write bytes as characters
	spaceMark  bool // pieces write a space as ▁

	raw                *matcher // added tokens looked for in the text as it is
	normalized         *matcher // and those looked for after normalization; nil when there are none
	specials           *matcher // the special ones of both
	normalizedSpecials bool     // normalization can make a special token of other text

	before, after []int32 // what AddSpecial puts around the text
	special       map[string]int32
	stops         []int32
	template      string
	export        map[string]any // how to write the tokenizer into a GGUF file; nil when it can not be
}

// The names of the special roles in Tokenizer.special.
const (
	roleBOS = "bos"
	roleEOS = "eos"
	rolePAD = "pad"
	roleUNK = "unk"
)

// VocabSize returns one more than the highest id.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.pieces) }

// Token returns the vocabulary's own spelling of a token.
func (t *Tokenizer) Token(id int32) (piece string, ok bool) {
	if !t.vocab.has(id) {
		return "", false
	}
	return t.vocab.pieces[id], true
}

// ID returns the token with that spelling.
func (t *Tokenizer) ID(piece string) (int32, bool) { return t.vocab.id(piece) }

// Bytes returns the bytes a token stands for within text; nil for an id that no token has.
func (t *Tokenizer) Bytes(id int32) []byte {
	if !t.vocab.has(id) {
		return nil
	}
	piece := t.vocab.pieces[id]
	switch {
	case t.byteLevel:
		return appendTextBytes(nil, piece)
	case t.vocab.kinds[id] == kindByte:
		if b, ok := byteOf(piece); ok {
			return []byte{b}
		}
	case t.spaceMark && t.vocab.kinds[id] != kindControl:
		return []byte(metaspaceDecode(spaceMark, false)(0, piece))
	}
	return []byte(piece)
}

// IsSpecial reports whether a token is a control token: never the spelling of text, dropped by skipSpecial.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.vocab.has(id) && t.vocab.kinds[id].special() }

// BOS returns the token that begins a text.
func (t *Tokenizer) BOS() (int32, bool) { return t.role(roleBOS) }

// EOS returns the token that ends a text.
func (t *Tokenizer) EOS() (int32, bool) { return t.role(roleEOS) }

// PAD returns the token that fills a batch.
func (t *Tokenizer) PAD() (int32, bool) { return t.role(rolePAD) }

// UNK returns the token of text out of vocabulary.
func (t *Tokenizer) UNK() (int32, bool) { return t.role(roleUNK) }

func (t *Tokenizer) role(name string) (int32, bool) {
	id, ok := t.special[name]
	return id, ok
}

// StopIDs returns the tokens that end a turn, in ascending order: the end of text, of turn and of message that the
// file names, and the well-known ones that the vocabulary has as special or user-defined tokens.
func (t *Tokenizer) StopIDs() []int32 { return slices.Clone(t.stops) }

// ChatTemplate returns the Jinja template of a conversation, or "".
func (t *Tokenizer) ChatTemplate() string { return t.template }

// MarshalGGUF returns the keys that write this tokenizer into a GGUF file, tokenizer.chat_template among them. It
// returns nil for a tokenizer whose ids a GGUF file can not promise: WordPiece and Unigram, unknown pre-tokenizer
// patterns, normalizers, and BPE merges that scores can not express.
func (t *Tokenizer) MarshalGGUF() map[string]any {
	if t.export == nil {
		return nil
	}
	kv := make(map[string]any, len(t.export))
	for key, value := range t.export {
		kv[key] = value
	}
	return kv
}

// wellKnownStops end a turn or a text in published models.
var wellKnownStops = [...]string{
	"<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<eos>",
	"</s>", "<|end_of_turn|>", "<|EOT|>", "<｜end▁of▁sentence｜>", "<|end_of_sentence|>", "<|return|>", "<|call|>",
	"<turn|>", "<|eot|>", "<EOT>", "_<EOT>", "<|END_OF_TURN_TOKEN|>", "[EOT]", "[EOS]",
}

// finish makes the matchers and the stop list from the vocabulary and its added tokens.
func (t *Tokenizer) finish(added []addedToken, stops []int32) error {
	var raw, normalized, specials []addedToken
	for _, token := range added {
		if token.special {
			specials = append(specials, token)
		}
		if token.normalized && t.normalizer != nil {
			content, err := t.normalizer.normalize(token.content)
			if err != nil {
				return fmt.Errorf("tokenizer: added token %q: %w", token.content, err)
			}
			token.content = content
			normalized = append(normalized, token)
			t.normalizedSpecials = t.normalizedSpecials || token.special
			if token.special {
				specials = append(specials, token)
			}
			continue
		}
		raw = append(raw, token)
	}
	t.raw, t.specials = newMatcher(raw), newMatcher(specials)
	if normalized != nil {
		t.normalized = newMatcher(normalized)
	}
	for _, piece := range wellKnownStops {
		if id, ok := t.vocab.id(piece); ok && (t.IsSpecial(id) || t.vocab.kinds[id] == kindUserDefined) {
			stops = append(stops, id)
		}
	}
	if id, ok := t.EOS(); ok {
		stops = append(stops, id)
	}
	sort.Slice(stops, func(i, j int) bool { return stops[i] < stops[j] })
	t.stops = slices.Compact(stops)
	return nil
}
