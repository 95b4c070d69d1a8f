package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"graft/cmd/internal/launch"
	"graft/rl"
)

type runsCmd struct {
	Runs string `arg:"" optional:"" help:"Folder of runs." default:"runs"`
	JSON bool   `help:"JSON lines on standard output." name:"json"`
}

// Run lists runs, newest first.
func (r runsCmd) Run(c *console) error {
	if r.Runs != launch.DefaultRuns && !exists(r.Runs) {
		return fmt.Errorf("there is no folder %s; runs are in %s unless --runs said otherwise", r.Runs, launch.DefaultRuns)
	}
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
		c.talk.say("%s holds no runs; rltrain alone makes one in about a minute", r.Runs)
		return nil
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tCOMMAND\tMODEL\tSTATE\tREWARD\tEVAL")
	for _, run := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", run.Dir, run.Command, run.Model, state(run),
			change(run.Summary, "reward_first", "reward_last"), change(run.Summary, "eval_before", "eval_after"))
	}
	return w.Flush()
}

// state says what became of a run and what can be done with it.
func state(run launch.Run) string {
	switch {
	case run.Running:
		return fmt.Sprintf("running, step %d", run.Step)
	case run.Done:
		return "done"
	case run.Checkpoint > 0:
		return fmt.Sprintf("checkpoint %d; resume", run.Checkpoint)
	case !resumable(run):
		return "checkpoints are gone"
	}
	return "stopped before step 1; resume"
}

// resumable tells whether a run can go on: it is not done or under way, and where it has made steps
// it has a checkpoint.
func resumable(run launch.Run) bool {
	if run.Done || run.Running {
		return false
	}
	_, _, err := rl.LatestCheckpoint(run.Dir)
	return err == nil || run.Step == 0
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
