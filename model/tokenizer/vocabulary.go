package tokenizer

import (
	"fmt"
	"strconv"
)

// kind is what a token is for; the values are those of tokenizer.ggml.token_type.
type kind uint8

const (
	kindHole        kind = iota // an id that no token has
	kindNormal                  // ordinary text
	kindUnknown                 // stands for text out of vocabulary
	kindControl                 // special: never written by ordinary text
	kindUserDefined             // cut out of the text as a whole, but text all the same
	kindUnused
	kindByte // <0xHH>
)

// ordinary reports whether text may spell the token piece by piece. Control, unknown and byte tokens are reached only
// as such: this is what keeps "</s>" written by a user from becoming the end of his turn.
func (k kind) ordinary() bool { return k == kindNormal || k == kindUserDefined || k == kindUnused }

func (k kind) special() bool { return k == kindControl || k == kindUnknown }

// vocabulary maps ids to pieces and back.
type vocabulary struct {
	pieces  []string // [V] by id; "" where kinds says hole
	kinds   []kind   // [V]
	index   pieceIndex
	former  map[string]int32 // texts whose id has got another piece since: they are still found
	known   int              // different texts
	longest int              // bytes of the longest piece

	duplicates bool // a piece has several ids
}

// maxSparse bounds the highest id by the number of tokens, so that one wild id can not ask for gigabytes.
func maxSparse(tokens int) int { return 4*tokens + 1<<16 }

func newVocabulary(size int) *vocabulary {
	return &vocabulary{pieces: make([]string, 0, size), kinds: make([]kind, 0, size), index: newPieceIndex(size)}
}

// set gives id a piece, growing the vocabulary; of equal pieces the last one is found by text.
func (v *vocabulary) set(id int, piece string, k kind) error {
	if id < 0 || id > maxSparse(v.known+len(v.pieces)) {
		return fmt.Errorf("tokenizer: token %q has id %d, out of proportion to %d tokens", piece, id, v.known)
	}
	for len(v.pieces) <= id {
		v.pieces = append(v.pieces, "")
		v.kinds = append(v.kinds, kindHole)
	}
	old := v.pieces[id]
	if old != piece && v.kinds[id] != kindHole {
		v.supersede(old, int32(id))
	}
	at, hash, known := v.index.find(v.pieces, piece)
	if _, ok := v.former[piece]; ok {
		known = true
		delete(v.former, piece)
	}
	v.pieces[id], v.kinds[id] = piece, k
	v.index.put(at, hash, int32(id))
	if !known {
		v.known++
	}
	v.duplicates = v.duplicates || known && old != piece
	v.longest = max(v.longest, len(piece))
	return nil
}

// supersede keeps a text found by the id whose piece it was.
func (v *vocabulary) supersede(text string, id int32) {
	at, _, ok := v.index.find(v.pieces, text)
	if !ok || v.index.slots[at]&gone != uint64(id)+1 {
		return // found by another id, or not at all
	}
	v.index.remove(at)
	if v.former == nil {
		v.former = map[string]int32{}
	}
	v.former[text] = id
}

// id returns the token of a piece.
func (v *vocabulary) id(piece string) (int32, bool) {
	id, ok := v.index.get(v.pieces, piece)
	if !ok && v.former != nil {
		id, ok = v.former[piece]
	}
	return id, ok
}

// plain returns the token of a piece that ordinary text may spell.
func (v *vocabulary) plain(piece string) (int32, bool) {
	id, ok := v.id(piece)
	return id, ok && v.kinds[id].ordinary()
}

// merged returns the token of a merge's text. Vocabularies list what merges make in order, so the token after the last
// one is tried before the index: a quarter of a million look-ups less.
func (v *vocabulary) merged(text []byte, last int32) (int32, bool) {
	if next := int(last) + 1; next < len(v.pieces) && v.pieces[next] == string(text) {
		if v.kinds[next] != kindHole && !v.duplicates {
			return int32(next), true
		}
	}
	return v.id(string(text))
}

func (v *vocabulary) has(id int32) bool {
	return id >= 0 && int(id) < len(v.pieces) && v.kinds[id] != kindHole
}

// byteTokens returns the <0xHH> token of every byte, dead where there is none.
func (v *vocabulary) byteTokens() (ids [256]int32) {
	for b := range ids {
		ids[b] = dead
		if id, ok := v.id(fmt.Sprintf("<0x%02X>", b)); ok {
			ids[b] = id
		}
	}
	return ids
}

// byteOf returns the byte that a piece of the form <0xHH> stands for.
func byteOf(piece string) (byte, bool) {
	if len(piece) != 6 || piece[:3] != "<0x" || piece[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(piece[3:5], 16, 8)
	return byte(b), err == nil
}
