//go:build ignore

// Reward is a reward as a program of its own, for --reward "exec:go run examples/reward_exec/reward.go".
// It answers JSON lines: one request on standard input, one answer on standard output. Any language
// will do; this one needs nothing but Go.
//
// A completion scores 1 if its last number is the column "answer", and 0.2 if it is another number.
// Completions that were cut off by the length limit are skipped (null).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
)

// request is one batch. Fields that a reward does not read may be left out.
type request struct {
	ID      int64    `json:"id"`
	Samples []sample `json:"samples"`
}

type sample struct {
	Completion string         `json:"completion"`
	Truncated  bool           `json:"truncated"`
	Columns    map[string]any `json:"columns"`
}

// answer holds one score per sample, in order; nil is null: this reward does not apply.
type answer struct {
	ID     int64      `json:"id"`
	Scores []*float64 `json:"scores,omitempty"`
	Error  string     `json:"error,omitempty"` // stops the run
}

func main() {
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	out := json.NewEncoder(os.Stdout) // writes each line at once
	number := regexp.MustCompile(`-?\d+`)
	for {
		var q request
		if err := in.Decode(&q); err == io.EOF {
			return // the trainer is done with us
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "reward:", err)
			os.Exit(1)
		}
		a := answer{ID: q.ID}
		for i, s := range q.Samples {
			gold, ok := s.Columns["answer"]
			if !ok {
				a.Scores, a.Error = nil, fmt.Sprintf("sample %d has no column answer", i)
				break
			}
			a.Scores = append(a.Scores, score(number, s, fmt.Sprint(gold)))
		}
		if err := out.Encode(a); err != nil {
			fmt.Fprintln(os.Stderr, "reward:", err)
			os.Exit(1)
		}
	}
}

func score(number *regexp.Regexp, s sample, gold string) *float64 {
	if s.Truncated {
		return nil
	}
	value := 0.0
	if all := number.FindAllString(s.Completion, -1); len(all) > 0 {
		if value = 0.2; all[len(all)-1] == gold {
			value = 1
		}
	}
	return &value
}
