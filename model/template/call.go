package template

import "strings"

// callArgs are the evaluated arguments of a call.
type callArgs struct {
	pos   []any
	names []string // of named, which are the keyword arguments
	named []any
}

func (a *callArgs) find(name string) int {
	for i, n := range a.names {
		if n == name {
			return i
		}
	}
	return -1
}

// arguments evaluates the arguments of a call.
func (r *render) arguments(a *arguments) (callArgs, error) {
	var out callArgs
	var err error
	if len(a.pos) > 0 {
		if out.pos, err = r.evalAll(a.pos); err != nil {
			return out, err
		}
	}
	if len(a.named) > 0 {
		out.names = a.names[:len(a.names):len(a.names)]
		if out.named, err = r.evalAll(a.named); err != nil {
			return out, err
		}
	}
	if a.star != nil {
		v, err := r.eval(a.star)
		if err != nil {
			return out, err
		}
		list, err := r.listOf(v)
		if err != nil {
			return out, err
		}
		if out.pos, err = r.joinLists(out.pos, list); err != nil {
			return out, err
		}
	}
	if a.starStar != nil {
		v, err := r.eval(a.starStar)
		if err != nil {
			return out, err
		}
		return out, r.spread(&out, v)
	}
	return out, nil
}

// spread adds the items of a dict as keyword arguments.
func (r *render) spread(out *callArgs, v any) error {
	m, ok := v.(*Map)
	if !ok {
		return typeErrorf("argument after ** must be a mapping, not %s", typeName(v))
	}
	if err := r.makeList(3 * m.Len()); err != nil {
		return err
	}
	given := len(out.names)
	for i, k := range m.keys {
		name, ok := asStr(k)
		if !ok {
			return typeErrorf("keywords must be strings, not %s", typeName(k))
		}
		for _, other := range out.names[:given] {
			if other == name {
				return typeErrorf("got multiple values for keyword argument '%s'", name)
			}
		}
		out.names = append(out.names, name)
		out.named = append(out.named, m.vals[i])
	}
	return nil
}

// signature says what a built-in callable accepts: at least min and at most
// max arguments, whose names are separated by spaces ("" where Python takes
// them by position only). max -1 means any number.
type signature struct {
	min, max int
	names    string
}

// bind brings arguments into the order of the signature. Those not given are
// absent or beyond the end.
func (sig signature) bind(callable string, a callArgs) ([]any, error) {
	if sig.max >= 0 && len(a.pos) > sig.max {
		return nil, typeErrorf("%s takes at most %d arguments, got %d", callable, sig.max, len(a.pos))
	}
	out := a.pos
	if len(a.named) > 0 {
		names := strings.Fields(sig.names)
		out = make([]any, max(len(names), len(a.pos)))
		for i := range out {
			out[i] = absent
		}
		copy(out, a.pos)
		for i, name := range a.names {
			j := 0
			for j < len(names) && names[j] != name {
				j++
			}
			if j == len(names) {
				return nil, typeErrorf("%s got an unexpected keyword argument '%s'", callable, name)
			}
			if j < len(a.pos) || !isAbsent(out[j]) {
				return nil, typeErrorf("%s got multiple values for argument '%s'", callable, name)
			}
			out[j] = a.named[i]
		}
	}
	for i := range sig.min {
		if i >= len(out) || isAbsent(out[i]) {
			return nil, typeErrorf("%s needs at least %d arguments", callable, sig.min)
		}
	}
	return out, nil
}

// arg returns argument i, or otherwise when it was not given.
func arg(args []any, i int, otherwise any) any {
	if i >= len(args) || isAbsent(args[i]) {
		return otherwise
	}
	return args[i]
}

func isAbsent(v any) bool {
	_, ok := v.(absentValue)
	return ok
}

// intArg returns an integer argument.
func intArg(args []any, i int, otherwise int64) (int64, error) {
	v := arg(args, i, absent)
	if isAbsent(v) {
		return otherwise, nil
	}
	if u, ok := v.(*undefined); ok {
		return 0, u.fail()
	}
	n, ok := asInt(v)
	if !ok {
		return 0, typeErrorf("'%s' object cannot be interpreted as an integer", typeName(v))
	}
	return n, nil
}

