package infer

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/rng"
	"graft/model/tokenizer"
)

// matchBytes is the definition: bytes one by one; the stop that is complete first ends the text, of
// several the longest.
func matchBytes(text string, stops []string) (shown, stop string) {
	for n := 1; n <= len(text); n++ {
		best := ""
		for _, s := range stops {
			if strings.HasSuffix(text[:n], s) && len(s) > len(best) {
				best = s
			}
		}
		if best != "" {
			return text[:n-len(best)], best
		}
	}
	return text, ""
}

// TestStopMatcherIgnoresCuts: whatever the pieces, the text shown is that of the definition, and
// nothing is held that could not begin a stop string.
func TestStopMatcherIgnoresCuts(t *testing.T) {
	src := rng.New(1, "stops")
	word := func(trial, n int, least, most uint32) string {
		var b strings.Builder
		for i := range least + src.Below(most-least+1, uint32(trial), uint32(n), 0) {
			b.WriteByte("ab<é"[src.Below(3, uint32(trial), uint32(n), 1+uint32(i))])
		}
		return b.String()
	}
	stopped := 0
	for trial := range 3000 {
		var stops []string
		for i := range 1 + trial%3 {
			stops = append(stops, word(trial, i, 1, 4))
		}
		text := word(trial, 10, 0, 14)
		want, wantStop := matchBytes(text, stops)
		m := stopMatcher{stops: stops}
		var got, stop string
		for rest, i := text, 0; rest != "" && stop == ""; i++ {
			n := min(len(rest), 1+int(src.Below(4, uint32(trial), 99, uint32(i))))
			var show string
			show, stop = m.push(rest[:n])
			got, rest = got+show, rest[n:]
			if stop == "" {
				assert.True(t, strings.HasSuffix(text[:len(text)-len(rest)], m.held))
				proper := m.held == ""
				for _, s := range stops {
					proper = proper || len(m.held) < len(s) && strings.HasPrefix(s, m.held)
				}
				require.True(t, proper, "%q is held for %q", m.held, stops)
			}
		}
		if stop == "" {
			got += m.flush()
		} else {
			stopped++
		}
		// A piece may complete several stops at once; the definition goes byte by byte.
		require.Equal(t, want, got, "text %q, stops %q", text, stops)
		require.Equal(t, wantStop, stop)
	}
	assert.Greater(t, stopped, 1000)
}

func TestStopMatcherShowsTheStop(t *testing.T) {
	m := stopMatcher{stops: []string{"END"}, include: true}
	show, stop := m.push("the E")
	assert.Equal(t, "the ", show)
	assert.Empty(t, stop)
	show, stop = m.push("ND is")
	assert.Equal(t, "END", show)
	assert.Equal(t, "END", stop)
}

// letters is a byte tokenizer with some merges: 300 tokens, as the test models have.
func letters(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.TrainBPE([]string{"the cat sat on the mat. das Öl, der Bär, 猫は猫。"}, 270, []string{"<|endoftext|>", "<|note|>"})
	require.NoError(t, err)
	return tok
}

// say lets a sequence accept exactly these tokens, as if they had been drawn.
func say(t testing.TB, e *Engine, p Params, ids []int32) ([]Event, *sequence) {
	t.Helper()
	p.MaxTokens = max(p.MaxTokens, len(ids))
	r := Request{Prompt: []int32{65}, Params: p.withDefaults()}
	require.NoError(t, e.check(&r))
	q := e.newRequest(&r)
	e.requests[q] = struct{}{}
	q.started = true
	for _, id := range ids {
		e.accept(&drawn{seq: q.seqs[0], Sampled: sampled(id)})
	}
	var events []Event
	for len(q.stream.events) > 0 {
		ev, _ := q.stream.Next(context.Background())
		events = append(events, ev)
	}
	if !q.seqs[0].over {
		e.end(q, FinishAbort, nil)
	}
	return events, q.seqs[0]
}

func sampled(id int32) kernels.Sampled { return kernels.Sampled{ID: id, LogP: -1, Entropy: 1} }

func texts(events []Event) (text string, last Event) {
	for _, ev := range events {
		text += ev.Text
	}
	return text, events[len(events)-1]
}

