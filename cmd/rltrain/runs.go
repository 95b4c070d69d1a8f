package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"graft/cmd/internal/launch"
)

type runsCmd struct {
	Runs string `arg:"" optional:"" help:"Folder of runs." default:"runs"`
	JSON bool   `help:"JSON lines on standard output." name:"json"`
}

// Run lists runs, newest first.
func (r runsCmd) Run(c *console) error {
	list, err := launch.Runs(r.Runs)
	if err != nil {
		return err
	}
	if r.JSON {
		encoder := json.NewEncoder(c.out)
		for _, run := range list {
			if err := encoder.Encode(run); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		c.talk.say("%s holds no runs; rltrain alone makes one in about 90 seconds", r.Runs)
		return nil
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tCOMMAND\tMODEL\tSTATE\tREWARD\tEVAL")
	for _, run := range list {
		state := "stopped; resume"
		if run.Done {
			state = "done"
		} else if run.Checkpoint == 0 {
			state = "no checkpoint"
		}
		if run.Checkpoint > 0 && !run.Done {
			state = fmt.Sprintf("checkpoint %d; resume", run.Checkpoint)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", run.Dir, run.Command, run.Model, state,
			change(run.Summary, "reward_first", "reward_last"), change(run.Summary, "eval_before", "eval_after"))
	}
	return w.Flush()
}

// change is "before → after" of two figures of a summary.
func change(summary map[string]any, before, after string) string {
	a, okA := summary[before].(float64)
	b, okB := summary[after].(float64)
	if !okA || !okB {
		return ""
	}
	return fmt.Sprintf("%.3f → %.3f", a, b)
}
