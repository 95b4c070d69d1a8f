package rl

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"graft/model/template"
)

// readLines reads one JSON object a line; blank lines are skipped.
func readLines(src *source, emit emitter) error {
	scan := bufio.NewScanner(text(src))
	scan.Buffer(make([]byte, 0, 1<<16), maxRecord)
	line := 0
	for scan.Scan() {
		line++
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		fields, err := object(scan.Bytes())
		if err != nil && src.failed != nil {
			break // the line is cut because reading failed
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if err := emit(line, fields); err != nil {
			return err
		}
	}
	if err := scan.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d is longer than %d bytes", line+1, maxRecord)
	} else if err != nil {
		return fmt.Errorf("behind line %d: %w", line, err)
	}
	return nil
}

func object(raw []byte) (*template.Map, error) {
	v, err := template.DecodeJSON(raw)
	if err != nil {
		return nil, err
	}
	m, ok := v.(*template.Map)
	if !ok {
		return nil, fmt.Errorf("%s where an object with the columns is expected", kindOf(v))
	}
	return m, CheckJSON(raw)
}

// readJSON reads an array of objects, or objects one after the other.
func readJSON(src *source, emit emitter) error {
	lines := &lineCounter{r: text(src)}
	dec := json.NewDecoder(lines)
	dec.UseNumber()
	head, err := lines.r.Peek(1)
	for err == nil && strings.IndexByte(" \t\r\n", head[0]) >= 0 {
		lines.first += strings.Count(string(head), "\n")
		lines.r.Discard(1)
		head, err = lines.r.Peek(1)
	}
	if err == io.EOF {
		return nil
	}
	if err != nil {
		return err
	}
	array := head[0] == '['
	if array {
		if _, err := dec.Token(); err != nil {
			return err
		}
	}
	for {
		if array && !dec.More() {
			_, err := dec.Token()
			if err != nil {
				return fmt.Errorf("line %d: the array does not end: %w", lines.at(dec.InputOffset()), err)
			}
			if rest, err := dec.Token(); err != io.EOF {
				return fmt.Errorf("line %d: %v behind the end of the array (%v)", lines.at(dec.InputOffset()), rest, err)
			}
			return nil
		}
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if err == io.EOF && !array {
			return nil
		}
		if err == nil {
			var fields *template.Map
			end := dec.InputOffset()
			if fields, err = object(raw); err == nil {
				if err = emit(lines.at(end-int64(len(raw))), fields); err != nil {
					return err
				}
				continue
			}
		}
		at := dec.InputOffset()
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at = syntax.Offset
		}
		return fmt.Errorf("line %d: %w", lines.at(at), err)
	}
}

// lineCounter remembers where the lines begin of what passed through.
type lineCounter struct {
	r      *bufio.Reader
	first  int // lines before the first byte counted
	offset int64
	breaks []int64 // offsets of line ends not yet passed by at
	passed int
}

func (l *lineCounter) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	for i, c := range b[:n] {
		if c == '\n' {
			l.breaks = append(l.breaks, l.offset+int64(i))
		}
	}
	l.offset += int64(n)
	return n, err
}

// at is the line of an offset; offsets must not decrease by more than a record.
func (l *lineCounter) at(offset int64) int {
	for len(l.breaks) > 0 && l.breaks[0] < offset {
		l.breaks = l.breaks[1:]
		l.passed++
	}
	return l.first + l.passed + 1
}

func readComma(src *source, emit emitter) error { return readCSV(src, ',', emit) }
func readTab(src *source, emit emitter) error   { return readCSV(src, '\t', emit) }

// readCSV reads a header line with the columns, then rows; every value is text.
func readCSV(src *source, comma rune, emit emitter) error {
	r := csv.NewReader(text(src))
	r.Comma = comma
	r.ReuseRecord = true
	header, err := r.Read()
	if err == io.EOF {
		return nil
	}
	if err != nil {
		return err
	}
	names := append([]string(nil), header...)
	seen := map[string]bool{}
	for i, n := range names {
		switch {
		case n == "":
			return fmt.Errorf("line 1: column %d of the header has no name", i+1)
		case seen[n]:
			return fmt.Errorf("line 1: column %q appears twice in the header", n)
		case !utf8.ValidString(n):
			return fmt.Errorf("line 1: column name %q is not UTF-8", n)
		}
		seen[n] = true
	}
	for {
		record, err := r.Read()
		if err == io.EOF {
			return nil
		}
		if errors.Is(err, csv.ErrFieldCount) {
			line, _ := r.FieldPos(0)
			return fmt.Errorf("line %d has %d fields, the header %d", line, len(record), len(names))
		}
		if err != nil {
			return err
		}
		line, _ := r.FieldPos(0)
		fields := &template.Map{}
		for i, v := range record {
			if !utf8.ValidString(v) {
				return fmt.Errorf("line %d: column %q is not UTF-8", line, names[i])
			}
			fields.Set(names[i], strings.Clone(v))
		}
		if err := emit(line, fields); err != nil {
			return err
		}
	}
}

// readParquet reads rows as nested values. Column and key order is the schema's.
func readParquet(src *source, emit emitter) (err error) {
	defer func() {
		// The library may panic on files that are damaged in ways it did not foresee.
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged parquet file: %v", p)
		}
	}()
	var at io.ReaderAt
	var size int64
	if src.file != nil {
		info, err := src.file.Stat()
		if err != nil {
			return err
		}
		at, size = src.file, info.Size()
	} else {
		raw, err := io.ReadAll(src)
		if err != nil {
			return err
		}
		at, size = bytes.NewReader(raw), int64(len(raw))
	}
	f, err := parquet.OpenFile(at, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	r := parquet.NewGenericReader[any](f, f.Schema())
	defer r.Close()
	names := make([]string, 0, 8)
	for _, field := range f.Schema().Fields() {
		names = append(names, field.Name())
	}
	rows := make([]any, 64)
	line := 0
	for {
		clear(rows)
		n, err := r.Read(rows)
		for _, row := range rows[:n] {
			line++
			m, ok := row.(map[string]any)
			if !ok {
				return fmt.Errorf("parquet: row %d is a %T", line, row)
			}
			fields := &template.Map{}
			for _, name := range names {
				v, ok := m[name]
				if !ok {
					continue
				}
				if err := account(src.left, v, 0); err != nil {
					return fmt.Errorf("row %d: column %q: %w", line, name, err)
				}
				fields.Set(name, ordered(v))
			}
			if err := emit(line, fields); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("parquet: behind row %d: %w", line, err)
		}
	}
}

// account counts the bytes of a value against what may still be read, and refuses text that is not
// UTF-8, as the other formats do.
func account(left *int64, v any, depth int) error {
	if depth > 100 {
		return errors.New("nested more than 100 deep")
	}
	size := int64(16)
	switch v := v.(type) {
	case string:
		size += int64(len(v))
		if !utf8.ValidString(v) {
			return errors.New("not UTF-8")
		}
	case []byte:
		size += int64(len(v))
		if !utf8.Valid(v) {
			return errors.New("bytes that are not text")
		}
	case []any:
		for _, x := range v {
			if err := account(left, x, depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, x := range v {
			if err := account(left, x, depth+1); err != nil {
				return err
			}
		}
	}
	if *left -= size; *left < 0 {
		return errors.New("the dataset is larger than the memory it may take; give a limit of rows, or fewer files")
	}
	return nil
}
