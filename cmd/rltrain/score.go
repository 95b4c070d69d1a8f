package main

import (
	"errors"
	"fmt"

	"graft/cmd/internal/launch"
	"graft/infer"
	"graft/model/template"
	"graft/model/tokenizer"
)

type scoreCmd struct {
	modelOptions
	lines
}

// Help is the manual's long text.
func (scoreCmd) Help() string {
	return `Reads {"ids":[…]} or {"text":"…"} or {"messages":[…]}, with an optional "temperature" (default 1), and writes {"ids":[…],"logprobs":[…],"entropies":[…]} in the same order. logprobs[0] is null; logprobs[i] is the log-prob of ids[i] given what is before it, entropies[i] the entropy of the distribution that follows ids[i]. Text gets the tokenizer's special tokens around it unless "add_special" is false; messages are rendered by the chat template, with the beginning of an answer if "add_generation_prompt" says so, or, if it says nothing, if the last message is the user's. The numbers are those that sampling and training compute, bit for bit, under the same --precision; without an adapter auto is always f32, the arithmetic of the programs that the numbers are compared with.`
}

// Run scores line by line.
func (s scoreCmd) Run(c *console) error {
	session, err := s.sampling(c, launch.Scoring, 1)
	if err != nil {
		return err
	}
	defer session.close()
	ctx, done := c.stop.immediate()
	defer done()
	tok := session.source.Files.Tokenizer
	return s.each(c, func(line []byte) (any, error) {
		ids, temperature, err := scoreLine(tok, line)
		if err != nil {
			return nil, err
		}
		if limit := s.maxLen(session); len(ids) > limit {
			return nil, fmt.Errorf("%d tokens, but the model is loaded for %d positions; shorten it or raise --max-model-len", len(ids), limit)
		}
		logp, entropy, err := session.engine.Score(ctx, ids, session.adapter(), temperature)
		if refused := (*infer.RequestError)(nil); errors.As(err, &refused) {
			return nil, errors.New(refused.Message) // a line is one request: its number says nothing
		}
		if err != nil {
			return nil, err
		}
		return struct {
			IDs       []int32    `json:"ids"`
			LogProbs  []*float32 `json:"logprobs"`
			Entropies []float32  `json:"entropies"`
		}{ids, afterFirst(logp), entropy}, nil
	})
}

// afterFirst makes the first entry null: nothing predicts the first token.
func afterFirst(x []float32) []*float32 {
	out := make([]*float32, len(x))
	for i := 1; i < len(x); i++ {
		out[i] = &x[i]
	}
	return out
}

// scoreLine reads what is to be scored.
func scoreLine(tok *tokenizer.Tokenizer, line []byte) (ids []int32, temperature float64, err error) {
	var in struct {
		IDs         []int32  `json:"ids"`
		Text        *string  `json:"text"`
		Messages    any      `json:"messages"`
		Temperature *float64 `json:"temperature"`
		AddSpecial  *bool    `json:"add_special"`
		Open        *bool    `json:"add_generation_prompt"`
	}
	if err := strict(line, &in); err != nil {
		return nil, 0, err
	}
	temperature = 1
	if in.Temperature != nil {
		if temperature = *in.Temperature; !drawable(temperature) {
			return nil, 0, fmt.Errorf("temperature is %g, want 0.0001 to 100", temperature)
		}
	}
	given := 0
	for _, has := range []bool{in.IDs != nil, in.Text != nil, in.Messages != nil} {
		if has {
			given++
		}
	}
	if given != 1 {
		return nil, 0, errors.New(`the line needs exactly one of "ids", "text" and "messages"`)
	}
	switch {
	case in.IDs != nil:
		ids = in.IDs
	case tok == nil:
		return nil, 0, errors.New("the model's files hold no tokenizer; give ids")
	case in.Text != nil:
		ids, err = tok.Encode(*in.Text, tokenizer.EncodeOptions{AddSpecial: in.AddSpecial == nil || *in.AddSpecial})
	default:
		ids, err = scoreMessages(tok, line, in.Open)
	}
	if err == nil && len(ids) == 0 {
		err = errors.New("there are no tokens to score")
	}
	return ids, temperature, err
}

// scoreMessages reads the messages again, with the order of their keys.
func scoreMessages(tok *tokenizer.Tokenizer, line []byte, open *bool) ([]int32, error) {
	v, err := template.DecodeJSON(line)
	if err != nil {
		return nil, err
	}
	list, _ := v.(*template.Map).Get("messages")
	messages, ok := list.([]any)
	if !ok {
		return nil, errors.New(`"messages" is no list`)
	}
	answer := open != nil && *open
	if open == nil && len(messages) > 0 {
		if last, ok := messages[len(messages)-1].(*template.Map); ok {
			role, _ := last.Get("role")
			answer = role == "user"
		}
	}
	return launch.Conversation(tok, messages, answer)
}
