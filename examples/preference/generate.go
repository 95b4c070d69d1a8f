//go:build ignore

// Generate makes preference rows of a model's own mistakes: for each answer that a reward gave 0, the right answer as
// chosen and that answer as rejected. In the repository's root:
//
//	go run examples/preference/generate.go questions     # writes questions.jsonl, and test.jsonl of problems held out
//	go run ./cmd/rltrain eval --model tiny --dataset examples/preference/questions.jsonl --reward exact \
//	  --temperature 1 --max-completion-length 6 --completions answers.jsonl
//	go run examples/preference/generate.go pairs examples/preference/questions.jsonl answers.jsonl >examples/preference/train.jsonl
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

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

// question is a row that was asked.
type question struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

// answer is a line of eval's completions.
type answer struct {
	Row        int     `json:"row"`
	Completion string  `json:"completion"`
	Finish     string  `json:"finish"`
	Reward     float64 `json:"reward"`
}

func main() {
	err := errors.New("want: questions, or pairs QUESTIONS ANSWERS")
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "questions":
		err = errors.Join(ask("questions.jsonl", "train", 1024), ask("test.jsonl", "test", 256))
	case len(args) == 3 && args[0] == "pairs":
		err = write(os.Stdout, args[1], args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// ask writes n problems of a split that the embedded model knows.
func ask(name, split string, n int) error {
	file, err := os.Create(filepath.Join("examples", "preference", name))
	if err != nil {
		return err
	}
	lines := json.NewEncoder(file)
	for _, p := range tiny.Problems(split, 1, n) {
		if err := lines.Encode(question{p.Prompt, p.Answer}); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}

// write makes one row of each mistake; the same mistake twice is one row.
func write(to io.Writer, asked, answered string) error {
	questions, err := read[question](asked)
	if err != nil {
		return err
	}
	answers, err := read[answer](answered)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(to)
	lines := json.NewEncoder(out)
	seen := map[answer]bool{}
	for _, a := range answers {
		if a.Row < 0 || a.Row >= len(questions) {
			return fmt.Errorf("%s answers row %d of %d", answered, a.Row, len(questions))
		}
		if a.Reward != 0 || a.Finish != "stop" || a.Completion == "" || seen[a] {
			continue
		}
		seen[a] = true
		q := questions[a.Row]
		if err := lines.Encode(row{
			Prompt:   []message{{"user", q.Question}},
			Chosen:   []message{{"assistant", q.Answer}},
			Rejected: []message{{"assistant", a.Completion}},
		}); err != nil {
			return err
		}
	}
	return out.Flush()
}

// read decodes a file of JSON lines.
func read[T any](path string) (list []T, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for decoder := json.NewDecoder(file); ; {
		var v T
		if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, v)
	}
}
