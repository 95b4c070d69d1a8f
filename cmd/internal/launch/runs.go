package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// DefaultRuns is the folder of runs when nobody names one.
const DefaultRuns = "runs"

// Run is a folder that a training run left or is still writing.
type Run struct {
	Dir        string         `json:"dir"`
	Command    string         `json:"command"`           // grpo, dpo, sft
	Model      string         `json:"model"`             // what its base model was opened by
	Adapter    string         `json:"adapter,omitempty"` // the final adapter, or else the newest checkpoint's
	Trained    string         `json:"trained,omitempty"` // the model that full fine-tuning made
	Done       bool           `json:"done"`
	Running    bool           `json:"running"`    // a process is training in it
	Step       int            `json:"step"`       // last one that was logged, 0: none
	Checkpoint int            `json:"checkpoint"` // newest complete step, 0: none
	Changed    time.Time      `json:"changed"`
	Summary    map[string]any `json:"summary,omitempty"`
}

// Names of a run folder's files, as rl writes them.
const (
	configName  = "config.yaml"
	summaryName = "summary.json"
	adapterName = "adapter"
)

// Runs lists the runs of a folder, newest first. A missing folder holds none.
func Runs(root string) ([]Run, error) {
	if root == "" {
		root = DefaultRuns
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("runs: %w", err)
	}
	var out []Run
	for _, e := range entries {
		if run, err := ReadRun(filepath.Join(root, e.Name())); err == nil {
			out = append(out, run)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Changed.After(out[j].Changed) })
	return out, nil
}

// ReadRun describes one run folder.
func ReadRun(dir string) (Run, error) {
	run := Run{Dir: dir}
	raw, err := os.ReadFile(filepath.Join(dir, configName))
	if _, missing := os.Stat(dir); errors.Is(missing, fs.ErrNotExist) {
		return run, fmt.Errorf("there is no folder %s; name the folder of a run (rltrain runs lists them)", dir)
	}
	if err != nil {
		return run, fmt.Errorf("%s is not a run: it has no readable %s", dir, configName)
	}
	var config struct {
		Command string `yaml:"command"`
		Model   string `yaml:"model"`
	}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		return run, fmt.Errorf("%s: %w", filepath.Join(dir, configName), err)
	}
	run.Command, run.Model = config.Command, config.Model
	if run.Command == "demo" {
		run.Model = Tiny // the demo has no option for it
	}
	run.Changed = changed(dir, configName)
	if raw, err := os.ReadFile(filepath.Join(dir, summaryName)); err == nil {
		if json.Unmarshal(raw, &run.Summary) == nil {
			run.Done, run.Changed = true, changed(dir, summaryName)
		}
	}
	run.Running, run.Step = !run.Done && Running(dir), lastStep(dir)
	run.Checkpoint = newestCheckpoint(dir)
	if run.Checkpoint > 0 {
		if at := changed(dir, checkpointName(run.Checkpoint)); at.After(run.Changed) {
			run.Changed = at
		}
	}
	dirs := []string{filepath.Join(dir, adapterName)}
	if run.Checkpoint > 0 {
		dirs = append(dirs, filepath.Join(dir, checkpointName(run.Checkpoint), adapterName))
	}
	for _, at := range dirs {
		if _, err := os.Stat(filepath.Join(at, "adapter_config.json")); err == nil && run.Adapter == "" {
			run.Adapter = at
		}
	}
	if path := filepath.Join(dir, ModelFile); run.Adapter == "" {
		if _, err := os.Stat(path); err == nil {
			run.Trained = path
		}
	}
	return run, nil
}

func checkpointName(step int) string { return fmt.Sprintf("checkpoint-%d", step) }

// newestCheckpoint is the highest N of the checkpoint-N folders.
func newestCheckpoint(dir string) int {
	found, _ := filepath.Glob(filepath.Join(dir, "checkpoint-*"))
	best := 0
	for _, f := range found {
		if n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(f), "checkpoint-")); err == nil {
			best = max(best, n)
		}
	}
	return best
}

func changed(dir, name string) time.Time {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// LastRun is the newest run that has something to use.
func LastRun(root string) (Run, error) {
	runs, err := Runs(root)
	if err != nil {
		return Run{}, err
	}
	for _, r := range runs {
		if r.Adapter != "" || r.Trained != "" {
			return r, nil
		}
	}
	if root == "" {
		root = DefaultRuns
	}
	return Run{}, fmt.Errorf("no --model, and %s holds no run with an adapter; give --model FILE.gguf, a folder, or --model %s (embedded), or train first", root, Tiny)
}
