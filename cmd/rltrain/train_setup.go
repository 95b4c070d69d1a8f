package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"graft/cmd/internal/launch"
	"graft/model"
	"graft/rl"
	"graft/tiny"
)

// noEffect are options that change where, how fast or how loud a run is, but not one bit of its
// result: a resumed run may have other ones.
var noEffect = []string{"model", "adapter", "runs", "threads", "memory_limit", "save_steps", "save_total_limit", "logging_steps",
	"gradient_checkpointing", "reward_timeout", "max_num_seqs", "dataset", "dry_run"}

// errDone ends a command that found its work done: exit code 0.
var errDone = errors.New("the run is done")

// begin finds the checkpoint to resume from and opens the model.
func (t *training) begin() error {
	if t.run.Resume != "" {
		if err := t.findCheckpoint(); err != nil {
			return err
		}
	}
	var err error
	options := t.model
	if t.resume != nil {
		if options.Precision, err = t.kept(); err != nil {
			return err
		}
		options.Adapter = launch.NoAdapter // the checkpoint's is loaded, wherever the first one is by now
	}
	if t.session, err = options.open(t.c, launch.Training, model.Options{Trained: t.lora.Full}); err != nil {
		return err
	}
	if t.session.source.Files.Tokenizer == nil {
		return fmt.Errorf("%s holds no tokenizer; a model folder needs tokenizer.json beside config.json", t.session.source.Model)
	}
	if t.lora.Full {
		if err := launch.CanTrainFully(t.session.source); err != nil {
			return err
		}
	}
	t.base, err = fingerprint(t.session.source.Model)
	return err
}

