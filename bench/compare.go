package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// side is what all runs of one side of a row gave.
type side struct {
	Who    string    `json:"who"`
	Rates  []float64 `json:"tokens_per_s"` // in order of the rounds
	Median float64   `json:"median"`
	Spread float64   `json:"spread"`     // (largest − smallest) / median
	Peak   int64     `json:"peak_bytes"` // resident memory of the process, the largest of all runs
	Roof   float64   `json:"roof_share"` // of what the machine allows for this work
}

// result is a finished row.
type result struct {
	row
	Ours   side     `json:"ours"`
	Theirs *side    `json:"theirs"`      // nil: not measured
	Ratio  *float64 `json:"ratio"`       // ours / theirs
	Memory *float64 `json:"memory"`      // ours / theirs
	Others *float64 `json:"other_cores"` // most that other processes took during a run; nil: unknown
}

// compare runs both sides of a row in turns.
func compare(ctx context.Context, opt *options, r *row, peers *peers, roof Roof, talk io.Writer) (*result, error) {
	path := filepath.Join(opt.models, r.Model)
	e, err := extentOf(path)
	if err != nil {
		return nil, err
	}
	res := &result{row: *r, Ours: side{Who: "graft"}}
	theirs, err := peers.start(ctx, r, path)
	if err != nil {
		return nil, err
	}
	if theirs != nil {
		res.Theirs = &side{Who: theirs.name}
	}
	for round := range opt.rounds {
		j := job{Row: *r, Path: path, Threads: opt.threads}
		if opt.profiles != "" && round == 0 {
			if j.Profile, err = profilePath(opt.profiles, r.Name); err != nil {
				return nil, err
			}
		}
		err := res.timed(&res.Ours, func() (t timing, state *os.ProcessState, err error) {
			state, err = runOurs(ctx, j, &t)
			return t, state, err
		})
		if err != nil {
			return nil, err
		}
		if theirs != nil {
			err := res.timed(res.Theirs, func() (timing, *os.ProcessState, error) { return theirs.run(ctx) })
			if err != nil {
				return nil, fmt.Errorf("%s: %w", theirs.name, err)
			}
			fmt.Fprintf(talk, "  round %d: %.4g against %.4g tok/s\n", round+1, res.Ours.Rates[round], res.Theirs.Rates[round])
		} else {
			fmt.Fprintf(talk, "  round %d: %.4g tok/s\n", round+1, res.Ours.Rates[round])
		}
	}
	atRoof := float64(r.tokens()) / r.bound(e, roof)
	res.Ours.finish(atRoof)
	if res.Theirs != nil {
		res.Theirs.finish(atRoof)
		res.Ratio = quotient(res.Ours.Median, res.Theirs.Median)
		res.Memory = quotient(float64(res.Ours.Peak), float64(res.Theirs.Peak))
	}
	return res, nil
}

// timed does one run of a side and notes its rate, its memory and the load of others.
func (res *result) timed(s *side, run func() (timing, *os.ProcessState, error)) error {
	w := startWatch()
	t, state, err := run()
	if err != nil {
		return err
	}
	if t.Seconds <= 0 || t.Tokens <= 0 {
		return fmt.Errorf("a run of %d tokens in %g s is no measurement", t.Tokens, t.Seconds)
	}
	if o := w.others(cpuTime(state)); o != nil && (res.Others == nil || *o > *res.Others) {
		res.Others = o
	}
	s.Rates = append(s.Rates, float64(t.Tokens)/t.Seconds)
	s.Peak = max(s.Peak, peakBytes(state))
	return nil
}

func (s *side) finish(atRoof float64) {
	s.Median, s.Spread = median(s.Rates), spread(s.Rates)
	s.Roof = s.Median / atRoof
}

// median is the middle value, or the mean of the middle two.
func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// spread is (largest − smallest) / median.
func spread(x []float64) float64 { return (slices.Max(x) - slices.Min(x)) / median(x) }

func quotient(a, b float64) *float64 {
	if a <= 0 || b <= 0 {
		return nil
	}
	q := a / b
	return &q
}

// runOurs runs this binary as a child for one job.
func runOurs(ctx context.Context, j job, answer any) (*os.ProcessState, error) {
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
	return child(cmd, answer)
}

// child runs a command and reads the last line of its output as JSON. What it said on stderr shows
// only in the error.
func child(cmd *exec.Cmd, answer any) (*os.ProcessState, error) {
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Run(); err != nil {
		return cmd.ProcessState, fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, tail(talk.String(), 20))
	}
	if err := json.Unmarshal([]byte(tail(out.String(), 1)), answer); err != nil {
		return cmd.ProcessState, fmt.Errorf("%s: the last line of its output is not the JSON expected: %w\n%s", filepath.Base(cmd.Path), err, tail(out.String(), 5))
	}
	return cmd.ProcessState, nil
}

// tail is the last n lines that are not blank.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

var notName = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// profilePath names the profile of a row.
func profilePath(folder, name string) (string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	return filepath.Join(folder, strings.Trim(notName.ReplaceAllString(name, "-"), "-")+".prof"), nil
}
