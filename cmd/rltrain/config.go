package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"graft/rl"
	"graft/spelling"
)

// setting is one option of the command with its final value.
type setting struct {
	name  string // as in YAML: underscores
	value reflect.Value
}

// noSetting are options that say where a run talks or is found, not what it computes: a run's
// config.yaml leaves them out.
var noSetting = []string{"config", "json", "help", "resume", "output_dir"}

// parse reads the command line, the environment and the YAML file.
func parse(tree *commands, args []string, c *console) (*kong.Context, error) {
	if len(args) == 1 && args[0] == "--version" { // what other programs call it
		args = []string{"version"}
	}
	args, err := resuming(dashes(args))
	if err != nil {
		return nil, err
	}
	path := configPath(args)
	var file *options
	var extra []kong.Option
	if path != "" {
		if file, err = readOptions(path); err != nil {
			return nil, mistake(err)
		}
		if args = file.withCommand(args); file.err != nil {
			return nil, errUsage{file.err}
		}
		extra = append(extra, kong.Resolvers(file))
	}
	parser, err := newParser(tree, c, extra...)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return nil, errUsage{explained(args, err)}
	}
	var flags []*kong.Flag
	for _, group := range parsed.Selected().AllFlags(false) {
		flags = append(flags, group...)
	}
	if file != nil {
		if err := errors.Join(file.unknown(flags), file.overridden(parsed, flags)); err != nil {
			return nil, errUsage{err}
		}
	}
	c.talk.slips(os.Environ())
	c.flags = map[string]bool{}
	for _, f := range flags {
		c.flags[f.Name] = given(parsed, f) || file != nil && file.chose(f)
		if name := underscored(f.Name); !slices.Contains(noSetting, name) {
			c.settings = append(c.settings, setting{name, f.Target})
		}
	}
	return parsed, nil
}

// settle writes what an option came to among the settings, for config.yaml.
func (c *console) settle(name, value string) {
	for _, s := range c.settings {
		if s.name == name {
			s.value.SetString(value)
		}
	}
}

// given tells whether an option came from the command line or the environment.
func given(parsed *kong.Context, f *kong.Flag) bool {
	for _, p := range parsed.Path {
		if p.Flag != nil && !p.Resolved && p.Flag.Name == f.Name {
			return true
		}
	}
	return inEnvironment(f)
}

func inEnvironment(f *kong.Flag) bool {
	for _, name := range f.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return true
		}
	}
	return false
}

// dashes turns the underscores of option names into dashes: TRL's spelling works too.
func dashes(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if a == "--" {
			break
		}
		if name, value, found := strings.Cut(a, "="); strings.HasPrefix(name, "--") {
			out[i] = strings.ReplaceAll(name, "_", "-")
			if found {
				out[i] += "=" + value
			}
		}
	}
	return out
}

func underscored(name string) string { return strings.ReplaceAll(name, "-", "_") }

func configPath(args []string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--config="); ok {
			return v
		}
		if a == "--config" && i+1 < len(args) {
			return args[i+1]
		}
	}
	if path := os.Getenv("GRAFT_CONFIG"); path != "" {
		return path
	}
	for _, a := range args {
		if dir, ok := strings.CutPrefix(a, "--resume="); ok {
			if path := filepath.Join(dir, rl.ConfigFile); exists(path) {
				return path
			}
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// options is a YAML file of options; it resolves flags that nothing stronger has set.
type options struct {
	path   string
	values map[string]any // by flag name, with dashes
	lines  map[string]int
	err    error
}

// kwargsOption is the one option that is an object: JSON on the command line, and here a mapping too.
const kwargsOption = "lr-scheduler-kwargs"

func readOptions(path string) (*options, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--config %w", err)
	}
	o := &options{path: path, values: map[string]any{}, lines: map[string]int{}}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return o, nil
	} else if err != nil {
		return nil, fmt.Errorf("--config %s: %w", path, err)
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("--config %s: line %d: want options as NAME: VALUE", path, top.Line)
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		name := strings.ReplaceAll(top.Content[i].Value, "_", "-")
		if first, twice := o.lines[name]; twice {
			return nil, fmt.Errorf("--config %s: line %d: %s was given in line %d already", path, top.Content[i].Line, name, first)
		}
		o.lines[name] = top.Content[i].Line
		var v any
		if err := top.Content[i+1].Decode(&v); err != nil {
			return nil, fmt.Errorf("--config %s: line %d: %w", path, top.Content[i].Line, err)
		}
		if nested, ok := v.(map[string]any); ok && name == kwargsOption {
			text, err := json.Marshal(nested)
			if err != nil {
				return nil, fmt.Errorf("--config %s: line %d: %s: %w", path, top.Content[i].Line, name, err)
			}
			v = string(text)
		} else if ok {
			return nil, fmt.Errorf("--config %s: line %d: %s holds further keys; options are one level deep", path, top.Content[i].Line, name)
		}
		o.values[name] = v
	}
	if err := decoder.Decode(&doc); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("--config %s: more than one YAML document", path)
	}
	return o, nil
}

// withCommand takes the command from the file's key "command", as a run's config.yaml has it, when
// the command line names none; two different ones are an error.
func (o *options) withCommand(args []string) []string {
	command, ok := o.values["command"].(string)
	delete(o.values, "command")
	if !ok {
		return args
	}
	for _, a := range args {
		if !slices.Contains(commandNames(), a) {
			continue
		}
		if a != command {
			o.err = fmt.Errorf("--config %s is for %q, not for %q", o.path, command, a)
		}
		return args
	}
	return append([]string{command}, args...)
}

