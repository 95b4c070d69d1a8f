package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"

	"graft/infer"
	"graft/kernels"
	"graft/model/tokenizer"
)

// logProb is a log-prob as JSON can hold it: a token that the distribution excludes has -Inf, which
// is written as -9999, as vLLM does.
type logProb float32

func (l logProb) MarshalJSON() ([]byte, error) {
	if v := float64(l); math.IsInf(v, 0) || math.IsNaN(v) {
		return []byte("-9999.0"), nil
	}
	return json.Marshal(float32(l))
}

// tokenText is how a token is written alone: its text, the spelling of a special token, or its bytes
// where they are not whole characters.
func (s *Server) tokenText(id int32) string {
	if s.tok.IsSpecial(id) {
		piece, _ := s.tok.Token(id)
		return piece
	}
	raw := s.tok.Bytes(id)
	if raw == nil {
		return fmt.Sprintf("token_id:%d", id)
	}
	if utf8.Valid(raw) {
		return string(raw)
	}
	text := "bytes:"
	for _, c := range raw {
		text += fmt.Sprintf(`\x%02x`, c)
	}
	return text
}

// completionLogProbs is logprobs of /v1/completions: parallel lists.
type completionLogProbs struct {
	Tokens        []string   `json:"tokens"`
	TokenLogProbs []*logProb `json:"token_logprobs"`
	TopLogProbs   []topMap   `json:"top_logprobs"`
	TextOffset    []int      `json:"text_offset"`
}

// topMap is {token: log-prob} with the most probable token first; nil is null.
type topMap []topEntry

type topEntry struct {
	token string
	logp  logProb
}

func (t topMap) MarshalJSON() ([]byte, error) {
	if t == nil {
		return []byte("null"), nil
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, e := range t {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := encodeJSON(e.token)
		if err != nil {
			return nil, err
		}
		value, err := e.logp.MarshalJSON()
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// topOf lists the most probable tokens, and the token itself if it is not among them.
func (s *Server) topOf(id int32, logp float32, top []kernels.TokenLogP) topMap {
	out := make(topMap, 0, len(top)+1)
	found := false
	for _, t := range top {
		text := s.tokenText(t.ID)
		if t.ID == id {
			found = true
		} else if text == s.tokenText(id) {
			continue // one key, and it is the token's own
		}
		out = append(out, topEntry{text, logProb(t.LogP)})
	}
	if !found {
		out = append(out, topEntry{s.tokenText(id), logProb(logp)})
	}
	return out
}

// offsets follows where tokens begin in the text of a choice, in characters.
type offsets struct {
	stream *tokenizer.Stream
	at     int
}

// newOffsets begins behind the prompt, whose last tokens tell the decoder that it is not at the
// beginning of a text.
func (s *Server) newOffsets(context []int32, special bool) *offsets {
	o := &offsets{stream: s.tok.Stream(!special)}
	const enough = 8
	for _, id := range context[max(0, len(context)-enough):] {
		o.stream.Push(id)
	}
	return o
}

// next is where a token begins, and moves past it.
func (o *offsets) next(id int32) int {
	at := o.at
	o.at += utf8.RuneCountInString(o.stream.Push(id))
	return at
}

// promptLogProbs are the log-probs of a prompt that is echoed.
func (s *Server) promptLogProbs(p prompt, scores *infer.PromptScores) *completionLogProbs {
	l := newLogProbs()
	o := s.newOffsets(nil, true)
	for i, id := range p.ids {
		at := o.next(id)
		if i == 0 {
			if p.bos {
				o.at = 0
			}
			l.add(s.tokenText(id), nil, nil, at)
			continue
		}
		var top []kernels.TokenLogP
		if scores.Top != nil {
			top = scores.Top[i]
		}
		lp := logProb(scores.LogP[i])
		l.add(s.tokenText(id), &lp, s.topOf(id, scores.LogP[i], top), at)
	}
	return l
}

func newLogProbs() *completionLogProbs {
	return &completionLogProbs{Tokens: []string{}, TokenLogProbs: []*logProb{}, TopLogProbs: []topMap{}, TextOffset: []int{}}
}

func (l *completionLogProbs) add(token string, logp *logProb, top topMap, offset int) {
	l.Tokens, l.TokenLogProbs = append(l.Tokens, token), append(l.TokenLogProbs, logp)
	l.TopLogProbs, l.TextOffset = append(l.TopLogProbs, top), append(l.TextOffset, offset)
}

func (l *completionLogProbs) addEvent(s *Server, ev *infer.Event, o *offsets) {
	lp := logProb(ev.LogP)
	l.add(s.tokenText(ev.Token), &lp, s.topOf(ev.Token, ev.LogP, ev.Top), o.next(ev.Token))
}

func (l *completionLogProbs) join(more *completionLogProbs) {
	l.Tokens, l.TokenLogProbs = append(l.Tokens, more.Tokens...), append(l.TokenLogProbs, more.TokenLogProbs...)
	l.TopLogProbs, l.TextOffset = append(l.TopLogProbs, more.TopLogProbs...), append(l.TextOffset, more.TextOffset...)
}

// chatLogProbs is logprobs of /v1/chat/completions.
type chatLogProbs struct {
	Content []chatLogProb `json:"content"`
	Refusal *string       `json:"refusal"`
}

type chatLogProb struct {
	chatTop
	Top []chatTop `json:"top_logprobs"`
}

type chatTop struct {
	Token   string  `json:"token"`
	LogProb logProb `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func (s *Server) chatTop(id int32, logp float32) chatTop {
	t := chatTop{Token: s.tokenText(id), LogProb: logProb(logp), Bytes: []int{}}
	raw := s.tok.Bytes(id)
	if s.tok.IsSpecial(id) {
		raw = []byte(t.Token)
	}
	for _, c := range raw {
		t.Bytes = append(t.Bytes, int(c))
	}
	return t
}

func (l *chatLogProbs) addEvent(s *Server, ev *infer.Event) {
	entry := chatLogProb{chatTop: s.chatTop(ev.Token, ev.LogP), Top: []chatTop{}}
	for _, t := range ev.Top {
		entry.Top = append(entry.Top, s.chatTop(t.ID, t.LogP))
	}
	l.Content = append(l.Content, entry)
}
