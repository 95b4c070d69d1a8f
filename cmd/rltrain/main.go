// Command rltrain tunes language models by reinforcement on this machine: GRPO, DPO and SFT of a
// GGUF or safetensors model, with evaluation, chat and export of what came out.
//
// Without arguments it tunes the embedded model and shows the whole loop in about a minute.
//
// This package is flags and wiring: it names the backend, opens what the person named, and hands
// over to rl, infer and rewards. It holds no algorithm. stdout is for data, stderr for talk. Exit
// codes: 0 done, 1 failed, 2 wrong usage, 3 stopped and resumable.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"graft/cmd/internal/launch"
)

// Exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitStopped = 3
)

func main() {
	launch.CollectSeldom()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// errUsage is a mistake on the command line: exit code 2.
type errUsage struct{ error }

func usage(format string, args ...any) error { return errUsage{fmt.Errorf(format, args...)} }

// mistake is what is wrong with a command line, or with a file that is not there: the line may be right, and the
// code is that of every absent file.
func mistake(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errUsage{err}
}

// errStopped is a run that was stopped and can go on: exit code 3.
type errStopped struct{ dir string }

func (e errStopped) Error() string {
	return "stopped; go on with: " + resumeLine(e.dir)
}

// console is where a command reads and writes, and what it is told about stopping.
type console struct {
	in       io.Reader
	out      io.Writer
	talk     *talk
	stop     *stopper
	flags    map[string]bool // options that were given, by flag, environment or file
	room     func() string   // what the run under way needs of the disk; nil: there is none
	settings []setting       // every option of the command with its value, for config.yaml
}

// exit is how kong ends the program from inside a parse: help and version.
type exit int

// run is the program: it never calls os.Exit, so tests run it in their own process.
func run(args []string, in io.Reader, out, errs io.Writer) (code int) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case exit:
			code = int(e)
		default:
			panic(e) // a bug of ours: never a quiet success
		}
	}()
	c := &console{in: in, out: out, talk: newTalk(errs)}
	fail := func(err error) int {
		c.talk.end()
		run := ""
		if c.room != nil {
			run = c.room()
		}
		fmt.Fprintf(errs, "rltrain: %s%s\n", oneMessage(err), spaceText(err, run))
		var u errUsage
		var s errStopped
		switch {
		case errors.As(err, &u):
			return exitUsage
		case errors.As(err, &s):
			return exitStopped
		}
		return exitFailed
	}
	var tree commands
	parsed, err := parse(&tree, args, c)
	if err != nil {
		return fail(err)
	}
	c.stop = listen(c.talk)
	defer c.stop.close()
	err = parsed.Run(c)
	if errors.Is(err, errDone) {
		err = nil
	}
	if err != nil {
		if errors.Is(err, context.Canceled) && c.stop.aborted() {
			err = errors.New("aborted by the second signal; the last checkpoint, if there is one, is whole")
		} else if errors.Is(err, context.Canceled) && c.stop.wanted() {
			err = errors.New("stopped by the signal before there was anything to keep")
		}
		return fail(err)
	}
	c.talk.end()
	return exitDone
}

// oneMessage drops the package names in front of messages: they are for programmers.
func oneMessage(err error) string {
	text := err.Error()
	for _, room := range []string{"rl", "model", "infer", "weights", "rewards", "launch", "grpo", "dpo", "sft"} {
		text = strings.ReplaceAll(text, room+": ", "")
	}
	return text
}

// commands is the whole command line.
type commands struct {
	Config string `help:"YAML file of options, named as flags are; flags and GRAFT_* variables are stronger." placeholder:"FILE"`

	Demo     demoCmd     `cmd:"" default:"withargs" hidden:"" help:"Tune the embedded model: what happens without arguments."`
	GRPO     grpoCmd     `cmd:"" name:"grpo" group:"train" set:"model_default=Needed: there is no default." help:"Tune a model by reinforcement: sample groups, score them, move the adapter."`
	DPO      dpoCmd      `cmd:"" name:"dpo" group:"train" set:"model_default=Needed: there is no default." help:"Tune on preference rows (chosen, rejected)."`
	SFT      sftCmd      `cmd:"" name:"sft" group:"train" set:"model_default=Needed: there is no default." help:"Tune on examples."`
	Resume   resumeCmd   `cmd:"" group:"train" help:"Go on with a run that was stopped."`
	Eval     evalCmd     `cmd:"" group:"use" help:"Measure a model on a dataset with rewards."`
	Chat     chatCmd     `cmd:"" group:"use" help:"Talk to a model."`
	Score    scoreCmd    `cmd:"" group:"use" help:"Log-probs and entropies of given ids or text, JSON lines."`
	Tokenize tokenizeCmd `cmd:"" group:"use" help:"Text to token ids and back, JSON lines."`
	Template templateCmd `cmd:"" group:"use" help:"Render chat templates, JSON lines."`
	Reward   rewardCmd   `cmd:"" group:"use" help:"Try a reward before training with it."`
	Plan     planCmd     `cmd:"" group:"look" set:"model_default=Needed: there is no default." help:"Memory that a run would take, without loading the model."`
	Doctor   doctorCmd   `cmd:"" group:"look" help:"Check this machine: processor, kernels against the reference, memory, Python, folders."`
	Export   exportCmd   `cmd:"" group:"use" help:"Write a run's adapter for other tools, and read it back to check."`
	Runs     runsCmd     `cmd:"" group:"look" help:"List runs."`
	Version  versionCmd  `cmd:"" group:"look" help:"Print the version."`
}

type versionCmd struct{}

// Run prints what was built from what.
func (versionCmd) Run(c *console) error {
	fmt.Fprintln(c.out, "rltrain", launch.Version())
	return nil
}

func newParser(tree *commands, c *console, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(tree, append([]kong.Option{
		kong.Name("rltrain"),
		kong.Description("Graft tunes a language model by reinforcement, in one process, on this machine's processor.\n\n" +
			"Without a command it tunes the embedded model and measures it before and after, in about a minute. " +
			"Options are flags, or GRAFT_* variables (--max-steps is GRAFT_MAX_STEPS), or keys of the YAML file --config, the first being the strongest. " +
			"Exit codes: 0 done, 1 failed, 2 wrong usage, 3 stopped and resumable."),
		launch.Variables(),
		kong.Vars{"rewards": rewardNames(), "auto_precision": autoPrecision(), "model_default": "Default: the last run's model with its adapter."},
		kong.ValueFormatter(optionHelp),
		kong.Writers(c.out, c.out),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 110}),
		kong.ExplicitGroups([]kong.Group{{Key: "train", Title: "Train:"}, {Key: "use", Title: "Use:"}, {Key: "look", Title: "Look:"}}),
	}, options...)...)
}
