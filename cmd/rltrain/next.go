package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"graft/cmd/internal/launch"
	"graft/rl"
)

// calledAs is how this program was started, and serve beside it, as a shell takes them.
func calledAs(argv0 string) (rltrain, serve string) {
	if strings.Contains(argv0, "go-build") { // go run, whose program is gone afterwards
		return "go run ./cmd/rltrain", "go run ./cmd/serve"
	}
	dir, name := filepath.Split(argv0)
	serve = "serve"
	if strings.HasSuffix(name, ".exe") {
		serve += ".exe"
	}
	return quoted(argv0), quoted(dir + serve)
}

// quoted is an argument as a shell takes it.
func quoted(arg string) string {
	if arg != "" && !strings.ContainsFunc(arg, func(r rune) bool {
		return !strings.ContainsRune("~@%+=:,./-_", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r < 0x80 && (r != '\\' || runtime.GOOS != "windows")
	}) {
		return arg
	}
	if runtime.GOOS == "windows" {
		return `"` + arg + `"`
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// resumeLine is the command that goes on with a run.
func resumeLine(dir string) string {
	program, _ := calledAs(os.Args[0])
	return program + " resume " + quoted(dir)
}

// hint is something to type, and why.
type hint struct{ command, why string }

// hints are what a run's folder can be used by.
func (t *training) hints() []hint {
	rltrain, serve := calledAs(os.Args[0])
	use := t.naming()
	list := []hint{{rltrain + " chat" + use, "talk to it"}, {serve + use, "serve it over HTTP as OpenAI does"}}
	if t.adapter == nil {
		return list
	}
	if rows := t.evaluating(); rows != "" {
		list = append(list, hint{rltrain + " eval" + use + rows + " --compare-base", "measure it against its base"})
	}
	return append(list, hint{rltrain + " export " + quoted(t.log.Dir()) + " --output ADAPTER", "for PEFT and vLLM; --format gguf for llama.cpp"})
}

// naming are the options that make another command take this run: none where it is the last one of
// the folder that commands look in.
func (t *training) naming() string {
	dir := t.log.Dir()
	if last, err := launch.LastRun(filepath.Dir(dir)); err == nil && filepath.Clean(last.Dir) == filepath.Clean(dir) {
		if root := filepath.Dir(filepath.Clean(dir)); root == filepath.Clean(t.model.Runs) {
			if root == launch.DefaultRuns {
				return ""
			}
			return " --runs " + quoted(root)
		}
	}
	if t.adapter == nil {
		return " --model " + quoted(filepath.Join(dir, launch.ModelFile))
	}
	return " --model " + quoted(t.session.source.Model) + " --adapter " + quoted(dir)
}

// asked are the options that an evaluation shares with the run it measures.
var asked = []string{"prompt_column", "prompt_template", "system_prompt", "chat", "chat_template", "max_prompt_length", "long_rows",
	"reward", "reward_weights", "reward_timeout", "max_completion_length", "max_model_len"}

// evaluating are the options that measure the run as it was measured; "" where it was trained
// without rewards, or on rows that are in no file. Rows held out of the dataset are in the run's
// folder.
func (t *training) evaluating() string {
	values := map[string]setting{}
	for _, s := range t.c.settings {
		values[s.name] = s
	}
	text := func(name string) string {
		if s, ok := values[name]; ok && s.value.IsValid() {
			if v, set := s.plain(); set {
				return fmt.Sprint(v)
			}
		}
		return ""
	}
	names := asked
	rows := text("eval_dataset")
	if t.held != nil {
		rows = filepath.Join(t.log.Dir(), rl.EvalFile)
	}
	if rows == "" {
		rows, names = text("dataset"), append([]string{"max_samples", "dataset_split"}, asked...)
	}
	if rows == "" || text("reward") == "" {
		return ""
	}
	line := " --dataset " + quoted(rows)
	for _, s := range t.c.settings {
		name := strings.ReplaceAll(s.name, "_", "-")
		if !slices.Contains(names, s.name) || !t.c.flags[name] {
			continue
		}
		v, set := s.plain()
		switch list, many := v.([]string); {
		case !set:
		case many:
			for _, one := range list {
				line += " --" + name + " " + quoted(one)
			}
		default:
			if numbers, many := v.([]float64); many {
				v = strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ",")
			}
			line += " --" + name + " " + quoted(fmt.Sprint(v))
		}
	}
	if at := text("eval_temperature"); at != "" && at != "0" {
		line += " --temperature " + at
	}
	return line
}

// next says what to type now. A command is never broken between two lines by this program, so that
// it can be copied: what it is for stands above it where both do not fit beside each other.
func (t *training) next() {
	list := t.hints()
	widest, beside := 0, true
	for _, h := range list {
		widest = max(widest, len(h.command))
	}
	for _, h := range list {
		beside = beside && 2+widest+3+len(h.why) < t.c.talk.width
	}
	t.c.talk.say("run: %s\nnext:", t.log.Dir())
	for _, h := range list {
		if beside {
			t.c.talk.say("  %-*s   %s", widest, h.command, h.why)
		} else {
			t.c.talk.say("  # %s\n  %s", h.why, h.command)
		}
	}
	if t.command == "demo" {
		rltrain, _ := calledAs(os.Args[0])
		t.c.talk.say("the same on a real model (scripts/fetch-models.sh smollm2 gets it, 98 MB):\n  %s", continued(rltrain+" grpo", t.c.talk.width,
			"--model ~/.cache/graft/models/SmolLM2-135M-Instruct.Q4_1.gguf", "--dataset PROMPTS.jsonl", "--reward length:at_most=40"))
	}
}

// continued is a command with its options, broken between options as a shell goes on with a line.
func continued(command string, width int, options ...string) string {
	if whole := command + " " + strings.Join(options, " "); len(whole)+2 < width || runtime.GOOS == "windows" {
		return whole
	}
	return command + " \\\n    " + strings.Join(options, " \\\n    ")
}
