package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
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
	fmt.Fprintln(t, "row\tours tok/s\tspread\troof\ttheirs tok/s\tspread\troof\tratio\tpeak MB\ttheirs MB\tother cores\tagainst")
	for i := range r.Rows {
		fmt.Fprintln(t, strings.Join(r.Rows[i].cells(), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nroof: share of the rate at which the weights' bytes or products alone would bind this machine.")
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

// cells are a row of the table.
func (r *result) cells() []string {
	theirs := []string{"-", "-", "-"}
	ratio, megabytes, against := "-", "-", "-"
	if r.Theirs != nil {
		theirs, megabytes, against = r.Theirs.cells(), mega(r.Theirs.Peak), r.Theirs.Who
	}
	if r.Ratio != nil {
		ratio = fmt.Sprintf("%.2f", *r.Ratio)
	}
	out := append([]string{r.Name}, r.Ours.cells()...)
	out = append(out, theirs...)
	return append(out, ratio, mega(r.Ours.Peak), megabytes, coresText(r.Others), against)
}

func (s *side) cells() []string {
	return []string{fmt.Sprintf("%.4g", s.Median), fmt.Sprintf("%.0f%%", 100*s.Spread), fmt.Sprintf("%.0f%%", 100*s.Roof)}
}

func mega(bytes int64) string {
	if bytes == 0 {
		return "?"
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
