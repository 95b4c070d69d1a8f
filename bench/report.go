package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the whole comparison: what the table shows and the JSON line holds.
type report struct {
	Date     string   `json:"date"`
	Machine  string   `json:"machine"`
	System   string   `json:"system"`
	Threads  int      `json:"threads"`
	Rounds   int      `json:"rounds"`
	Quick    bool     `json:"quick"`
	Roof     Roof     `json:"roof"`
	Rows     []result `json:"rows"`
	Left     []string `json:"left_out"`
	LoadFrom string   `json:"load_average_before"`
	LoadTo   string   `json:"load_average_after"`
	Others   *float64 `json:"other_cores"` // most of any row
	Quiet    *bool    `json:"quiet"`       // nothing else ran; nil: unknown
	Install  float64  `json:"install_seconds"`
	Seconds  float64  `json:"seconds"`
}

func newReport(opt *options, left []string) *report {
	return &report{
		Date: time.Now().UTC().Format(time.RFC3339), Machine: processor(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Threads: opt.threads, Rounds: opt.rounds, Quick: opt.quick, Left: left, LoadFrom: loadAverage(),
	}
}

func (r *report) finish(install, took time.Duration) {
	r.Install, r.Seconds, r.LoadTo = install.Seconds(), took.Seconds(), loadAverage()
	r.Others = r.Roof.Others
	for _, row := range r.Rows {
		if row.Others != nil && (r.Others == nil || *row.Others > *r.Others) {
			r.Others = row.Others
		}
	}
	if r.Others != nil {
		quiet := *r.Others < disturbed
		r.Quiet = &quiet
	}
}

// table writes the comparison for people.
func (r *report) table(w io.Writer) error {
	fmt.Fprintf(w, "\n%s, %s, %d threads, %s, %d rounds\n", r.Machine, r.System, r.Threads, r.Date, r.Rounds)
	fmt.Fprintf(w, "roof: read %.1f GB/s, FMA %.0f GFLOP/s (%s)\n\n", r.Roof.GBs, r.Roof.GFLOPS, r.Roof.Kernel)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "row\tprecision\tunit\tours\tspread\troof\ttheirs\tspread\troof\tratio\tMB\ttheirs\tmemory\tasked\tother cores\tagainst")
	for i := range r.Rows {
		fmt.Fprintln(t, strings.Join(r.Rows[i].cells(), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nvalues are medians, spread is (largest − smallest) / median, MB the peak of resident memory.\n"+
		"roof: share of the rate at which the weights' bytes or products alone would bind this machine; docs/bench.md says what each row is.")
	r.tally(w)
	switch {
	case r.Quiet == nil:
		fmt.Fprintln(w, "load: this system does not tell what other processes took; nothing vouches for these figures.")
	case *r.Quiet:
		fmt.Fprintf(w, "load: other processes took at most %.2f cores during a run (load average %s before, %s after).\n", *r.Others, r.LoadFrom, r.LoadTo)
	default:
		fmt.Fprintf(w, "load: NOT QUIET: other processes took up to %.2f cores during a run (load average %s before, %s after);\n"+
			"rows marked * are indicative only, and a peer that spins at barriers suffers more than its share.\n", *r.Others, r.LoadFrom, r.LoadTo)
	}
	if len(r.Left) > 0 {
		fmt.Fprintf(w, "left out: %s.\n", strings.Join(r.Left, "; "))
	}
	fmt.Fprintf(w, "took %.0f s, and %.0f s to look for and install the peers.\n", r.Seconds, r.Install)
	return nil
}

// tally says how much of what is asked was reached.
func (r *report) tally(w io.Writer) {
	met, missed, unknown := 0, []string{}, 0
	for i := range r.Rows {
		for _, g := range r.Rows[i].Goals {
			switch {
			case g.Met == nil:
				unknown++
			case *g.Met:
				met++
			default:
				missed = append(missed, fmt.Sprintf("%s: %s", r.Rows[i].Name, g))
			}
		}
	}
	fmt.Fprintf(w, "asked: %d met, %d not, %d not measured.\n", met, len(missed), unknown)
	for _, m := range missed {
		fmt.Fprintln(w, "  not met:", m)
	}
}

// cells are a row of the table.
func (r *result) cells() []string {
	out := append([]string{r.Name, dash(r.Precision), r.Unit}, r.Ours.cells()...)
	peak, against := "-", r.Against
	if r.Theirs != nil {
		out, peak, against = append(out, r.Theirs.cells()...), mega(r.Theirs.Peak), r.Theirs.about()
	} else {
		out = append(out, "-", "-", "-")
		if against != "" {
			against = "(" + against + " not measured)"
		}
	}
	if r.Ours.Kept != nil {
		against = strings.TrimSuffix(fmt.Sprintf("alone %.4g; %s", median(r.Ours.Quiet), against), "; ")
	}
	return append(out, number("%.2f", r.Ratio, 1), mega(r.Ours.Peak), peak, number("%.0f%%", r.Memory, 100), goalsText(r.Goals), coresText(r.Others), against)
}

func (s *side) cells() []string {
	return []string{fmt.Sprintf("%.4g", s.Median), fmt.Sprintf("%.0f%%", 100*s.Spread), number("%.0f%%", s.Roof, 100)}
}

// about is who was measured, and in which of several ways.
func (s *side) about() string {
	text := s.Who
	if s.Kept != nil {
		text += fmt.Sprintf(" (alone %.4g, kept %.2f)", median(s.Quiet), *s.Kept)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Tried)) {
		switch rate := s.Tried[name]; {
		case strings.HasSuffix(s.Who, name):
		case rate == 0:
			text += fmt.Sprintf(" (%s far slower)", name)
		default:
			text += fmt.Sprintf(" (%s %.2f of it in a trial)", name, rate/slices.Max(slices.Collect(maps.Values(s.Tried))))
		}
	}
	return text
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func number(format string, x *float64, scale float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf(format, scale**x)
}

func mega(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", float64(bytes)/1e6)
}

// line writes the comparison for machines.
func (r *report) line(w io.Writer) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", raw)
	return err
}

// processor is the name of the machine's processor, as far as the system tells.
func processor() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(raw)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "unknown processor"
}
