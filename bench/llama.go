package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

// llama.cpp's tools: the names of the programs and of their build targets.
const (
	llamaName    = "llama.cpp"
	llamaBench   = "llama-bench"
	llamaBatched = "llama-batched-bench"
)

// llamaRunner runs a row in llama.cpp's own tools.
func (p *peers) llamaRunner(r *row, path string) runner {
	name, args, read := llamaCommand(r, path, p.threads)
	return &processes{who: llamaName,
		command: func(ctx context.Context) (*exec.Cmd, error) {
			return exec.CommandContext(ctx, p.tool(name), args...), nil
		},
		read: func(out []byte) (timing, error) { return read(out, r) }}
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
