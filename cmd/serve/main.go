// Command serve answers the OpenAI API over HTTP from one model and its adapters on this machine.
//
// It is flags and wiring: it plans memory and refuses what does not fit, loads the model, starts the
// engine, and only then listens, so that a server that answers is a server that is ready. SIGINT or
// SIGTERM lets the requests under way end. stdout gets one line, the address; stderr is for talk.
// Exit codes: 0 stopped as asked, 1 failed or requests were cut at the end, 2 wrong usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"graft/cmd/internal/launch"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	launch.CollectSeldom()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, signals))
}

// errUsage is a mistake on the command line: exit code 2.
type errUsage struct{ error }

func usage(format string, args ...any) error { return errUsage{fmt.Errorf(format, args...)} }

// exit is how kong ends the program from inside a parse: help and version.
type exit int

// run is the program: it never calls os.Exit, so tests run it in their own process.
func run(args []string, out, errs io.Writer, signals <-chan os.Signal) (code int) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case exit:
			code = int(p)
		default:
			panic(p)
		}
	}()
	var f flags
	err := f.parse(args, out)
	if err == nil {
		err = f.check()
	}
	if err == nil {
		err = serve(context.Background(), &f, out, errs, signals)
	}
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(errs, "serve: %s\n", oneMessage(err))
	var mistake errUsage
	if errors.As(err, &mistake) {
		return exitUsage
	}
	return exitFailed
}

// oneMessage drops the package names in front of messages: they are for programmers.
func oneMessage(err error) string {
	text := err.Error()
	for _, room := range []string{"openai", "model", "infer", "weights"} {
		text = strings.ReplaceAll(text, room+": ", "")
	}
	return text
}

const description = `Serve answers the OpenAI API over HTTP from one model and its adapters.

Endpoints: /v1/models, /v1/completions, /v1/chat/completions (JSON and server-sent events), /tokenize, /detokenize ` +
	`(both under /v1 too), /tokenizer_info, /metrics, /health, /ping, /version, and with --allow-runtime-lora-updating /v1/load_lora_adapter and ` +
	`/v1/unload_lora_adapter. Defaults of a request are OpenAI's: temperature 1, top_p 1, max_tokens 16 for completions ` +
	`and the rest of the context for chat. Tools are given to the chat template. Calls in the form of Qwen and Hermes, Llama 3 or Mistral, by the template, are ` +
	`answered as tool_calls; what is no whole call stays text, and so do calls of other models. Fields that would change the result and are not supported are refused by name.

The server listens once the model is loaded. Its address is the one line on standard output. SIGINT or SIGTERM ends it ` +
	`after the requests under way. When --drain-timeout is over, or on a second signal, those that are left are answered ` +
	`503 with code shutting_down, streams by an event. Options are also read from GRAFT_* variables ` +
	`(--api-key is GRAFT_API_KEY). Exit codes: 0 stopped as asked, everybody was answered; 1 failed, ` +
	`or requests were cut when the server stopped; 2 wrong usage.`

// parse reads the command line and the environment.
func (f *flags) parse(args []string, out io.Writer) error {
	parser, err := kong.New(f,
		kong.Name("serve"),
		kong.Description(description),
		launch.Variables(),
		kong.Vars{"auto_precision": launch.Answering.Precision().String(), "version": "serve " + launch.Version()},
		kong.Writers(out, out),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 110}),
	)
	if err != nil {
		return err
	}
	plain := make([]string, len(args))
	for i, arg := range args {
		name, value, found := strings.Cut(arg, "=")
		if plain[i] = arg; strings.HasPrefix(name, "--") { // underscores in names are accepted
			plain[i] = strings.ReplaceAll(name, "_", "-")
			if found {
				plain[i] += "=" + value
			}
		}
	}
	if _, err := parser.Parse(plain); err != nil {
		return errUsage{err}
	}
	return nil
}
