package rl

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strings"

	"graft/kernels/rng"
	"graft/model/template"
)

// Row is one record of a dataset. Its values are those of template.DecodeJSON: nil, bool, int64,
// *big.Int, float64, string, []any, *template.Map, with the order of keys kept.
type Row struct {
	Index int // place in the dataset as it was read; a split keeps it

	file   string
	line   int // line of the file, or number of the row where a format has no lines; from 1
	fields *template.Map
}

// NewRow makes a row from plain Go values: maps, slices, text and numbers.
func NewRow(index int, columns map[string]any) Row {
	return Row{Index: index, file: "row", line: index + 1, fields: ordered(columns).(*template.Map)}
}

// Where names the row for messages: file and line.
func (r Row) Where() string { return fmt.Sprintf("%s:%d", r.file, r.line) }

// Names lists the row's columns in their order.
func (r Row) Names() []string { return r.fields.Keys() }

// Get returns a column; one that is null counts as absent, since formats with fixed columns write
// null for what a row does not have.
func (r Row) Get(column string) (any, bool) {
	v, ok := r.fields.Get(column)
	return v, ok && v != nil
}

// Columns returns all columns as plain Go values, as rewards take them.
func (r Row) Columns() map[string]any { return plain(r.fields).(map[string]any) }

// Text returns a column that must be text; numbers are written out.
func (r Row) Text(column string) (string, error) {
	v, ok := r.Get(column)
	if !ok {
		return "", r.missing(column)
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case int64, *big.Int, float64:
		return fmt.Sprint(v), nil
	}
	return "", r.wrong(column, v, "text")
}

func (r Row) missing(column string) error {
	if _, there := r.fields.Get(column); there {
		return fmt.Errorf("rl: %s: column %q is null; give it a value, or remove the row", r.Where(), column)
	}
	return fmt.Errorf("rl: %s: %s", r.Where(), absentColumn(column, r.Names()))
}

func (r Row) wrong(column string, v any, want string) error {
	return fmt.Errorf("rl: %s: column %q is %s, want %s", r.Where(), column, kindOf(v), want)
}

// kindOf names the type of a value as a person who wrote the file would.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case int64, *big.Int, float64:
		return "a number"
	case string:
		return "text"
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case *template.Map:
		return "an object"
	}
	return fmt.Sprintf("a %T", v)
}

// Dataset is rows in memory, in the order of their files.
type Dataset struct {
	Name  string   // the path, for messages
	Files []string // what was read, in order
	Rows  []Row
}

// NewDataset makes a dataset of rows that a program produced.
func NewDataset(name string, rows []map[string]any) *Dataset {
	d := &Dataset{Name: name}
	for i, columns := range rows {
		r := NewRow(i, columns)
		r.file = name
		d.Rows = append(d.Rows, r)
	}
	return d
}

// Len is the number of rows.
func (d *Dataset) Len() int { return len(d.Rows) }

// Columns lists the columns that any of the first rows has, sorted.
func (d *Dataset) Columns() []string {
	seen := map[string]bool{}
	for _, r := range d.Rows[:min(len(d.Rows), 100)] {
		for _, name := range r.Names() {
			seen[name] = true
		}
	}
	out := make([]string, 0, len(seen))
	for name := range seen {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

// Has reports whether a column occurs.
func (d *Dataset) Has(column string) bool { return slices.Contains(d.Columns(), column) }

// Require fails unless every row has the columns, and tells the nearest names there are.
func (d *Dataset) Require(columns ...string) error {
	if d.Len() == 0 {
		return fmt.Errorf("rl: dataset %s has no rows", d.Name)
	}
	for _, column := range columns {
		if !d.Has(column) {
			return fmt.Errorf("rl: dataset %s: %s", d.Name, absentColumn(column, d.Columns()))
		}
		for _, r := range d.Rows {
			if _, ok := r.Get(column); !ok {
				return r.missing(column)
			}
		}
	}
	return nil
}

// absentColumn says what is missing, what there is, and which of it is nearest.
func absentColumn(column string, have []string) string {
	if len(have) == 0 {
		return fmt.Sprintf("no column %q; there are no columns at all", column)
	}
	text := fmt.Sprintf("no column %q; there are %s", column, strings.Join(have, ", "))
	if near, ok := nearest(column, have); ok {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return text
}

// Split shuffles the rows by the seed and takes evalRows of them away for evaluation. The same seed
// gives the same split whatever the machine; rows keep their Index.
func (d *Dataset) Split(evalRows int, seed uint64) (train, eval *Dataset, err error) {
	if evalRows < 0 || evalRows >= d.Len() {
		return nil, nil, fmt.Errorf("rl: %d evaluation rows leave nothing to train on of the %d rows of %s", evalRows, d.Len(), d.Name)
	}
	held := make([]bool, d.Len())
	for _, i := range rng.New(seed, "split").Permutation(d.Len(), 0)[:evalRows] {
		held[i] = true
	}
	train, eval = &Dataset{Name: d.Name, Files: d.Files}, &Dataset{Name: d.Name, Files: d.Files}
	for i, r := range d.Rows {
		if held[i] {
			eval.Rows = append(eval.Rows, r)
		} else {
			train.Rows = append(train.Rows, r)
		}
	}
	return train, eval, nil
}

// plain turns a value of the template language into what encoding/json makes.
func plain(v any) any {
	switch v := v.(type) {
	case *template.Map:
		out := make(map[string]any, v.Len())
		for _, key := range v.Keys() {
			x, _ := v.Get(key)
			out[key] = plain(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = plain(x)
		}
		return out
	case *big.Int:
		return json.Number(v.String())
	}
	return v
}

// ordered turns plain Go values into those of the template language. Go maps have no order: role
// and content come first, as chats are written, then the rest by name.
func ordered(v any) any {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		place := map[string]int{"role": -2, "content": -1}
		sort.Slice(keys, func(i, j int) bool {
			if a, b := place[keys[i]], place[keys[j]]; a != b {
				return a < b
			}
			return keys[i] < keys[j]
		})
		out := &template.Map{}
		for _, k := range keys {
			out.Set(k, ordered(v[k]))
		}
		return out
	case []map[string]any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = ordered(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = ordered(x)
		}
		return out
	case []byte:
		return string(v)
	case int:
		return int64(v)
	case int8:
		return int64(v)
	case int16:
		return int64(v)
	case int32:
		return int64(v)
	case uint32:
		return int64(v)
	case uint64:
		return new(big.Int).SetUint64(v)
	case float32:
		return float64(v)
	}
	return v
}
