package template

import (
	"strconv"
	"strings"
)

// ignoreCase returns the key by which case-insensitive sorting sorts v.
func (r *render) ignoreCase(v any) (any, error) {
	s, ok := asStr(v)
	if !ok {
		return v, nil
	}
	return lower(s), r.makeString(len(s))
}

// attributePath splits "a.b.0" into items to look up.
func attributePath(attribute any) []any {
	s, ok := asStr(attribute)
	if !ok {
		if attribute == nil {
			return nil
		}
		return []any{attribute}
	}
	var path []any
	for part := range strings.SplitSeq(s, ".") {
		if i, err := strconv.ParseInt(part, 10, 64); err == nil && part[0] != '-' && part[0] != '+' {
			path = append(path, i)
		} else {
			path = append(path, part)
		}
	}
	return path
}

// getter returns the function that filters apply for their attribute argument.
func (r *render) getter(attribute any, ignoreCase bool) (func(any) (any, error), error) {
	return r.defaultGetter(attribute, nil, ignoreCase)
}

// defaultGetter puts otherwise, unless it is None, for undefined items.
func (r *render) defaultGetter(attribute, otherwise any, ignoreCase bool) (func(any) (any, error), error) {
	if u, ok := attribute.(*undefined); ok {
		return nil, u.fail()
	}
	path := attributePath(attribute)
	if err := r.makeList(len(path)); err != nil {
		return nil, err
	}
	return func(v any) (any, error) {
		if err := r.step(); err != nil {
			return nil, err
		}
		for _, part := range path {
			var err error
			if v, err = r.item(v, part); err != nil {
				return nil, err
			}
			if otherwise != nil && isUndefined(v) {
				v = otherwise
			}
		}
		if ignoreCase {
			return r.ignoreCase(v)
		}
		return v, nil
	}, nil
}

// multiGetter is getter for an attribute "a,b", whose key is a list.
func (r *render) multiGetter(attribute any, ignoreCase bool) (func(any) (any, error), error) {
	s, ok := asStr(attribute)
	if !ok || strings.IndexByte(s, ',') < 0 {
		return r.getter(attribute, ignoreCase)
	}
	var gets []func(any) (any, error)
	for part := range strings.SplitSeq(s, ",") {
		get, err := r.getter(part, ignoreCase)
		if err != nil {
			return nil, err
		}
		gets = append(gets, get)
	}
	return func(v any) (any, error) {
		if err := r.makeList(len(gets)); err != nil {
			return nil, err
		}
		keys := make([]any, len(gets))
		for i, get := range gets {
			var err error
			if keys[i], err = get(v); err != nil {
				return nil, err
			}
		}
		return keys, nil
	}, nil
}

// filterMap is map("filter", args...) or map(attribute="a", default=x).
func filterMap(r *render, v any, a callArgs) (any, error) {
	if !truth(v) {
		if u, ok := v.(*undefined); ok && u.kind != UndefinedError {
			return nil, u.fail()
		}
		return &iterator{kind: "generator"}, nil
	}
	apply, err := r.mapper(a)
	if err != nil {
		return nil, err
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	return it.over(func() (any, bool, error) {
		x, ok, err := it.next()
		if err != nil || !ok {
			return nil, false, err
		}
		x, err = apply(x)
		return x, true, err
	})
}

func (r *render) mapper(a callArgs) (func(any) (any, error), error) {
	if len(a.pos) == 0 {
		i := a.find("attribute")
		if i < 0 {
			return nil, typeErrorf("map requires a filter argument")
		}
		var otherwise any
		for j, name := range a.names {
			switch name {
			case "attribute":
			case "default":
				otherwise = a.named[j]
			default:
				return nil, typeErrorf("map got an unexpected keyword argument '%s'", name)
			}
		}
		return r.defaultGetter(a.named[i], otherwise, false)
	}
	name, err := strArg(a.pos, 0, "")
	if err != nil {
		return nil, err
	}
	f := filterNamed(name)
	if f == nil {
		return nil, fail(RuntimeError, "no filter named %q", name)
	}
	a.pos = a.pos[1:]
	return func(v any) (any, error) {
		// A filter of filters nests like a macro.
		if err := r.nest(); err != nil {
			return nil, err
		}
		v, err := f.apply(r, name, v, a)
		r.calls--
		return v, err
	}, nil
}

// selectItems is select, reject, selectattr or rejectattr.
func (r *render) selectItems(v any, a callArgs, byAttribute, keep bool) (any, error) {
	if !truth(v) {
		if u, ok := v.(*undefined); ok && u.kind != UndefinedError {
			return nil, u.fail()
		}
		return &iterator{kind: "generator"}, nil
	}
	get := func(v any) (any, error) { return v, r.step() }
	if byAttribute {
		if len(a.pos) == 0 {
			return nil, typeErrorf("missing parameter for attribute name")
		}
		var err error
		if get, err = r.getter(a.pos[0], false); err != nil {
			return nil, err
		}
		a.pos = a.pos[1:]
	}
	holds := func(v any) (bool, error) { return truth(v), nil }
	if len(a.pos) > 0 {
		name, err := strArg(a.pos, 0, "")
		if err != nil {
			return nil, err
		}
		t := testNamed(name)
		if t == nil {
			return nil, fail(RuntimeError, "no test named %q", name)
		}
		a.pos = a.pos[1:]
		holds = func(v any) (bool, error) { return t.holds(r, name, v, a) }
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	return it.over(func() (any, bool, error) {
		for {
			x, ok, err := it.next()
			if err != nil || !ok {
				return nil, false, err
			}
			key, err := get(x)
			if err != nil {
				return nil, false, err
			}
			if ok, err = holds(key); err != nil {
				return nil, false, err
			}
			if ok == keep {
				return x, true, nil
			}
		}
	})
}

func filterGroupBy(r *render, v any, args []any) (any, error) {
	ignore := !truth(arg(args, 2, false))
	get, err := r.defaultGetter(args[0], arg(args, 1, nil), ignore)
	if err != nil {
		return nil, err
	}
	label, err := r.defaultGetter(args[0], arg(args, 1, nil), false)
	if err != nil {
		return nil, err
	}
	items, err := r.listOf(v)
	if err != nil {
		return nil, err
	}
	keys := make([]any, len(items))
	for i, x := range items {
		if keys[i], err = get(x); err != nil {
			return nil, err
		}
	}
	if items, err = r.sortBy(items, keys, false); err != nil {
		return nil, err
	}
	out := []any{}
	for from := 0; from < len(items); {
		key, err := get(items[from])
		if err != nil {
			return nil, err
		}
		to := from + 1
		for ; to < len(items); to++ {
			other, err := get(items[to])
			if err != nil {
				return nil, err
			}
			same, err := r.equal(key, other)
			if err != nil {
				return nil, err
			}
			if !same {
				break
			}
		}
		if key, err = label(items[from]); err != nil {
			return nil, err
		}
		if err := r.makeList(3); err != nil {
			return nil, err
		}
		out = append(out, groupPair{tuple{key, items[from:to:to]}})
		from = to
	}
	return out, nil
}
