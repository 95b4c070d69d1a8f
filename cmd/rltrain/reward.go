package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"graft/rewards"
	"graft/rl"
)

type rewardCmd struct {
	Test rewardTestCmd `cmd:"" help:"Score rows of a dataset, or completions that you give, and check the reward's contract."`
	List rewardListCmd `cmd:"" help:"List the built-in rewards."`
}

type rewardListCmd struct{}

// Run prints the table of rewards.
func (rewardListCmd) Run(c *console) error {
	for _, i := range rewards.Describe() {
		fmt.Fprintf(c.out, "%s\n    %s\n", i.Syntax, i.Doc)
	}
	return nil
}

type rewardTestCmd struct {
	rewardOptions
	Dataset          string   `help:"Rows that give the columns: .jsonl, .json, .csv, .tsv, .parquet, also .gz and .zst." placeholder:"PATH"`
	MaxSamples       int      `help:"Rows to use." default:"8" placeholder:"N"`
	CompletionColumn string   `help:"Column that is scored; default: completion, else answer, else solution." placeholder:"NAME"`
	PromptColumn     string   `help:"Column of the prompt; default: prompt, else question, else problem." placeholder:"NAME"`
	Completion       []string `help:"Text to score instead of a column, for every row." sep:"none" placeholder:"TEXT"`
	Column           []string `help:"Column of every row, as answer=42; repeatable." sep:"none" placeholder:"NAME=VALUE"`
	JSON             bool     `help:"JSON on standard output." name:"json"`

	columns map[string]any // of Column
}

// columns reads NAME=VALUE.
func columns(list []string) (map[string]any, error) {
	out := map[string]any{}
	for _, given := range list {
		name, value, ok := strings.Cut(given, "=")
		if !ok || name == "" {
			return nil, usage("--column is %q, want NAME=VALUE, as answer=42", given)
		}
		if _, twice := out[name]; twice {
			return nil, usage("--column gives %s twice", name)
		}
		out[name] = value
	}
	return out, nil
}

// Help is the manual's long text.
func (rewardTestCmd) Help() string {
	return "Scores every sample twice and tells whether the reward keeps its contract: one finite number (or null) a completion, in time, and the same the second time. Exit code 1 if it does not.\n\nSpecs are NAME or NAME:ARGUMENTS, with a weight in front as in 0.5*format:think. 'rltrain reward list' shows all. A Python reward has TRL's signature:\n\n    def fn(prompts, completions, completion_ids, **columns) -> list[float | None]"
}

// Run tests every reward that was given.
func (t rewardTestCmd) Run(c *console) error {
	list, err := t.parse()
	if err != nil {
		return err
	}
	defer rewards.Close(list)
	if err := between("max-samples", t.MaxSamples, 1, 1<<20, "8 show most mistakes"); err != nil {
		return err
	}
	if t.columns, err = columns(t.Column); err != nil {
		return err
	}
	samples, err := t.samples()
	if err != nil {
		return err
	}
	ctx, done := c.stop.immediate()
	defer done()
	var failed []string
	for _, f := range list {
		r := rewards.Test(ctx, f.Func, samples)
		if len(t.Completion) == 1 { // groups of one have nothing to compare
			r.Warnings = slices.DeleteFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "no variance in a group") })
		}
		if err := t.print(c, samples, r); err != nil {
			return err
		}
		if !r.OK() {
			failed = append(failed, t.told(r.Err))
		}
	}
	if failed != nil {
		return errors.New(strings.Join(failed, "\n"))
	}
	return nil
}

// told adds what this command has to offer where a column is missing.
func (t rewardTestCmd) told(err error) string {
	var broken *rewards.Error
	if errors.As(err, &broken) && broken.Kind == rewards.KindColumn {
		return fmt.Sprintf("%v; rows come from --dataset, and --column NAME=VALUE adds a column to them", err)
	}
	return err.Error()
}

func (t rewardTestCmd) print(c *console, samples []rewards.Sample, r rewards.Report) error {
	if t.JSON {
		out := map[string]any{"reward": r.Name, "ok": r.OK(), "samples": r.Samples, "skipped": r.Skipped, "min": r.Min, "max": r.Max,
			"mean": r.Mean, "std": r.Std, "deterministic": r.Deterministic, "warnings": r.Warnings,
			"first_seconds": r.First.Seconds(), "second_seconds": r.Second.Seconds()}
		values := make([]*float64, len(r.Scores))
		for i := range r.Scores {
			if !r.Scores[i].Skip {
				values[i] = &r.Scores[i].Value
			}
		}
		out["scores"] = values
		if r.Err != nil {
			out["error"] = r.Err.Error()
		}
		return json.NewEncoder(c.out).Encode(out)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\t%d samples, first pass %v, second %v\n", r.Name, r.Samples, r.First.Round(1e3), r.Second.Round(1e3))
	for i, s := range r.Scores {
		fmt.Fprintf(w, "  %s\t%.60q\n", s, samples[i].Completion)
	}
	if r.OK() {
		fmt.Fprintf(w, "  mean %.4g\tmin %.4g, max %.4g, standard deviation %.4g, %d skipped\n", r.Mean, r.Min, r.Max, r.Std, r.Skipped)
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(w, "  warning:\t%s\n", text)
	}
	return w.Flush()
}

// samples makes what is scored.
func (t rewardTestCmd) samples() ([]rewards.Sample, error) {
	if t.Dataset == "" {
		if len(t.Completion) == 0 {
			return nil, usage("give --dataset rows, or --completion texts to score")
		}
		if t.CompletionColumn != "" || t.PromptColumn != "" {
			return nil, usage("--completion-column and --prompt-column name columns of a --dataset, and there is none")
		}
		return t.texts(rl.NewRow(0, t.columns), 0)
	}
	d, err := rl.OpenDataset(t.Dataset, rl.DatasetOptions{Limit: t.MaxSamples})
	if err != nil {
		return nil, err
	}
	var out []rewards.Sample
	for i, row := range d.Rows {
		if len(t.Completion) > 0 {
			more, err := t.texts(row, i)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
			continue
		}
		name := pick(row, t.CompletionColumn, "completion", "answer", "solution")
		text, err := row.Text(name)
		if err != nil {
			return nil, err
		}
		out = append(out, t.sample(row, text, i, 0))
	}
	return out, nil
}

func (t rewardTestCmd) texts(row rl.Row, group int) ([]rewards.Sample, error) {
	var out []rewards.Sample
	for i, text := range t.Completion {
		out = append(out, t.sample(row, text, group, i))
	}
	return out, nil
}

func (t rewardTestCmd) sample(row rl.Row, text string, group, index int) rewards.Sample {
	prompt, _ := row.Text(pick(row, t.PromptColumn, "prompt", "question", "problem"))
	all := row.Columns()
	if len(t.columns) > 0 {
		all = maps.Clone(all)
		maps.Copy(all, t.columns)
	}
	s := rewards.Sample{Prompt: prompt, Completion: text, Columns: all, Group: group, Index: index}
	// Without a model there are no tokens; words stand for them, so that length rewards say something.
	for i := range strings.Fields(text) {
		s.CompletionIDs = append(s.CompletionIDs, int32(i))
	}
	return s
}

// pick is the column asked for, else the first of names that the row has, else the first name.
func pick(row rl.Row, asked string, names ...string) string {
	if asked != "" {
		return asked
	}
	for _, n := range names {
		if _, ok := row.Get(n); ok {
			return n
		}
	}
	return names[0]
}