// strArg returns a string argument.
func strArg(args []any, i int, otherwise string) (string, error) {
	v := arg(args, i, absent)
	if isAbsent(v) {
		return otherwise, nil
	}
	s, ok := asStr(v)
	if !ok {
		return "", typeErrorf("argument must be str, not %s", typeName(v))
	}
	return s, nil
}

func (x *callExpr) eval(r *render) (any, error) {
	callee, err := r.eval(x.callee)
	if err != nil {
		return nil, err
	}
	args, err := r.arguments(&x.args)
	if err != nil {
		return nil, err
	}
	return r.call(callee, args)
}

// call calls any value.
func (r *render) call(callee any, a callArgs) (any, error) {
	switch f := callee.(type) {
	case *method:
		return f.call(r, f.self, a)
	case *function:
		return f.call(r, a)
	case *macro:
		return r.callMacro(f, a)
	case *loop:
		return f.recurse(a)
	case *joiner:
		return f.next(a)
	case *undefined:
		return nil, f.fail()
	}
	return nil, typeErrorf("'%s' object is not callable", typeName(callee))
}

// macro is a macro or the body of a call block, with the scope around it.
type macro struct {
	def     *macroDef
	closure *scope
}

func (m *macro) member(name string) (any, bool, error) {
	switch name {
	case "name":
		if m.def.name == "" {
			return nil, true, nil
		}
		return m.def.name, true, nil
	case "arguments":
		names := make(tuple, len(m.def.names))
		for i, n := range m.def.names {
			names[i] = n
		}
		return names, true, nil
	case "catch_varargs":
		return m.def.varargs, true, nil
	case "catch_kwargs":
		return m.def.kwargs, true, nil
	case "caller":
		return m.def.caller, true, nil
	}
	return nil, false, nil
}

// nest counts one macro call or recursive loop; its caller leaves with
// r.calls--.
func (r *render) nest() error {
	r.calls++
	if r.calls > r.lim.Depth {
		return fail(LimitError, "macros or recursive loops nested more than %d deep", r.lim.Depth)
	}
	return r.step()
}

func (r *render) callMacro(m *macro, a callArgs) (any, error) {
	if err := r.nest(); err != nil {
		return nil, err
	}
	line, old := r.line, r.scope
	s := newScope(m.closure)
	text, err := r.capture(func() error {
		r.scope = s
		if err := r.bindMacro(m.def, s, a); err != nil {
			return err
		}
		_, err := r.run(m.def.body)
		return err
	})
	r.scope = old
	if err != nil {
		return nil, err
	}
	r.line = line
	r.calls--
	return text, nil
}

// bindMacro sets the parameters of a macro in its scope s, which is current.
func (r *render) bindMacro(def *macroDef, s *scope, a callArgs) error {
	var taken []bool // of a.named
	if len(a.named) > 0 {
		taken = make([]bool, len(a.named))
	}
	firstDefault := len(def.params) - len(def.defaults)
	for i, id := range def.params {
		if i < len(a.pos) {
			s.set(id, a.pos[i])
			continue
		}
		if j := a.find(def.names[i]); j >= 0 {
			taken[j] = true
			s.set(id, a.named[j])
			continue
		}
		if i < firstDefault {
			s.set(id, undefinedHint("parameter '%s' was not provided", def.names[i]))
			continue
		}
		v, err := r.eval(def.defaults[i-firstDefault])
		if err != nil {
			return err
		}
		s.set(id, v)
	}
	if def.caller {
		s.set(idCaller, undefinedHint("no caller defined"))
		if j := a.find("caller"); j >= 0 && !taken[j] {
			taken[j] = true
			s.set(idCaller, a.named[j])
		}
	}
	rest := &Map{}
	for j, name := range a.names {
		if taken[j] {
			continue
		}
		if !def.kwargs {
			return typeErrorf("macro '%s' takes no keyword argument '%s'", def.name, name)
		}
		rest.Set(name, a.named[j])
	}
	if def.kwargs {
		s.set(idKwargs, rest)
	}
	if def.varargs {
		s.set(idVarargs, tuple(a.pos[min(len(a.pos), len(def.params)):]))
	} else if len(a.pos) > len(def.params) {
		return typeErrorf("macro '%s' takes not more than %d arguments, got %d", def.name, len(def.params), len(a.pos))
	}
	return nil
}
