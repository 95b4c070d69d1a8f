package template

// filter is a built-in filter. Those with a raw function take their arguments
// as they come.
type filter struct {
	sig signature
	fn  func(r *render, v any, args []any) (any, error)
	raw func(r *render, v any, a callArgs) (any, error)
}

func (f *filter) apply(r *render, name string, v any, a callArgs) (any, error) {
	if err := r.step(); err != nil {
		return nil, err
	}
	if f.raw != nil {
		return f.raw(r, v, a)
	}
	args, err := f.sig.bind("filter "+name, a)
	if err != nil {
		return nil, err
	}
	return f.fn(r, v, args)
}

func (x *filterExpr) eval(r *render) (any, error) {
	v, err := r.eval(x.value)
	if err != nil {
		return nil, err
	}
	return x.on(r, v)
}

// on applies the filter to v.
func (x *filterExpr) on(r *render, v any) (any, error) {
	if x.filter == nil {
		return nil, fail(RuntimeError, "no filter named %q", x.name)
	}
	a, err := r.arguments(&x.args)
	if err != nil {
		return nil, err
	}
	return x.filter.apply(r, x.name, v, a)
}

// apply applies a chain of filters to the text of a block.
func (x *filterExpr) apply(r *render, text string) (any, error) {
	var v any = text
	if inner, ok := x.value.(*filterExpr); ok {
		var err error
		if v, err = inner.apply(r, text); err != nil {
			return nil, err
		}
	}
	return x.on(r, v)
}

// filterNamed returns a filter, nil when there is none of that name.
func filterNamed(name string) *filter {
	if f := textFilter(name); f != nil {
		return f
	}
	if f := listFilter(name); f != nil {
		return f
	}
	plain := func(min, max int, names string, fn func(*render, any, []any) (any, error)) *filter {
		return &filter{sig: signature{min, max, names}, fn: fn}
	}
	switch name {
	case "default", "d":
		return plain(0, 2, "default_value boolean", filterDefault)
	case "tojson":
		return plain(0, 4, "ensure_ascii indent separators sort_keys", filterToJSON)
	case "from_json":
		return plain(0, 0, "", filterFromJSON)
	case "int":
		return plain(0, 2, "default base", filterInt)
	case "float":
		return plain(0, 1, "default", filterFloat)
	case "abs":
		return plain(0, 0, "", filterAbs)
	case "round":
		return plain(0, 2, "precision method", filterRound)
	case "attr":
		return plain(1, 1, "name", filterAttr)
	}
	return nil
}

func filterDefault(_ *render, v any, args []any) (any, error) {
	if isUndefined(v) || truth(arg(args, 1, false)) && !truth(v) {
		return arg(args, 0, ""), nil
	}
	return v, nil
}

func filterToJSON(r *render, v any, args []any) (any, error) {
	style := jsonStyle{item: ", ", key: ": ", ascii: truth(arg(args, 0, false)), sortKeys: truth(arg(args, 3, false))}
	switch indent := arg(args, 1, nil).(type) {
	case nil:
	case string:
		style.indented, style.indent = true, indent
	default:
		n, err := intArg(args, 1, 0)
		if err != nil {
			return nil, err
		}
		if err := r.checkString(int(min(max(n, 0), 1<<40))); err != nil {
			return nil, err
		}
		s, _, err := r.repeat(" ", n)
		if err != nil {
			return nil, err
		}
		style.indented, style.indent = true, s.(string)
	}
	if style.indented {
		style.item = ","
	}
	if seps := arg(args, 2, nil); seps != nil {
		list, err := r.listOf(seps)
		if err != nil {
			return nil, err
		}
		if len(list) != 2 {
			return nil, valueErrorf("tojson: separators must be two strings, got %d", len(list))
		}
		if style.item, err = strArg(list, 0, ""); err != nil {
			return nil, err
		}
		if style.key, err = strArg(list, 1, ""); err != nil {
			return nil, err
		}
	}
	w := &jsonWriter{r: r, style: style}
	if err := w.value(v, 0); err != nil {
		return nil, err
	}
	return string(w.b), r.makeString(len(w.b))
}

func filterFromJSON(r *render, v any, _ []any) (any, error) {
	s, ok := asStr(v)
	if !ok {
		return nil, typeErrorf("from_json: the value must be str, not %s", typeName(v))
	}
	if err := r.makeList(len(s)); err != nil { // at most one element per byte
		return nil, err
	}
	out, err := DecodeJSON([]byte(s))
	if err != nil {
		return nil, valueErrorf("from_json: %v", err)
	}
	return out, nil
}

func filterAttr(r *render, v any, args []any) (any, error) {
	name, err := strArg(args, 0, "")
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	found, ok, err := r.member(v, name)
	if ok || err != nil {
		return found, err
	}
	return missing(v, name), nil
}