// chose tells whether the file gives an option another value than its default: a run's config.yaml
// lists all of them, and only those that were chosen may contradict each other.
func (o *options) chose(f *kong.Flag) bool {
	v, ok := o.values[f.Name]
	if !ok || v == nil {
		return false
	}
	if list, ok := v.([]any); ok {
		var parts []string
		for _, x := range list {
			parts = append(parts, fmt.Sprint(x))
		}
		v = strings.Join(parts, ",")
	}
	text := fmt.Sprint(v)
	if !f.HasDefault {
		return text != "" && text != "0" && text != "false"
	}
	return text != f.Default
}

// Validate implements kong.Resolver; unknown keys are found once the command is known.
func (o *options) Validate(*kong.Application) error { return nil }

// Resolve gives the file's value unless the environment has one.
func (o *options) Resolve(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
	if inEnvironment(f) {
		return nil, nil
	}
	return o.values[f.Name], nil
}

// unknown reports the first key that is no option of the command.
func (o *options) unknown(flags []*kong.Flag) error {
	var names, keys []string
	for _, f := range flags {
		names = append(names, f.Name)
	}
	for key := range o.values {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return o.lines[a] - o.lines[b] })
	for _, key := range keys {
		if key == "config" {
			return fmt.Errorf("--config %s: line %d: a file of options names no further file; put its options here", o.path, o.lines[key])
		}
		if slices.Contains(names, key) {
			continue
		}
		hint := ""
		if near, ok := nearestName(key, names); ok {
			hint = fmt.Sprintf("; did you mean %s?", underscored(near))
		}
		return fmt.Errorf("--config %s: line %d: no option is called %s%s", o.path, o.lines[key], underscored(key), hint)
	}
	return nil
}

// overridden checks the values that something stronger hides: a mistake in the file is one whether
// or not this command line reaches it.
func (o *options) overridden(parsed *kong.Context, flags []*kong.Flag) error {
	for _, f := range flags {
		v, ok := o.values[f.Name]
		if !ok || v == nil || !given(parsed, f) {
			continue
		}
		hidden := reflect.New(f.Target.Type()).Elem()
		err := f.Parse(kong.Scan().PushTyped(v, kong.FlagValueToken), hidden)
		if err == nil && f.Enum != "" && !slices.Contains(f.EnumSlice(), fmt.Sprint(v)) {
			err = fmt.Errorf("must be one of %s but got %q", f.Enum, fmt.Sprint(v))
		}
		if err != nil {
			return fmt.Errorf("--config %s: line %d: %s: %w", o.path, o.lines[f.Name], underscored(f.Name), err)
		}
	}
	return nil
}

// slips warns of variables that look like a misspelt option's: nothing reads them. Variables that
// resemble no option may be another program's.
func (t *talk) slips(environ []string) {
	var names []string // made when there is a use for them: it takes as long as a parse
	for _, entry := range environ {
		variable, _, _ := strings.Cut(entry, "=")
		name, ours := strings.CutPrefix(variable, "GRAFT_")
		if !ours {
			continue
		}
		if names == nil {
			names = optionNames()
		}
		name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
		if slices.Contains(names, name) {
			continue
		}
		if near, ok := nearestName(name, names); ok {
			t.say("warning: no option reads %s; did you mean GRAFT_%s?", variable, strings.ToUpper(underscored(near)))
		}
	}
}

// optionNames lists the options of all commands, and what else is read from the environment.
func optionNames() []string {
	return append(flagNames(func(*kong.Flag) bool { return true }), "python")
}

// switchNames lists the options of all commands that take no value.
func switchNames() []string { return flagNames(func(f *kong.Flag) bool { return f.IsBool() }) }

func flagNames(want func(*kong.Flag) bool) (names []string) {
	parser, err := newParser(&commands{}, &console{out: io.Discard})
	if err != nil {
		panic("rltrain: " + err.Error()) // the same tree was parsed before
	}
	var add func(n *kong.Node)
	add = func(n *kong.Node) {
		for _, f := range n.Flags {
			if want(f) {
				names = append(names, f.Name)
			}
		}
		for _, child := range n.Children {
			add(child)
		}
	}
	add(parser.Model.Node)
	return names
}

// nearestName is the closest name by edit distance, if it is close enough to be a slip.
func nearestName(name string, names []string) (string, bool) {
	best, least := "", 1+len(name)/3
	for _, n := range names {
		if d := spelling.Distance(name, n); d < least {
			best, least = n, d
		}
	}
	return best, best != ""
}

// commandNames lists the commands.
func commandNames() []string {
	var names []string
	if parser, err := newParser(&commands{}, &console{out: io.Discard}); err == nil {
		for _, child := range parser.Model.Children {
			names = append(names, child.Name)
		}
	}
	return names
}

// explained says in the program's words what kong refused.
func explained(args []string, err error) error {
	for i, a := range args {
		if !strings.HasPrefix(a, "--") || strings.Contains(a, "=") {
			continue
		}
		if i+1 == len(args) && strings.Contains(err.Error(), `value but got "EOL"`) {
			return fmt.Errorf("%s needs a value", a)
		}
		if i+1 < len(args) && strings.Contains(err.Error(), fmt.Sprintf("value but got %q (long flag)", args[i+1])) {
			return fmt.Errorf("%s needs a value, and %s is the next option", a, args[i+1])
		}
	}
	return foreignOption(nearestCommand(args, err))
}

// nearestCommand explains a first word that is no command.
func nearestCommand(args []string, err error) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || slices.Contains(commandNames(), args[0]) {
		return err
	}
	hint := ""
	if near, ok := nearestName(args[0], commandNames()); ok {
		hint = fmt.Sprintf(" Did you mean %s?", near)
	}
	return fmt.Errorf("no command is called %s.%s There are: %s", args[0], hint, strings.Join(commandNames(), ", "))
}