func TestTextOfTokens(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	e := l.manual(t, Options{})
	e.tok = letters(t)
	e.eos = e.tok.StopIDs()
	eos, ok := e.tok.ID("<|endoftext|>")
	require.True(t, ok)
	note, _ := e.tok.ID("<|note|>")
	encode := func(s string) []int32 {
		ids, err := e.tok.Encode(s, tokenizer.EncodeOptions{PlainText: true})
		require.NoError(t, err)
		return ids
	}
	bytes := func(s string) []int32 { // one token a byte, so that characters and stops are split
		var ids []int32
		for i := range len(s) {
			ids = append(ids, encode(s[i:i+1])...)
		}
		return ids
	}
	require.Len(t, bytes("猫"), 3)

	t.Run("characters are whole", func(t *testing.T) {
		events, _ := say(t, e, Params{}, bytes("猫 Öl"))
		text, last := texts(events)
		assert.Equal(t, "猫 Öl", text)
		assert.Equal(t, FinishLength, last.Finish)
		for _, ev := range events {
			assert.True(t, utf8.ValidString(ev.Text))
		}
		assert.Empty(t, events[0].Text)
		assert.Equal(t, "猫", events[2].Text)
	})
	t.Run("half a character is not lost", func(t *testing.T) {
		events, _ := say(t, e, Params{}, bytes("ab猫")[:4])
		text, _ := texts(events)
		assert.Equal(t, "ab\uFFFD", text)
	})
	t.Run("stop string over tokens", func(t *testing.T) {
		events, s := say(t, e, Params{Stop: []string{"zz", "cat s"}, MaxTokens: 40}, bytes("the cat sat"))
		text, last := texts(events)
		assert.Equal(t, "the ", text)
		assert.Equal(t, FinishStop, last.Finish)
		assert.Equal(t, "cat s", last.Stopped)
		assert.Len(t, s.Tokens, 1+len("the cat s"), "tokens are the truth")
		assert.Equal(t, 9, last.Usage.CompletionTokens)
	})
	t.Run("a beginning that does not go on", func(t *testing.T) {
		events, _ := say(t, e, Params{Stop: []string{"cat!"}}, bytes("the cats and a ca"))
		text, last := texts(events)
		assert.Equal(t, "the cats and a ca", text)
		assert.Equal(t, FinishLength, last.Finish)
		assert.Equal(t, "ca", last.Text, "what was held comes with the end")
	})
	t.Run("the stop token is in the tokens, not in the text", func(t *testing.T) {
		events, s := say(t, e, Params{MaxTokens: 40, Stop: []string{"the m"}}, append(encode("the "), eos))
		text, last := texts(events)
		assert.Equal(t, "the ", text)
		assert.Equal(t, FinishStop, last.Finish)
		assert.Empty(t, last.Stopped)
		assert.Equal(t, eos, s.Tokens[len(s.Tokens)-1])
		assert.Equal(t, eos, last.Token)
	})
	t.Run("special tokens", func(t *testing.T) {
		ids := append(append(encode("a"), note), encode("b")...)
		events, _ := say(t, e, Params{}, ids)
		text, _ := texts(events)
		assert.Equal(t, "ab", text)
		events, _ = say(t, e, Params{KeepSpecial: true}, ids)
		text, _ = texts(events)
		assert.Equal(t, "a<|note|>b", text)
	})
	t.Run("ignore_eos, include_stop, stop ids", func(t *testing.T) {
		events, _ := say(t, e, Params{IgnoreEOS: true}, append(append(encode("a"), eos), encode("b")...))
		text, last := texts(events)
		assert.Equal(t, "ab", text)
		assert.Equal(t, FinishLength, last.Finish)
		events, _ = say(t, e, Params{MaxTokens: 9, IncludeStop: true, KeepSpecial: true}, append(encode("a"), eos))
		text, _ = texts(events)
		assert.Equal(t, "a<|endoftext|>", text)
		b := encode("b")[0]
		events, _ = say(t, e, Params{MaxTokens: 9, IgnoreEOS: true, StopIDs: []int32{b}}, append(encode("a"), b))
		text, last = texts(events)
		assert.Equal(t, "a", text)
		assert.Equal(t, FinishStop, last.Finish)
	})
	t.Run("min_tokens", func(t *testing.T) {
		events, _ := say(t, e, Params{MinTokens: 5, MaxTokens: 20, Stop: []string{"a"}}, bytes("banana"))
		text, last := texts(events)
		assert.Equal(t, "banan", text)
		assert.Equal(t, "a", last.Stopped)
	})
}

