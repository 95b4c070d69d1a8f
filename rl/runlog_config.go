package rl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"graft/weights"
)

const maxConfig = 16 << 20

// WriteConfig writes options as YAML that ReadConfig reads back.
func WriteConfig(path string, config any) error {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(config), enc.Close()); err != nil {
		return fmt.Errorf("rl: %s: %w", path, err)
	}
	return weights.WriteFile(path, b.Bytes())
}

// ReadConfig reads YAML into a struct. A key that the struct does not have is an error that tells
// the nearest one.
func ReadConfig(path string, config any) error {
	raw, err := readBounded(path, maxConfig)
	if err != nil {
		return fmt.Errorf("rl: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(config); err != nil && !errors.Is(err, io.EOF) { // an empty file sets nothing
		return fmt.Errorf("rl: %s: %s", path, explain(err, yamlNames(reflect.TypeOf(config))))
	}
	var more any
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return fmt.Errorf("rl: %s: more than one YAML document", path)
	}
	return nil
}

// explain puts the nearest known name behind each unknown one.
func explain(err error, known []string) string {
	return regexp.MustCompile(`field (\S+) not found in type \S+`).ReplaceAllStringFunc(err.Error(), func(s string) string {
		name := strings.Fields(s)[1]
		text := fmt.Sprintf("unknown option %q", name)
		if near, ok := nearest(name, known); ok {
			text += fmt.Sprintf("; did you mean %q?", near)
		}
		return text
	})
}

// yamlNames lists the keys of a struct, those of its inlined and nested structs included.
func yamlNames(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "-" {
			continue
		}
		if name == "" {
			name = strings.ToLower(f.Name)
		}
		if f.Type != t {
			names = append(names, yamlNames(f.Type)...)
		}
		names = append(names, name)
	}
	return names
}
