package template

import (
	"strings"
	"time"
	"unsafe"
)

// render is the state of one rendering.
type render struct {
	t     *Template
	lim   Limits
	now   func() time.Time
	steps int // left
	bytes int // that strings and lists may still take
	depth int // nested evaluations
	calls int // nested macros and recursive loops

	root  []any  // values of variables by identifier; absent where there is none
	scope *scope // innermost scope; nil at the top level
	line  int    // of the statement being run

	out      []byte // text of the innermost capture, or of the whole render
	captured int    // nesting of captures

	// Spans of generation blocks in out; those within captured text wait in
	// held until that very string is printed.
	spans [][2]int
	held  []heldSpans
}

type heldSpans struct {
	text  string
	spans [][2]int
	used  bool
}

// scope holds the variables that a loop body, macro or block sets. Variables
// that are not in it belong to the scope around it.
type scope struct {
	outer *scope
	ids   []int
	vals  []any

	// Room for the usual few variables.
	idRoom  [4]int
	valRoom [4]any
}

func (s *scope) set(id int, v any) {
	for i, other := range s.ids {
		if other == id {
			s.vals[i] = v
			return
		}
	}
	s.ids = append(s.ids, id)
	s.vals = append(s.vals, v)
}

func newRender(t *Template, lim Limits, now func() time.Time) *render {
	lim = lim.withDefaults()
	r := &render{t: t, lim: lim, now: now, steps: lim.Steps, bytes: 64 * lim.StringSize}
	r.root = make([]any, len(t.names))
	for i := range r.root {
		r.root[i] = absent
	}
	return r
}

// define sets a variable before rendering. Names that the template does not
// use are dropped.
func (r *render) define(name string, v any) {
	if id, ok := r.t.ids[name]; ok {
		r.root[id] = v
	}
}

func (r *render) set(id int, v any) {
	if r.scope == nil {
		r.root[id] = v
	} else {
		r.scope.set(id, v)
	}
}

func (r *render) lookup(id int, name string) any {
	for s := r.scope; s != nil; s = s.outer {
		for i, other := range s.ids {
			if other == id {
				if isAbsent(s.vals[i]) {
					return undefinedName(name)
				}
				return s.vals[i]
			}
		}
	}
	if v := r.root[id]; !isAbsent(v) {
		return v
	}
	if f := globalNamed(name); f != nil {
		return f
	}
	return undefinedName(name)
}

// step counts one step.
func (r *render) step() error { return r.spend(1) }

// work counts the steps of looking at n bytes.
func (r *render) work(n int) error { return r.spend(n / 64) }

func (r *render) spend(n int) error {
	r.steps -= n
	if r.steps < 0 {
		return fail(LimitError, "more than %d steps; the template loops too much", r.lim.Steps)
	}
	return nil
}

func (r *render) checkString(n int) error {
	if n > r.lim.StringSize {
		return fail(LimitError, "a string of more than %d bytes", r.lim.StringSize)
	}
	return nil
}

func (r *render) checkLen(n int) error {
	if limit := r.lim.StringSize / 16; n > limit {
		return fail(LimitError, "a list of more than %d elements", limit)
	}
	return nil
}

// makeString accounts for a new string of n bytes before it is made.
func (r *render) makeString(n int) error {
	if n < 0 {
		n = r.lim.StringSize + 1 // overflow
	}
	if err := r.checkString(n); err != nil {
		return err
	}
	return r.takeBytes(n)
}

// makeList accounts for a new list of n elements before it is made.
func (r *render) makeList(n int) error {
	if err := r.checkLen(n); err != nil {
		return err
	}
	if err := r.spend(n / 8); err != nil {
		return err
	}
	return r.takeBytes(16 * n)
}

func (r *render) takeBytes(n int) error {
	r.bytes -= n
	if r.bytes < 0 {
		return fail(LimitError, "strings and lists of more than %d bytes in all", 64*r.lim.StringSize)
	}
	return r.work(n)
}

// emit appends text to the output.
func (r *render) emit(s string) error {
	n := len(r.out) + len(s)
	if r.captured > 0 {
		if err := r.checkString(n); err != nil {
			return err
		}
		if err := r.takeBytes(len(s)); err != nil {
			return err
		}
	} else if n > r.lim.Output {
		return fail(LimitError, "output of more than %d bytes", r.lim.Output)
	}
	for i := range r.held {
		if h := &r.held[i]; unsafe.StringData(h.text) == unsafe.StringData(s) && len(h.text) == len(s) {
			for _, span := range h.spans {
				r.spans = append(r.spans, [2]int{span[0] + len(r.out), span[1] + len(r.out)})
			}
			h.used = true
			break
		}
	}
	r.out = append(r.out, s...)
	return r.work(len(s))
}

// capture runs f and returns the text that it prints.
func (r *render) capture(f func() error) (string, error) {
	out, spans := r.out, r.spans
	r.out, r.spans = nil, nil
	r.captured++
	err := f()
	r.captured--
	var s string
	if err == nil {
		s = string(r.out)
		if len(s) == 1 {
			s = strings.Clone(s) // Go shares these, and held goes by identity
		}
		if len(r.spans) > 0 && s != "" {
			r.held = append(r.held, heldSpans{text: s, spans: r.spans})
		}
	}
	r.out, r.spans = out, spans
	return s, err
}

// within runs statements in a scope of their own below outer.
func (r *render) within(s *scope, body []stmt) (flow, error) {
	old := r.scope
	r.scope = s
	f, err := r.run(body)
	r.scope = old
	return f, err
}

func (r *render) run(body []stmt) (flow, error) {
	for _, s := range body {
		if f, err := s.exec(r); err != nil || f != flowNext {
			return f, err
		}
	}
	return flowNext, nil
}

// all renders the template and returns its text.
func (r *render) all() (string, error) {
	if _, err := r.run(r.t.body); err != nil {
		if e, ok := err.(*Error); ok && e.Line == 0 {
			return "", &Error{Kind: e.Kind, Line: r.line, Message: e.Message}
		}
		return "", err
	}
	return string(r.out), nil
}

// Render renders the template with the given variables, which are its only
// ones besides the globals range, dict, namespace, cycler, joiner,
// raise_exception and strftime_now. An error is an *Error.
func (t *Template) Render(vars *Map, lim Limits) (string, error) {
	r := newRender(t, lim, time.Now)
	if vars != nil {
		for i, k := range vars.keys {
			name, ok := k.(string)
			if !ok {
				continue
			}
			v, err := importValue(vars.vals[i], 0)
			if err != nil {
				return "", fail(TypeError, "variable %s%v", name, err)
			}
			r.define(name, v)
		}
	}
	return r.all()
}
