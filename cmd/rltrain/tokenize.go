package main

import (
	"errors"
	"fmt"

	"graft/cmd/internal/launch"
	"graft/model"
	"graft/model/tokenizer"
)

type tokenizeCmd struct {
	Model       string `help:"GGUF file, model folder, tokenizer.json, or tiny; default: the last run's model." placeholder:"MODEL"`
	Runs        string `help:"Folder of runs." default:"runs" placeholder:"DIR"`
	Decode      bool   `help:"The reverse: {\"ids\":[…]} to {\"text\":\"…\"}."`
	SkipSpecial bool   `help:"With --decode: leave special tokens out of the text."`
	lines
}

// Help is the manual's long text.
func (tokenizeCmd) Help() string {
	return `Reads {"text":"…","add_special":true} and writes {"ids":[…]}, one line for each. add_special puts BOS and the like around the text (default false). Special tokens spelled in the text are recognised; "plain_text":true makes them stay text.`
}

// Run tokenizes line by line.
func (t tokenizeCmd) Run(c *console) error {
	if t.SkipSpecial && !t.Decode {
		return usage("--skip-special is for --decode")
	}
	tok, err := openTokenizer(t.Model, t.Runs)
	if err != nil {
		return err
	}
	if t.Decode {
		return t.each(c, func(line []byte) (any, error) { return decodeLine(tok, line, t.SkipSpecial) })
	}
	return t.each(c, func(line []byte) (any, error) { return encodeLine(tok, line) })
}

func encodeLine(tok *tokenizer.Tokenizer, line []byte) (any, error) {
	var in struct {
		Text       *string `json:"text"`
		AddSpecial bool    `json:"add_special"`
		PlainText  bool    `json:"plain_text"`
	}
	if err := strict(line, &in); err != nil {
		return nil, err
	}
	if in.Text == nil {
		return nil, errors.New(`the line has no "text"`)
	}
	ids, err := tok.Encode(*in.Text, tokenizer.EncodeOptions{AddSpecial: in.AddSpecial, PlainText: in.PlainText})
	if err != nil {
		return nil, err
	}
	return struct {
		IDs []int32 `json:"ids"`
	}{append([]int32{}, ids...)}, nil
}

func decodeLine(tok *tokenizer.Tokenizer, line []byte, skipSpecial bool) (any, error) {
	var in struct {
		IDs *[]int32 `json:"ids"`
	}
	if err := strict(line, &in); err != nil {
		return nil, err
	}
	if in.IDs == nil {
		return nil, errors.New(`the line has no "ids"`)
	}
	for i, id := range *in.IDs {
		if _, ok := tok.Token(id); !ok {
			return nil, fmt.Errorf("id %d (place %d) is no token; the vocabulary has %d", id, i, tok.VocabSize())
		}
	}
	return struct {
		Text string `json:"text"`
	}{tok.Decode(*in.IDs, skipSpecial)}, nil
}

func openTokenizer(path, runs string) (*tokenizer.Tokenizer, error) {
	if path != "" && path != launch.Tiny {
		return model.OpenTokenizer(path)
	}
	source, err := launch.Open(launch.Request{Model: path, Runs: runs})
	if err != nil {
		return nil, err
	}
	defer source.Files.Close()
	if source.Files.Tokenizer == nil {
		return nil, fmt.Errorf("%s holds no tokenizer; a model folder needs tokenizer.json beside config.json", source.Model)
	}
	return source.Files.Tokenizer, nil
}
