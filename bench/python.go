package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"time"
)

const (
	peftName = "PEFT"
	trlName  = "TRL"
)

//go:embed python/lora.py
var loraScript string

//go:embed python/grpo.py
var grpoScript string

// script is a Python process that has loaded a model and does one step for every line it reads.
// Loading takes longer than a step, so the process stays; it sleeps while ours runs.
type script struct {
	who, dtype string
	row        *row
	cmd        *exec.Cmd
	in         io.WriteCloser
	out        *bufio.Reader
	talk       bytes.Buffer
	rates      map[string]float64
	ended      bool
}

// pythonRunner tries a quarter of the row's prompts in each precision and keeps the faster one:
// processors without bfloat16 emulate it, others gain by it. Then it warms up at the row's own size.
func (p *peers) pythonRunner(ctx context.Context, r *row, path string, talk io.Writer) (_ runner, err error) {
	var best *script
	defer func() {
		if err != nil && best != nil {
			best.close()
		}
	}()
	rates, limit := map[string]float64{}, time.Duration(math.MaxInt64)
	for _, dtype := range []string{"float32", "bfloat16"} {
		begin := time.Now()
		s, rate, err := p.try(ctx, r, path, dtype, limit)
		if err != nil {
			return nil, fmt.Errorf("%s in %s: %w", r.Against, dtype, err)
		}
		fmt.Fprintf(talk, "  %s in %s: a small step at %.4g tok/s\n", r.Against, dtype, rate)
		limit = 2*time.Since(begin) + 20*time.Second
		switch rates[dtype] = rate; {
		case best == nil:
			best = s
		case rate > rates[best.dtype]:
			best.close()
			best = s
		case s != nil:
			s.close()
		}
	}
	best.rates, best.row = rates, r
	if _, err = best.run(ctx); err != nil { // warm
		return nil, err
	}
	return best, nil
}

// try starts a process and gives its rate at a small size. One that takes longer than the limit is
// ended: nil and 0.
func (p *peers) try(ctx context.Context, r *row, path, dtype string, limit time.Duration) (*script, float64, error) {
	small := *r
	small.Groups = max(1, r.Groups/4)
	small.Rows = r.Rows / r.Groups * small.Groups
	s, err := p.startScript(ctx, &small, path, dtype)
	if err != nil {
		return nil, 0, err
	}
	slow := time.AfterFunc(limit, func() { s.cmd.Process.Kill() })
	var t sample
	for range 2 { // the first warms up
		if t, err = s.run(ctx); err != nil {
			break
		}
	}
	if inTime := slow.Stop(); !inTime && ctx.Err() == nil {
		s.close()
		return nil, 0, nil
	}
	if err != nil {
		s.close()
		return nil, 0, err
	}
	return s, float64(t.Tokens) / t.Seconds, nil
}

// startScript starts the Python of a row.
func (p *peers) startScript(ctx context.Context, r *row, path, dtype string) (*script, error) {
	text := loraScript
	if r.Kind == kindGRPO {
		text = grpoScript
	}
	spec, err := json.Marshal(map[string]any{"path": path, "dtype": dtype, "threads": p.threads})
	if err != nil {
		return nil, err
	}
	s := &script{who: r.Against, dtype: dtype, row: r}
	s.cmd = exec.CommandContext(ctx, p.python(), "-c", text, string(spec))
	s.cmd.Env = append(os.Environ(), fmt.Sprintf("OMP_NUM_THREADS=%d", p.threads), "HF_HUB_OFFLINE=1", "TRL_EXPERIMENTAL_SILENCE=1",
		"TOKENIZERS_PARALLELISM=false", "WANDB_DISABLED=true", "HF_HUB_DISABLE_PROGRESS_BARS=1", "TRANSFORMERS_VERBOSITY=error")
	s.cmd.Stderr = &s.talk
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	return s, s.cmd.Start()
}

func (s *script) name() string              { return s.who + " " + s.dtype }
func (s *script) tried() map[string]float64 { return s.rates }

// run asks for one step and waits for the answer.
func (s *script) run(context.Context) (got sample, err error) {
	line, err := json.Marshal(map[string]int{"rows": s.row.Rows, "groups": s.row.Groups, "prompt": s.row.Prompt, "new": s.row.New})
	if err != nil {
		return got, err
	}
	if _, err := s.in.Write(append(line, '\n')); err != nil {
		return got, s.failed(err)
	}
	got, err = readStep(s.out)
	if err != nil {
		return got, s.failed(err)
	}
	return got, nil
}

// failed ends the process, for its last words.
func (s *script) failed(err error) error {
	if _, ended := s.close(); ended != nil {
		err = ended
	}
	return fmt.Errorf("%w\n%s", err, tail(s.talk.String(), 20))
}

// close ends the process and tells its peak of resident memory.
func (s *script) close() (int64, error) {
	if s.ended {
		return 0, nil
	}
	s.ended = true
	s.in.Close()
	if err := s.cmd.Wait(); err != nil {
		return 0, err
	}
	return peakBytes(s.cmd.ProcessState), nil
}

// readStep reads lines until one is a script's answer; libraries print what they like before it.
func readStep(out *bufio.Reader) (sample, error) {
	for {
		line, err := out.ReadBytes('\n')
		var answer struct {
			timing
			CPU float64 `json:"cpu_seconds"`
		}
		if json.Unmarshal(line, &answer) == nil && answer.Seconds > 0 {
			return sample{timing: answer.timing, used: time.Duration(answer.CPU * float64(time.Second))}, nil
		}
		if err != nil {
			return sample{}, fmt.Errorf("no answer: %w", err)
		}
	}
}
