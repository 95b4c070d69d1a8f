package rl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"path/filepath"
	"strconv"
	"strings"

	"graft/model/template"
	"graft/weights/durable"
)

// The files of a run's folder that hold the rows it is measured on, where they were held out of the
// dataset: the rows themselves, and where they came from.
const (
	EvalFile     = "eval.jsonl"
	EvalRowsFile = "eval_rows.json"
)

// Origin is where a dataset's rows came from, in their order.
type Origin struct {
	Dataset string      `json:"dataset"`
	Rows    []OriginRow `json:"rows"`
}

// OriginRow is one row's place.
type OriginRow struct {
	Row  int    `json:"row"` // in the dataset as it was read, from 0: Row.Index
	File string `json:"file"`
	Line int    `json:"line"` // of the file, from 1
}

// WriteEvaluation writes a dataset into a run's folder, in EvalFile and EvalRowsFile.
func (d *Dataset) WriteEvaluation(dir string) error {
	origin := Origin{Dataset: d.Name, Rows: []OriginRow{}}
	for _, r := range d.Rows {
		origin.Rows = append(origin.Rows, OriginRow{r.Index, r.file, r.line})
	}
	err := durable.WriteFile(filepath.Join(dir, EvalFile), d.WriteLines)
	if err == nil {
		err = durable.WriteFile(filepath.Join(dir, EvalRowsFile), func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetEscapeHTML(false)
			return e.Encode(origin)
		})
	}
	if err != nil {
		return fmt.Errorf("rl: the rows to measure on: %w", err)
	}
	return nil
}

// WriteLines writes the rows as JSON lines that OpenDataset reads back with the same values in the
// same order. JSON has no word for a number that is not finite: it becomes null.
func (d *Dataset) WriteLines(w io.Writer) error {
	out := bufio.NewWriter(w)
	var line []byte
	for _, r := range d.Rows {
		var err error
		if line, err = appendJSON(line[:0], r.fields); err != nil {
			return fmt.Errorf("%s: %w", r.Where(), err)
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}

// appendJSON writes a row's value so that template.DecodeJSON makes it again.
func appendJSON(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case *big.Int:
		return v.Append(b, 10), nil
	case float64:
		return appendFloat(b, v), nil
	case string:
		return appendText(b, v)
	case []any:
		b = append(b, '[')
		for i, x := range v {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = appendJSON(b, x); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	case *template.Map:
		b = append(b, '{')
		for i, key := range v.Keys() {
			if i > 0 {
				b = append(b, ',')
			}
			x, _ := v.Get(key)
			var err error
			if b, err = appendText(b, key); err != nil {
				return b, err
			}
			if b, err = appendJSON(append(b, ':'), x); err != nil {
				return b, fmt.Errorf("column %q: %w", key, err)
			}
		}
		return append(b, '}'), nil
	}
	return b, fmt.Errorf("a value of type %T has no JSON", v)
}

// appendFloat keeps a whole number a float by its point.
func appendFloat(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "null"...)
	}
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return append(b, text...)
}

func appendText(b []byte, s string) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(s)
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...), err
}