// TestMinTokensAreSampled: end tokens have no probability before that.
func TestMinTokensAreSampled(t *testing.T) {
	l := newLab(t, "llama-tied", 1)
	e := l.engine(t, nil, Options{})
	stops := everyToken()[10 : 10+MaxStops]
	bias := map[int32]float32{}
	for _, id := range stops {
		bias[id] = 50
	}
	p := Params{MaxTokens: 12, Temperature: 1, StopIDs: stops, LogitBias: bias, N: 4}
	got, err := e.Generate(context.Background(), []Request{{Prompt: prompt(1, 4), Params: p}})
	require.NoError(t, err)
	for _, c := range got {
		require.Len(t, c.Tokens, 1)
		require.Equal(t, FinishStop, c.Finish)
		require.False(t, c.Truncated)
	}
	p.MinTokens = 4
	got, err = e.Generate(context.Background(), []Request{{Prompt: prompt(1, 4), Params: p}})
	require.NoError(t, err)
	for _, c := range got {
		require.Len(t, c.Tokens, 5)
		for _, id := range c.Tokens[:4] {
			require.NotContains(t, stops, id)
		}
		require.Contains(t, stops, c.Tokens[4])
	}
}

// TestFirstSpaceStays: a SentencePiece decoder drops the space that begins a text, and a completion
// does not begin one.
func TestFirstSpaceStays(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "tests", "testdata", "golden-hf", "tokenizers", "spbpe-llama2.tokenizer.json"))
	require.NoError(t, err)
	tok, err := tokenizer.FromJSON(raw, nil)
	require.NoError(t, err)
	ids, err := tok.Encode("Hello the world", tokenizer.EncodeOptions{})
	require.NoError(t, err)
	l := newLab(t, "llama-tied", 1)
	e := l.manual(t, Options{})
	e.tok = tok
	for cut := 1; cut < len(ids); cut++ {
		r := Request{Prompt: ids[:cut], Params: Params{MaxTokens: len(ids) - cut}.withDefaults()}
		q := e.newRequest(&r)
		e.requests[q] = struct{}{}
		for _, id := range ids[cut:] {
			e.accept(&drawn{seq: q.seqs[0], Sampled: sampled(id)})
		}
		got, err := q.stream.Collect(context.Background())
		require.NoError(t, err)
		require.Equal(t, "Hello the world", tok.Decode(ids[:cut], true)+got[0].Text)
	}
}

// TestCharacterBegunByThePrompt is completed by the completion.
func TestCharacterBegunByThePrompt(t *testing.T) {
	tok := letters(t)
	for _, char := range []string{"猫", "ｱ", "é", "😀"} { // the second begins as U+FFFD does
		var ids []int32
		for i := range len(char) {
			id, err := tok.Encode(char[i:i+1], tokenizer.EncodeOptions{PlainText: true})
			require.NoError(t, err)
			ids = append(ids, id...)
		}
		require.Len(t, ids, len(char))
		for cut := 1; cut < len(ids); cut++ {
			r := newTextReader(tok, append([]int32{64}, ids[:cut]...), true)
			text := ""
			for _, id := range append(ids[cut:len(ids):len(ids)], 65) {
				text += r.push(id)
			}
			require.Equal(t, char+tok.Decode([]int32{65}, true), text+r.flush())
		}
	}
}

// TestTextOfGenerate equals the decoded tokens.
func TestTextOfGenerate(t *testing.T) {
	l := newLab(t, "llama-tied", 2)
	tok := letters(t)
	e := l.engine(t, tok, Options{})
	got, err := e.Generate(context.Background(), []Request{
		{Prompt: []int32{10}, Params: Params{N: 4, MaxTokens: 40, Temperature: 1}},
		{Prompt: []int32{10}, Params: Params{N: 4, MaxTokens: 40, Temperature: 1, Stop: []string{"a", "\x00", " "}}},
	})
	require.NoError(t, err)
	for _, c := range got[:4] {
		require.Equal(t, strings.TrimPrefix(tok.Decode(append([]int32{10}, c.Tokens...), true), tok.Decode([]int32{10}, true)), c.Text)
	}
	stopped := 0
	for i, c := range got[4:] {
		require.NotContains(t, c.Text, "a")
		if c.Stopped != "" {
			stopped++
			require.Equal(t, got[i].Tokens[:len(c.Tokens)], c.Tokens, "the draws are the same up to there")
		}
	}
	require.Positive(t, stopped)
}
