package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

// TestNormalizeLongMatchesTheLibrary: by the definition and by the library's tables, on texts short enough for both.
func TestNormalizeLongMatchesTheLibrary(t *testing.T) {
	alphabet := []rune("aeouAE\u0301\u0300\u0327\u0323\u0308\u0345éǘﬁ각ᄀ\u1161\u11a8か\u3099½ΩÅ\u0338<")
	rng := rand.New(rand.NewPCG(9, 10))
	for range 3000 {
		text := make([]rune, 1+rng.IntN(10))
		for i := range text {
			text[i] = alphabet[rng.IntN(len(alphabet))]
		}
		for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
			require.Equal(t, form.String(string(text)), normalizeLong(form, string(text)), "form %d of %+q", form, string(text))
		}
	}
}

func TestManyMarksStayAsTheyAre(t *testing.T) {
	text := "e" + strings.Repeat("\u0301", 100)
	assert.Equal(t, "é"+strings.Repeat("\u0301", 99), unicodeForm(norm.NFC)(text))
	assert.Equal(t, text, unicodeForm(norm.NFD)(text))
}

func TestNormalizersByHand(t *testing.T) {
	assert.Equal(t, "straße i\u0307 σς", lowercase("STRAßE İ Σς"))
	assert.Equal(t, "a b", squeezeSpaces("  a   b "))
	assert.Equal(t, "a\n", stripSpace(true, false)("\u3000 a\n"))
	bert, err := bertNormalizer{clean: true, han: true, accents: true, lower: true}.normalize("Caf\u00e9\x00\t中")
	require.NoError(t, err)
	assert.Equal(t, "cafe  中 ", bert)
}

// TestCharsmap walks a table made by hand: "a" → "x", "ab" → "yz".
func TestCharsmap(t *testing.T) {
	// A unit holds label | has_leaf<<8 | offset<<10; a child sits at node ^ offset ^ label.
	units := make([]uint32, 512)
	units[0] = 256 << 10                          // root: children from 256
	a := 256 ^ uint32('a')                        // node "a"
	units[a] = 'a' | 1<<8 | (a^128)<<10           // its leaf at 128, child b at 128^'b'
	units[128] = 0 | 1<<31                        // value 0: "x"
	units[128^'b'] = 'b' | 1<<8 | (128^'b'^7)<<10 // leaf of "ab" at 7
	units[7] = 2 | 1<<31                          // value 2: "yz"
	blob := []byte{0, 8, 0, 0}
	for _, u := range units {
		blob = append(blob, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	blob = append(blob, "x\x00yz\x00"...)
	long, err := newCharsmap(blob, true)
	require.NoError(t, err)
	out, err := long.normalize("abcab a\x00é")
	require.NoError(t, err)
	assert.Equal(t, "yzcyz x\x00é", out)
	short, err := newCharsmap(blob, false)
	require.NoError(t, err)
	out, err = short.normalize("abca\u0301 \r\n")
	require.NoError(t, err)
	assert.Equal(t, "xbcx \r\n", out, "the reference replaces a grapheme by the table's shortest entry")
}
