package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// llama.cpp's tools: the names of the programs and of their build targets.
const (
	llamaName    = "llama.cpp"
	llamaBench   = "llama-bench"
	llamaBatched = "llama-batched-bench"
)

// peer is one of the others, ready to run a row.
type peer struct {
	name string
	run  func(ctx context.Context) (timing, *os.ProcessState, error)
}

// start makes the peer of a row; nil when ours is measured alone.
func (p *peers) start(ctx context.Context, r *row, path string) (*peer, error) {
	switch {
	case p.folder == "":
		return nil, nil
	case r.Against != llamaName:
		return p.startPython(ctx, r, path)
	}
	return &peer{llamaName, func(ctx context.Context) (t timing, state *os.ProcessState, err error) {
		name, args, read := llamaCommand(r, path, p.threads)
		var out, talk bytes.Buffer
		cmd := exec.CommandContext(ctx, p.tool(name), args...)
		cmd.Stdout, cmd.Stderr = &out, &talk
		if err := cmd.Run(); err != nil {
			return t, cmd.ProcessState, fmt.Errorf("%s: %w\n%s", name, err, tail(talk.String(), 20))
		}
		if t, err = read(out.Bytes(), r); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return t, cmd.ProcessState, err
	}}, nil
}

// llamaCommand says which tool runs a row, how, and who reads its output. Both tools warm up first;
// all other settings are their defaults.
func llamaCommand(r *row, path string, threads int) (name string, args []string, read func([]byte, *row) (timing, error)) {
	if r.Kind != kindGroup {
		prompt, gen := r.Prompt, 0
		if r.Kind == kindDecode {
			prompt, gen = 0, r.New
		}
		return llamaBench, []string{"-m", path, "-t", fmt.Sprint(threads), "-p", fmt.Sprint(prompt), "-n", fmt.Sprint(gen), "-r", "1", "-o", "json"}, readBench
	}
	context := r.Prompt + r.Rows*r.New + 64
	return llamaBatched, []string{"-m", path, "-t", fmt.Sprint(threads), "-c", fmt.Sprint(context), "-kvu", "-pps", "-npp", fmt.Sprint(r.Prompt),
		"-ntg", fmt.Sprint(r.New), "-npl", fmt.Sprint(r.Rows), "--output-format", "jsonl"}, readBatched
}

// readBench reads llama-bench's JSON: one test with its times in nanoseconds.
func readBench(out []byte, r *row) (timing, error) {
	var tests []struct {
		Prompt int     `json:"n_prompt"`
		Gen    int     `json:"n_gen"`
		Nanos  []int64 `json:"samples_ns"`
	}
	if err := json.Unmarshal(out, &tests); err != nil {
		return timing{}, err
	}
	if len(tests) != 1 || len(tests[0].Nanos) != 1 || tests[0].Prompt+tests[0].Gen != r.tokens() {
		return timing{}, fmt.Errorf("not one run of one test of %d tokens: %s", r.tokens(), tail(string(out), 5))
	}
	return timing{Seconds: float64(tests[0].Nanos[0]) / 1e9, Tokens: r.tokens()}, nil
}

// readBatched reads llama-batched-bench's lines, of which one is the row's.
func readBatched(out []byte, r *row) (timing, error) {
	for line := range strings.Lines(string(out)) {
		var test struct {
			Shared  int     `json:"is_pp_shared"`
			Prompt  int     `json:"pp"`
			Gen     int     `json:"tg"`
			Rows    int     `json:"pl"`
			Seconds float64 `json:"t_tg"`
		}
		if json.Unmarshal([]byte(line), &test) != nil {
			continue // talk between the results
		}
		if test.Rows == r.Rows && test.Gen == r.New && test.Prompt == r.Prompt && test.Shared == 1 {
			return timing{Seconds: test.Seconds, Tokens: r.tokens()}, nil
		}
	}
	return timing{}, fmt.Errorf("no result of %d rows sharing a prompt: %s", r.Rows, tail(string(out), 5))
}
