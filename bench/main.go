package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"graft/kernels"
	"graft/kernels/cpu/vec"
)

// options are the command line.
type options struct {
	json     bool
	quick    bool
	models   string
	threads  int
	peers    string
	only     *regexp.Regexp
	rounds   int
	profiles string

	precisions []kernels.Precision
}

// noPeers is the --peers value that measures ours alone.
const noPeers = "none"

func main() {
	// Children inherit the affinity of the thread that starts them, so it must stay one thread.
	runtime.LockOSThread()
	if len(os.Args) == 3 && os.Args[1] == measureCommand {
		exit(measure(os.Args[2], os.Stdout))
	}
	if len(os.Args) == 2 && os.Args[1] == spinCommand {
		exit(spin(os.Stdin, os.Stdout))
	}
	opt, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, opt, os.Stdout, os.Stderr))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// parse reads the command line.
func parse(args []string, talk io.Writer) (*options, error) {
	cache := "graft"
	if home, err := os.UserHomeDir(); err == nil {
		cache = filepath.Join(home, ".cache", "graft")
	}
	models := os.Getenv("GRAFT_MODELS")
	if models == "" {
		models = filepath.Join(cache, "models")
	}
	opt, only, precisions := &options{}, "", ""
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(talk)
	set.BoolVar(&opt.json, "json", false, "print the JSON line alone on stdout, the table on stderr")
	set.BoolVar(&opt.quick, "quick", false, "fewer rows, fewer tokens: under two minutes once the peers are installed")
	set.StringVar(&opt.models, "models", models, "`folder` of the models that scripts/fetch-models.sh brings")
	set.IntVar(&opt.threads, "threads", 0, "`threads` of both sides, each on a core of its own (default: all cores)")
	set.StringVar(&opt.peers, "peers", filepath.Join(cache, "peers"), "`folder` that the peers are installed in; \"none\" measures ours alone")
	set.StringVar(&only, "only", "", "run only rows whose name matches this regular `expression`")
	set.IntVar(&opt.rounds, "rounds", 3, "`times` that each side of a row runs, in turns; at least 3")
	set.StringVar(&precisions, "precision", kernels.PrecisionInt8.String(), "`contracts` that ours computes under: f32, int8, or f32,int8 for a line of each")
	set.StringVar(&opt.profiles, "profiles", "", "write a CPU profile of each of our rows into this `folder`")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; -h lists the options", set.Arg(0))
	}
	var err error
	if opt.only, err = regexp.Compile("(?i)" + only); err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	if opt.precisions, err = parsePrecisions(precisions); err != nil {
		return nil, err
	}
	cores, err := cores()
	if err != nil {
		return nil, err
	}
	if opt.threads == 0 {
		opt.threads = len(cores)
	}
	switch {
	case opt.threads < 1 || opt.threads > len(cores):
		return nil, fmt.Errorf("--threads is %d, but there are %d cores to run on", opt.threads, len(cores))
	case opt.rounds < 3:
		return nil, fmt.Errorf("--rounds is %d; a median and a spread need at least 3", opt.rounds)
	}
	if err := pin(cores[:opt.threads]); err != nil {
		return nil, fmt.Errorf("pinning to %d cores: %w", opt.threads, err)
	}
	return opt, nil
}

// parsePrecisions reads names with commas between them.
func parsePrecisions(names string) (out []kernels.Precision, err error) {
	for name := range strings.SplitSeq(names, ",") {
		p, ok := kernels.ParsePrecision(strings.TrimSpace(name))
		if !ok || slices.Contains(out, p) {
			return nil, fmt.Errorf("--precision is %q, want f32, int8 or f32,int8", names)
		}
		out = append(out, p)
	}
	return out, nil
}

// run is the whole comparison.
func run(ctx context.Context, opt *options, out, talk io.Writer) error {
	begin := time.Now()
	rows, left := choose(opt)
	if len(rows) == 0 {
		return fmt.Errorf("--only %q matches none of the rows", opt.only)
	}
	if err := needModels(opt.models, rows); err != nil {
		return err
	}
	peers, err := install(ctx, opt, rows, talk)
	if err != nil {
		return err
	}
	installed := time.Now()
	rep := newReport(opt, left)
	fmt.Fprintln(talk, "measuring the roof")
	if rep.Roof, err = measureRoof(ctx, opt); err != nil {
		return err
	}
	c := &comparison{opt: opt, peers: peers, roof: rep.Roof, talk: talk}
	var cut error
	for i := range rows {
		fmt.Fprintf(talk, "row %d of %d, %.0f s: %s\n", i+1, len(rows), time.Since(begin).Seconds(), rows[i].Name)
		if cut = c.row(ctx, &rows[i]); cut != nil {
			cut = fmt.Errorf("%s: %w", rows[i].Name, cut)
			for _, r := range rows[i:] {
				rep.Left = append(rep.Left, r.Name)
			}
			break // what was measured is shown all the same
		}
	}
	c.relate(strings.HasPrefix(rep.Roof.Kernel, vec.AVX512.String()))
	rep.Rows = c.done
	rep.finish(installed.Sub(begin), time.Since(installed))
	table := out
	if opt.json {
		table = talk
	}
	return errors.Join(cut, rep.table(table), rep.line(out))
}