// findCheckpoint looks where a run stopped. A script may resume whatever it killed: a run that is
// done tells its summary again, and one that was stopped before its first checkpoint begins again.
func (t *training) findCheckpoint() error {
	dir := t.run.Resume
	if t.run.OutputDir != "" && filepath.Clean(t.run.OutputDir) != filepath.Clean(dir) {
		return usage("--output-dir %s has no effect with --resume %s: the run goes on in its own folder", t.run.OutputDir, dir)
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--resume: there is no folder %s; name the folder of a run (rltrain runs lists them), or leave --resume out to begin a new one there", dir)
	}
	if err := free(dir); err != nil {
		return err
	}
	if sum, err := rl.ReadSummary(dir); err == nil {
		t.c.talk.say("%s is done; nothing is left to resume. Train on from its adapter with --adapter %s", dir, dir)
		if t.run.JSON {
			if err := json.NewEncoder(t.c.out).Encode(sum); err != nil {
				return err
			}
		}
		return errDone
	}
	checkpoint, passed, err := rl.LatestCheckpoint(dir)
	if errors.Is(err, rl.ErrNoCheckpoint) {
		if _, statErr := os.Stat(filepath.Join(dir, rl.ConfigFile)); statErr != nil {
			return fmt.Errorf("%s is not the folder of a run: %w", dir, err)
		}
		if info, statErr := os.Stat(filepath.Join(dir, rl.MetricsFile)); statErr == nil && info.Size() > 0 {
			return fmt.Errorf("%s has made steps, but its checkpoints are gone: %w; start again in another folder", dir, err)
		}
		t.c.talk.say("%s was stopped before its first checkpoint: it begins again", dir)
		t.run.OutputDir, t.run.Resume = dir, ""
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range passed {
		t.c.talk.say("passed over: %s", oneMessage(p))
	}
	if checkpoint.HasAdapter() == t.lora.Full {
		return usage("%s trains %s; --full does not fit it", dir, map[bool]string{true: "an adapter", false: "the whole model"}[checkpoint.HasAdapter()])
	}
	t.resume = checkpoint
	return nil
}

// kept is the contract of the checkpoint: a run ends under the one it began under.
func (t *training) kept() (string, error) {
	was, err := t.resume.Precision()
	if err != nil {
		return "", err
	}
	if asked := t.model.Precision; asked != "" && asked != launch.Auto && asked != was.String() {
		return "", usage("--precision %s: %s was trained under %s, and a run goes on under the contract it began under; leave --precision out, or start a new run", asked, t.resume.Path, was)
	}
	return was.String(), nil
}

// free refuses a folder that a process is training in.
func free(dir string) error {
	if !launch.Running(dir) {
		return nil
	}
	return fmt.Errorf("%s is under way in another process; wait for it, or stop that first (Ctrl-C saves a checkpoint)", dir)
}

func fingerprint(path string) (string, error) {
	if path == launch.Tiny {
		return rl.FingerprintBytes(tiny.Model()), nil
	}
	return rl.Fingerprint(path)
}

// openLog makes the run's folder, or checks that a resumed run is the same one and opens its.
func (t *training) openLog(text func([]int32) string) error {
	if err := t.early.Err(); err != nil {
		return err
	}
	dir := t.run.OutputDir
	if t.resume != nil {
		dir = filepath.Dir(t.resume.Path)
	} else if dir == "" {
		dir = t.newDir()
	}
	if err := free(dir); err != nil {
		return err
	}
	var err error
	if t.options, err = t.deciding(); err != nil {
		return err
	}
	options := rl.RunLogOptions{Dir: dir, Rewards: t.rewards, Text: text}
	if t.resume != nil {
		if err := t.resume.CheckResume(t.base, rl.LayoutOf(t.session.backend), t.session.source.Files.Precision(), t.options); err != nil {
			return err
		}
		options.Resume = &t.resume.State.Log
	} else {
		options.Config = t.config()
	}
	if t.log, err = rl.OpenRunLog(options); err != nil || t.held == nil {
		return err
	}
	return t.held.WriteEvaluation(dir)
}

// rehearse ends a --dry-run, after all checks that need no weights: it prints the plan and returns errDone.
func (t *training) rehearse(rows string) error {
	if !t.run.DryRun {
		return nil
	}
	if dir := t.run.OutputDir; dir != "" {
		if err := checks(free(dir), rl.Vacant(dir)); err != nil {
			return err
		}
	}
	if err := printPlan(t.c, t.session, t.run.JSON); err != nil {
		return err
	}
	t.c.talk.say("dry run: %s, %d steps, on %s, precision %s; nothing was loaded or written", rows, t.optim.MaxSteps, t.session.backend.Name(), t.session.source.Files.Precision())
	return errDone
}

// newDir is a folder name that is not taken: command, model and time.
func (t *training) newDir() string {
	name := filepath.Base(t.session.source.Model)
	name = strings.ToLower(strings.TrimSuffix(name, ".gguf"))
	root := t.model.Runs
	for i := 0; ; i++ {
		dir := filepath.Join(root, fmt.Sprintf("%s-%s-%s", t.command, name, time.Now().Format("0102-150405")))
		if i > 0 {
			dir += "-" + strconv.Itoa(i)
		}
		if _, err := os.Stat(dir); err != nil {
			return dir
		}
	}
}

// deciding are the options that decide the result, as text.
func (t *training) deciding() (map[string]string, error) {
	out := map[string]string{}
	for _, s := range t.c.settings {
		if slices.Contains(noEffect, s.name) || s.name == "num_train_epochs" || s.name == "precision" || // the checkpoint says it itself
			s.name == "max_steps" && strings.HasPrefix(t.optim.LrSchedulerType, "constant") {
			continue
		}
		if v, ok := s.plain(); ok {
			out[s.name] = fmt.Sprint(v)
		}
	}
	for _, name := range []string{"dataset", "eval_dataset"} {
		path := ""
		for _, s := range t.c.settings {
			if s.name == name {
				path = s.value.String()
			}
		}
		delete(out, name)
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("--%s %w", strings.ReplaceAll(name, "_", "-"), err)
		}
		out[name] = path
		if !info.IsDir() {
			if out[name], err = rl.Fingerprint(path); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// plain is the option's value as YAML has it; false for one that is not set.
func (s setting) plain() (any, bool) {
	switch v := s.value.Interface().(type) {
	case time.Duration:
		return v.String(), true
	case launch.Bytes:
		return strconv.FormatInt(int64(v), 10), v != 0
	case *bool:
		if v == nil {
			return nil, false
		}
		return *v, true
	case *float64:
		if v == nil {
			return nil, false
		}
		return *v, true
	case string:
		return v, v != ""
	case []string:
		return v, len(v) > 0
	case []float64:
		return v, len(v) > 0
	default:
		return v, true
	}
}

// config is every option with its value, in the order of the command's help.
func (t *training) config() *yaml.Node {
	top := &yaml.Node{Kind: yaml.MappingNode}
	add := func(name string, v any) {
		key, value := &yaml.Node{}, &yaml.Node{}
		if key.Encode(name) == nil && value.Encode(v) == nil {
			top.Content = append(top.Content, key, value)
		}
	}
	add("command", t.command)
	for _, s := range t.c.settings {
		if v, ok := s.plain(); ok && s.name != "num_train_epochs" { // max_steps says it
			add(s.name, v)
		}
	}
	return top
}

// resuming rewrites "resume [DIR] …" and "… --resume" without a value to a command with
// --resume DIR, and takes the options of the run's config.yaml unless another file is named.
func resuming(args []string) ([]string, error) {
	if len(args) > 0 && args[0] == "resume" && !slices.Contains(args, "-h") && !slices.Contains(args, "--help") {
		dir, rest := folder(args[1:])
		if dir == "" {
			var err error
			if dir, err = unfinished(rest); err != nil {
				return nil, err
			}
		}
		run, err := launch.ReadRun(runDir(dir))
		if err != nil {
			return nil, err
		}
		if run.Command == "" {
			return nil, fmt.Errorf("%s: config.yaml does not say which command made the run", dir)
		}
		args = append([]string{run.Command, "--resume=" + runDir(dir)}, rest...)
	}
	for i, a := range args {
		if a != "--resume" {
			continue
		}
		if i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			args = slices.Concat(args[:i], []string{"--resume=" + runDir(args[i+1])}, args[i+2:])
			break
		}
		dir, err := unfinished(args)
		if err != nil {
			return nil, err
		}
		args = slices.Concat(args[:i], []string{"--resume=" + dir}, args[i+1:])
		break
	}
	return args, nil
}

// folder takes the folder out of the arguments of resume: the first that is no option and no
// option's value.
func folder(args []string) (dir string, rest []string) {
	switches := switchNames()
	for i := 0; i < len(args); i++ {
		switch name, _, found := strings.Cut(args[i], "="); {
		case !strings.HasPrefix(name, "-"):
			return args[i], slices.Concat(args[:i], args[i+1:])
		case !found && !slices.Contains(switches, strings.TrimPrefix(strings.TrimPrefix(name, "--"), "no-")):
			i++ // its value
		}
	}
	return "", args
}

// runDir is the run that a path means: a checkpoint's folder stands for its run.
func runDir(path string) string {
	if strings.HasPrefix(filepath.Base(path), "checkpoint-") {
		return filepath.Dir(filepath.Clean(path))
	}
	return filepath.Clean(path)
}

// unfinished is the folder that the arguments name, or else the newest run that can go on.
func unfinished(args []string) (string, error) {
	root := launch.DefaultRuns
	for i, a := range args {
		name, value, found := strings.Cut(a, "=")
		if !found && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "--output-dir":
			return value, nil
		case "--runs":
			root = value
		}
	}
	runs, err := launch.Runs(root)
	if err != nil {
		return "", err
	}
	for _, r := range runs {
		if resumable(r) {
			return r.Dir, nil
		}
	}
	for _, r := range runs {
		if r.Running {
			return "", fmt.Errorf("no run in %s is unfinished but %s, which is under way in another process", root, r.Dir)
		}
	}
	return "", errors.New("no run in " + root + " is unfinished; name the run's folder")
}

type resumeCmd struct {
	Dir string `arg:"" optional:"" help:"The run's folder; default: the last unfinished run."`
}

// Help is the manual's long text.
func (resumeCmd) Help() string {
	return "Goes on with grpo, dpo or sft from the last whole checkpoint, with the options of the run's config.yaml; options given here are stronger. A resumed run ends with the same adapter, bit for bit, as one that was never stopped; options that would change that are refused."
}

// Run is never reached: parse turns resume into the run's own command.
func (resumeCmd) Run(*console) error { return usage("name the run's folder: rltrain resume DIR") }
