package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVocabularyFindsLikeAMap: whatever is set in whatever order, a text is found by the id that it was last set for,
// even where that id has another piece by now.
func TestVocabularyFindsLikeAMap(t *testing.T) {
	again := newVocabulary(1)
	require.NoError(t, again.set(0, "a", kindNormal))
	require.NoError(t, again.set(0, "a", kindControl))
	require.False(t, again.duplicates, "the same piece for the same id")
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 30 {
		v, want, duplicates := newVocabulary(rng.IntN(40)), map[string]int32{}, false
		texts := 1 + rng.IntN(400)
		for range rng.IntN(1500) {
			id, piece := int32(rng.IntN(300)), fmt.Sprint("t", rng.IntN(texts))
			before, known := "", false
			if int(id) < len(v.pieces) {
				before = v.pieces[id]
			}
			_, known = want[piece]
			duplicates = duplicates || known && before != piece
			want[piece] = id
			require.NoError(t, v.set(int(id), piece, kindNormal))
			require.Equal(t, piece, v.pieces[id])
		}
		require.Equal(t, len(want), v.known, "round %d", round)
		require.Equal(t, duplicates, v.duplicates, "round %d", round)
		for n := range texts + 5 {
			piece := fmt.Sprint("t", n)
			id, ok := v.id(piece)
			wantID, wantOK := want[piece]
			require.Equal(t, wantOK, ok, "round %d %s", round, piece)
			require.Equal(t, wantID, id, "round %d %s", round, piece)
		}
	}
}

// TestMergesAreReadAlikeInParts: as many merges as several goroutines share, and the first bad one by rank is the one
// that is told.
func TestMergesAreReadAlikeInParts(t *testing.T) {
	kv := bigVocabulary(20_000)
	lines := kv["tokenizer.ggml.merges"].([]string)
	v := newVocabulary(0)
	for id, piece := range kv["tokenizer.ggml.tokens"].([]string) {
		require.NoError(t, v.set(id, piece, kindNormal))
	}
	table, err := ggufMerges(v, lines)
	require.NoError(t, err)
	first := map[string]bool{}
	for rank, line := range lines {
		left, right, _ := strings.Cut(line, " ")
		a, _ := v.id(left)
		b, _ := v.id(right)
		want, _ := v.id(left + right)
		got, id, ok := table.get(a, b)
		require.True(t, ok && !first[line] && int(got) == rank && id == want, "merge %d %q: rank %d, token %d", rank, line, got, id)
		first[line] = true
	}
	_, _, ok := table.get(int32(len(v.pieces)), 0)
	require.False(t, ok)
	for _, rank := range []int{len(lines) - 2, len(lines) / 3} {
		lines[rank], lines[rank+1] = "q\x00 none", "none"
		_, err = ggufMerges(v, lines)
		require.ErrorContains(t, err, fmt.Sprintf("merge %d ", rank))
	}
}
