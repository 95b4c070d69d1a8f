package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

const (
	peftName = "PEFT"
	trlName  = "TRL"
)

//go:embed python/lora.py
var loraScript string

//go:embed python/grpo.py
var grpoScript string

// pythonJob is what a script reads from its one argument.
type pythonJob struct {
	Path    string `json:"path"`
	DType   string `json:"dtype"`
	Threads int    `json:"threads"`
	Rows    int    `json:"rows"`
	Groups  int    `json:"groups"`
	Prompt  int    `json:"prompt"`
	New     int    `json:"new"`
}

// startPython tries a quarter of the row's prompts in each precision, so that the peer is measured at
// its best: processors without bfloat16 emulate it many times slower, others gain by it.
func (p *peers) startPython(ctx context.Context, r *row, path string) (*peer, error) {
	best, rate, trial := "", 0.0, *r
	trial.Groups = max(1, r.Groups/4)
	trial.Rows = r.Rows / r.Groups * trial.Groups
	for _, dtype := range []string{"float32", "bfloat16"} {
		t, _, err := p.runPython(ctx, &trial, path, dtype)
		if err != nil {
			return nil, fmt.Errorf("%s in %s: %w", r.Against, dtype, err)
		}
		if got := float64(t.Tokens) / t.Seconds; got > rate {
			best, rate = dtype, got
		}
	}
	return &peer{r.Against + " " + best, func(ctx context.Context) (timing, *os.ProcessState, error) {
		return p.runPython(ctx, r, path, best)
	}}, nil
}

func (p *peers) runPython(ctx context.Context, r *row, path, dtype string) (t timing, state *os.ProcessState, err error) {
	script := loraScript
	if r.Kind == kindGRPO {
		script = grpoScript
	}
	spec, err := json.Marshal(pythonJob{Path: path, DType: dtype, Threads: p.threads, Rows: r.Rows, Groups: r.Groups, Prompt: r.Prompt, New: r.New})
	if err != nil {
		return t, nil, err
	}
	cmd := exec.CommandContext(ctx, p.python(), "-c", script, string(spec))
	cmd.Env = append(os.Environ(), fmt.Sprintf("OMP_NUM_THREADS=%d", p.threads), "HF_HUB_OFFLINE=1", "TRL_EXPERIMENTAL_SILENCE=1",
		"TOKENIZERS_PARALLELISM=false", "WANDB_DISABLED=true",
		"HF_HUB_DISABLE_PROGRESS_BARS=1", "TRANSFORMERS_VERBOSITY=error")
	state, err = child(cmd, &t)
	return t, state, err
}
