//go:build ignore

// Generate writes train.jsonl and test.jsonl: products of a one-digit and a two-digit number, as
// questions with the answer. The same program writes the same files; no problem is in both.
//
//	go run examples/arithmetic/generate.go      # in the repository's root
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"graft/kernels/rng"
)

type row struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

func main() {
	var all []row
	for a := 3; a <= 9; a++ {
		for b := 12; b <= 99; b++ {
			all = append(all, row{fmt.Sprintf("What is %d * %d? Answer with the number only.", a, b), fmt.Sprint(a * b)})
		}
	}
	order := rng.New(1, "examples/arithmetic").Permutation(len(all), 0)
	for _, part := range []struct {
		name     string
		from, to int
	}{{"train", 0, 256}, {"test", 256, 320}} {
		var rows []row
		for _, i := range order[part.from:part.to] {
			rows = append(rows, all[i])
		}
		if err := write(filepath.Join("examples", "arithmetic", part.name+".jsonl"), rows); err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}

func write(path string, rows []row) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	lines := json.NewEncoder(out)
	for _, r := range rows {
		if err := lines.Encode(r); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(out.Flush(), file.Close())
}
