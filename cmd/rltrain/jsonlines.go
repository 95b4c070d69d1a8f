package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"graft/rl"
	"graft/weights/durable"
)

// lines are the options of commands that read JSON lines and write JSON lines in the same order.
type lines struct {
	Input  string `help:"File of JSON lines; - is standard input." default:"-" placeholder:"FILE"`
	Output string `help:"File to write; - is standard output. A file appears only when it is whole." default:"-" placeholder:"FILE"`
}

// maxLine bounds one line of input.
const maxLine = 256 << 20

// each calls f for every line that is not blank and writes what it returns. A line that is not
// JSON, or that f refuses, ends the command with the line's number.
func (l lines) each(c *console, f func(line []byte) (any, error)) error {
	in := c.in
	name := "standard input"
	if l.Input != "-" {
		file, err := os.Open(l.Input)
		if err != nil {
			return fmt.Errorf("--input %w", err)
		}
		defer file.Close()
		in, name = file, l.Input
	}
	return l.write(c, func(w io.Writer) error {
		out := bufio.NewWriter(w)
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		scan := bufio.NewScanner(in)
		scan.Buffer(make([]byte, 0, 64<<10), maxLine)
		for n := 1; scan.Scan(); n++ {
			line := bytes.TrimSpace(scan.Bytes())
			if len(line) == 0 {
				continue
			}
			answer, err := any(nil), rl.CheckJSON(line)
			if err == nil {
				answer, err = f(line)
			}
			if err != nil {
				out.Flush()
				return fmt.Errorf("%s, line %d: %w", name, n, err)
			}
			if err := encoder.Encode(answer); err != nil {
				return fmt.Errorf("%s, line %d: %w", name, n, err)
			}
			if err := out.Flush(); err != nil { // a program that asks line by line gets its answer at once
				return fmt.Errorf("writing the answer: %w", err)
			}
		}
		if err := scan.Err(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return out.Flush()
	})
}

// write hands the output to f; a file is written aside and takes its name when f has succeeded.
func (l lines) write(c *console, f func(io.Writer) error) error {
	if l.Output == "-" {
		return f(c.out)
	}
	if err := durable.WriteFile(l.Output, f); err != nil {
		return fmt.Errorf("--output %s: %w", l.Output, err)
	}
	return nil
}

// strict decodes one JSON value into v, refusing unknown fields and what follows the value.
func strict(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return inWords(err, reflect.TypeOf(v).Elem())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value on the line")
	}
	return nil
}

// inWords says what a decoder refused in the words of the file's author: t is the struct of a line.
func inWords(err error, t reflect.Type) error {
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	fields := strings.Join(names, ", ")
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		kind, number := strings.CutPrefix(wrong.Value, "number")
		switch {
		case number:
			kind = "the number" + kind
			if kind == "the number" {
				kind = "a number"
			}
		default:
			kind = map[string]string{"array": "a list", "string": "text", "bool": "true or false", "object": "an object"}[wrong.Value]
		}
		if wrong.Field == "" {
			return fmt.Errorf("the line is %s, want an object with some of %s", kind, fields)
		}
		return fmt.Errorf("%q has %s where %s belongs", wrong.Field, kind, wordFor(wrong.Type))
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("unknown field %s; there are %s", name, fields)
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("the line is no JSON (at byte %d: %v); want an object with some of %s", syntax.Offset, err, fields)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the line ends in the middle of its JSON; an object is one line")
	}
	return err
}

// wordFor names what a field takes.
func wordFor(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list of ids"
	case reflect.Int32:
		return "a token id, a whole number from 0,"
	}
	return "a number"
}
