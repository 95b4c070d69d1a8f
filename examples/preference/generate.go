//go:build ignore

// Generate writes train.jsonl: preference rows for the embedded model. The chosen answer is right,
// the rejected one is wrong by one or by ten. Only problems of the training split are used, so that
// held-out ones stay held out.
//
//	go run examples/preference/generate.go      # in the repository's root
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"graft/kernels/rng"
	"graft/tiny"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type row struct {
	Prompt   []message `json:"prompt"`
	Chosen   []message `json:"chosen"`
	Rejected []message `json:"rejected"`
}

func main() {
	if err := write("examples/preference/train.jsonl"); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	lines := json.NewEncoder(out)
	draw := rng.New(1, "examples/preference")
	for i, p := range tiny.Problems("train", 1, 256) {
		right, err := strconv.Atoi(p.Answer)
		if err != nil {
			return errors.Join(err, file.Close())
		}
		wrong := right + []int{1, -1, 10, -10}[draw.Below(4, uint32(i), 0, 0)]
		if wrong < 0 {
			wrong = right + 1
		}
		if err := lines.Encode(row{
			Prompt:   []message{{"user", p.Prompt}},
			Chosen:   []message{{"assistant", p.Answer}},
			Rejected: []message{{"assistant", fmt.Sprint(wrong)}},
		}); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(out.Flush(), file.Close())
}
