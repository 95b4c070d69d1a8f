package rl

import (
	"bufio"
	"errors"
	"fmt"
	"graft/weights/durable"
	"io"
	"sort"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// WriteCompletions makes completions.parquet from an event log: one row a completion, with step,
// tokens, text, total reward, one column for each reward function, and advantage. The file is a view:
// it is written aside and renamed, and can be made again at any time. A parquet file ends with its
// index, so it cannot be appended to; the log can.
func WriteCompletions(path, events string, text func(ids []int32) string) (err error) {
	names, err := rewardNames(events)
	if err != nil {
		return err
	}
	r, err := OpenEvents(events)
	if err != nil {
		return err
	}
	defer r.Close()
	err = durable.WriteFile(path, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<20)
		return errors.Join(writeCompletions(out, r, names, text), out.Flush())
	})
	if err != nil {
		return fmt.Errorf("rl: %s: %w", path, err)
	}
	return nil
}

// rewardNames lists the rewards of all steps: a resumed run may not change them, but a log is read
// as it is.
func rewardNames(events string) ([]string, error) {
	r, err := OpenEvents(events)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	seen := map[string]bool{}
	var names []string
	for {
		s, err := r.Next()
		if err == io.EOF {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		for _, n := range distinct(s.Rewards) {
			if !seen[n] {
				seen[n] = true
				names = append(names, n)
			}
		}
	}
}

// distinct numbers names that occur twice: two rewards may be of one spec with other weights.
func distinct(names []string) []string {
	count := map[string]int{}
	out := make([]string, len(names))
	for i, n := range names {
		if count[n]++; count[n] > 1 {
			n = fmt.Sprintf("%s#%d", n, count[n])
		}
		out[i] = n
	}
	return out
}

// rewardColumn is the column of a reward; the prefix keeps a reward named "step" apart.
func rewardColumn(name string) string { return "reward/" + name }

// rowsPerGroup bounds what the writer holds before it writes.
const rowsPerGroup = 4096

func writeCompletions(w io.Writer, r *EventReader, names []string, text func(ids []int32) string) error {
	columns := parquet.Group{
		"step": parquet.Int(64), "row": parquet.Int(64), "group": parquet.Int(64), "sample": parquet.Int(64), "version": parquet.Int(64),
		"reward": parquet.Leaf(parquet.DoubleType), "advantage": parquet.Leaf(parquet.DoubleType), "truncated": parquet.Leaf(parquet.BooleanType),
		"prompt_ids": parquet.List(parquet.Int(32)), "completion_ids": parquet.List(parquet.Int(32)),
	}
	if text != nil {
		columns["prompt"], columns["completion"] = parquet.String(), parquet.String()
	}
	for _, n := range names {
		columns[rewardColumn(n)] = parquet.Optional(parquet.Leaf(parquet.DoubleType))
	}
	order := make([]string, 0, len(columns))
	for name := range columns {
		order = append(order, name)
	}
	sort.Strings(order) // as a Group orders its fields
	out := parquet.NewWriter(w, parquet.NewSchema("completion", columns), parquet.Compression(&zstd.Codec{}),
		parquet.MaxRowsPerRowGroup(rowsPerGroup), parquet.CreatedBy("graft", "1", ""))
	for {
		s, err := r.Next()
		if err == io.EOF {
			return out.Close()
		}
		if err != nil {
			return err
		}
		rows := make([]parquet.Row, 0, len(s.Rollouts))
		for i := range s.Rollouts {
			rows = append(rows, completionRow(&s, &s.Rollouts[i], order, text))
		}
		if _, err := out.WriteRows(rows); err != nil {
			return err
		}
	}
}

func completionRow(s *EventStep, r *Rollout, order []string, text func(ids []int32) string) parquet.Row {
	prompt := r.Tokens[:r.PromptLen]
	values := map[string]parquet.Value{
		"step": parquet.Int64Value(int64(s.Step)), "row": parquet.Int64Value(int64(r.Row)), "group": parquet.Int64Value(int64(r.Group)),
		"sample": parquet.Int64Value(int64(r.Sample)), "version": parquet.Int64Value(int64(r.Version)),
		"reward": parquet.DoubleValue(r.Reward), "advantage": parquet.DoubleValue(r.Advantage), "truncated": parquet.BooleanValue(r.Truncated),
	}
	if text != nil {
		values["prompt"] = parquet.ByteArrayValue([]byte(text(prompt)))
		values["completion"] = parquet.ByteArrayValue([]byte(text(r.Completion())))
	}
	for i, n := range distinct(s.Rewards) {
		if i < len(r.Rewards) && r.Rewards[i] == r.Rewards[i] { // NaN: the reward did not apply
			values[rewardColumn(n)] = parquet.DoubleValue(r.Rewards[i])
		}
	}
	var row parquet.Row
	for column, name := range order {
		v, ok := values[name]
		switch {
		case name == "prompt_ids":
			row = appendList(row, prompt, column)
		case name == "completion_ids":
			row = appendList(row, r.Completion(), column)
		case len(name) > 7 && name[:7] == "reward/":
			level := 0
			if ok {
				level = 1
			}
			row = append(row, v.Level(0, level, column))
		default:
			row = append(row, v.Level(0, 0, column))
		}
	}
	return row
}

// appendList appends a LIST column's values with their levels (Dremel: repetition, definition).
func appendList(row parquet.Row, ids []int32, column int) parquet.Row {
	if len(ids) == 0 {
		return append(row, parquet.NullValue().Level(0, 0, column))
	}
	for i, id := range ids {
		row = append(row, parquet.Int32Value(id).Level(min(i, 1), 1, column))
	}
	return row
}
