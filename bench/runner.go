package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// sample is one run of one side.
type sample struct {
	timing
	used time.Duration // processor time of the process meanwhile
	peak int64         // resident bytes, 0: told by close
}

func (s sample) rate() float64 { return float64(s.Tokens) / s.Seconds }

// runner is one side of a row, ready to run it again and again.
type runner interface {
	name() string
	tried() map[string]float64 // tok/s of what was tried to choose its settings; nil: nothing was
	run(ctx context.Context) (sample, error)
	close() (peak int64, err error) // the runner has ended; further calls do nothing
}

// processes is a runner that starts a fresh process for every run.
type processes struct {
	who     string
	command func(ctx context.Context) (*exec.Cmd, error)
	read    func(out []byte) (timing, error)
}

func (p *processes) name() string              { return p.who }
func (p *processes) tried() map[string]float64 { return nil }
func (p *processes) close() (int64, error)     { return 0, nil }

func (p *processes) run(ctx context.Context) (s sample, err error) {
	cmd, err := p.command(ctx)
	if err != nil {
		return s, err
	}
	out, err := output(cmd)
	if err != nil {
		return s, err
	}
	if s.timing, err = p.read(out); err != nil {
		return s, fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	s.used, s.peak = cpuTime(cmd.ProcessState), peakBytes(cmd.ProcessState)
	return s, nil
}

// output runs a command. What it said on stderr shows only in the error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, tail(talk.String(), 20))
	}
	return out.Bytes(), nil
}

// cpuTime is the processor time of a finished child and of its own children.
func cpuTime(p *os.ProcessState) time.Duration { return p.UserTime() + p.SystemTime() }

// tail is the last n lines that are not blank.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// ours runs rows of ours: this binary as a child, a fresh one each time.
func (c *comparison) ours(r *row, path string) runner {
	profile := c.opt.profiles
	return &processes{who: "graft",
		command: func(ctx context.Context) (*exec.Cmd, error) {
			j := job{Row: *r, Path: path, Threads: c.opt.threads}
			if profile != "" { // of the first run only: sampling costs a little
				var err error
				if j.Profile, err = profilePath(profile, r.Name+" "+r.Precision); err != nil {
					return nil, err
				}
				profile = ""
			}
			return j.command(ctx)
		},
		read: func(out []byte) (t timing, err error) { return t, lastJSON(out, &t) }}
}

// theirs makes the other side of a row; nil when ours is measured alone, or when an earlier row's
// runs serve this one.
func (c *comparison) theirs(ctx context.Context, r *row, path string) (runner, error) {
	if r.Against == secondName {
		second := *r
		second.Second = true
		us := c.ours(&second, path).(*processes)
		us.who = secondName
		return us, nil
	}
	if r.Against == "" || c.peers.folder == "" || c.alike(r) != nil {
		return nil, nil
	}
	if r.Against == llamaName {
		return c.peers.llamaRunner(r, path), nil
	}
	return c.peers.pythonRunner(ctx, r, path, c.talk)
}

// secondName is our step with what a stack of two forwards adds.
const secondName = "with an old-log-prob forward"

// command is this binary as the child that does the job.
func (j job) command(ctx context.Context) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, measureCommand, string(spec))
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", j.Threads))
	return cmd, nil
}

// do runs the job once and reads its answer.
func (j job) do(ctx context.Context, answer any) (*os.ProcessState, error) {
	cmd, err := j.command(ctx)
	if err != nil {
		return nil, err
	}
	out, err := output(cmd)
	if err != nil {
		return nil, err
	}
	return cmd.ProcessState, lastJSON(out, answer)
}

// lastJSON reads the last line of a child's output.
func lastJSON(out []byte, answer any) error {
	if err := json.Unmarshal([]byte(tail(string(out), 1)), answer); err != nil {
		return fmt.Errorf("the last line of its output is not the JSON expected: %w\n%s", err, tail(string(out), 5))
	}
	return nil
}

var notName = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// profilePath names the profile of a row.
func profilePath(folder, name string) (string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	return filepath.Join(folder, strings.Trim(notName.ReplaceAllString(name, "-"), "-")+".prof"), nil
}
