package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// start builds rltrain and times it from the start of the process to the first byte that it answers
// to one message. A first run, not counted, warms the page cache.
func (c *comparison) start(ctx context.Context, r *row) ([]result, error) {
	folder, err := os.MkdirTemp("", "graft-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	program := filepath.Join(folder, "rltrain.exe")
	if _, err := output(exec.CommandContext(ctx, "go", "build", "-o", program, "graft/cmd/rltrain")); err != nil {
		return nil, fmt.Errorf("building rltrain (run bench inside the module): %w", err)
	}
	res := &result{row: *r, Unit: seconds, Ours: side{Who: "graft"}}
	for round := range c.opt.rounds + 1 {
		cmd := exec.CommandContext(ctx, program, "chat", "--model", filepath.Join(c.opt.models, r.Model), "--max-tokens", "8",
			"--precision", r.Precision, "--threads", fmt.Sprint(c.opt.threads))
		cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", c.opt.threads))
		w := startWatch()
		took, err := firstByte(cmd, "Hello!\n")
		if err != nil {
			return nil, err
		}
		if round == 0 {
			continue
		}
		fmt.Fprintf(c.talk, "  round %d: %.3f s\n", round, took.Seconds())
		res.load(w.others(cpuTime(cmd.ProcessState)))
		res.Ours.Values = append(res.Ours.Values, took.Seconds())
		res.Ours.Peak = max(res.Ours.Peak, peakBytes(cmd.ProcessState))
	}
	res.finish(0)
	return []result{*res}, nil
}

// firstByte runs a command that is told one message, and times its first byte of output from the
// moment before the process exists.
func firstByte(cmd *exec.Cmd, message string) (time.Duration, error) {
	var talk strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(message), &talk
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_, silent := io.ReadFull(out, make([]byte, 1))
	took := time.Since(begin)
	_, rest := io.Copy(io.Discard, out)
	if err := errors.Join(cmd.Wait(), silent, rest); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, tail(talk.String(), 20))
	}
	return took, nil
}
