package template

// listFilter returns a filter on collections, nil when there is none of that
// name.
func listFilter(name string) *filter {
	plain := func(min, max int, names string, fn func(*render, any, []any) (any, error)) *filter {
		return &filter{sig: signature{min, max, names}, fn: fn}
	}
	switch name {
	case "length", "count":
		return plain(0, 0, "", filterLength)
	case "list":
		return plain(0, 0, "", func(r *render, v any, _ []any) (any, error) {
			list, err := r.listOf(v)
			if list == nil {
				list = []any{}
			}
			return list, err
		})
	case "first":
		return plain(0, 0, "", filterFirst)
	case "last":
		return plain(0, 0, "", filterLast)
	case "reverse":
		return plain(0, 0, "", filterReverse)
	case "join":
		return plain(0, 2, "d attribute", filterJoin)
	case "items":
		return plain(0, 0, "", filterItems)
	case "dictsort":
		return plain(0, 3, "case_sensitive by reverse", filterDictSort)
	case "sort":
		return plain(0, 3, "reverse case_sensitive attribute", filterSort)
	case "unique":
		return plain(0, 2, "case_sensitive attribute", filterUnique)
	case "min":
		return plain(0, 2, "case_sensitive attribute", func(r *render, v any, args []any) (any, error) {
			return r.extreme("<", v, args)
		})
	case "max":
		return plain(0, 2, "case_sensitive attribute", func(r *render, v any, args []any) (any, error) {
			return r.extreme(">", v, args)
		})
	case "sum":
		return plain(0, 2, "attribute start", filterSum)
	case "groupby":
		return plain(1, 3, "attribute default case_sensitive", filterGroupBy)
	case "batch":
		return plain(1, 2, "linecount fill_with", filterBatch)
	case "slice":
		return plain(1, 2, "slices fill_with", filterSlice)
	case "map":
		return &filter{raw: filterMap}
	case "select", "reject":
		return &filter{raw: func(r *render, v any, a callArgs) (any, error) {
			return r.selectItems(v, a, false, name == "select")
		}}
	case "selectattr", "rejectattr":
		return &filter{raw: func(r *render, v any, a callArgs) (any, error) {
			return r.selectItems(v, a, true, name == "selectattr")
		}}
	}
	return nil
}

func filterLength(r *render, v any, _ []any) (any, error) {
	if l, ok := v.(*loop); ok {
		n, err := l.size()
		return int64(n), err
	}
	if u, ok := v.(*undefined); ok && u.kind != UndefinedError {
		return nil, u.fail()
	}
	n, ok := sizeOf(v)
	if !ok {
		return nil, typeErrorf("object of type '%s' has no len()", typeName(v))
	}
	if s, ok := asStr(v); ok {
		return int64(n), r.work(len(s))
	}
	return int64(n), nil
}

func filterFirst(r *render, v any, _ []any) (any, error) {
	if s, ok := asStr(v); ok && s != "" {
		return s[:runeOffset(s, 1)], nil
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	first, ok, err := it.next()
	if err == nil && !ok {
		return undefinedHint("no first item, sequence was empty"), nil
	}
	return first, err
}

// reversible returns the elements of what Python's reversed() accepts.
func (r *render) reversible(v any) ([]any, error) {
	list, ok, err := r.items(v)
	if err == nil && !ok {
		err = typeErrorf("'%s' object is not reversible", typeName(v))
	}
	return list, err
}

func filterLast(r *render, v any, _ []any) (any, error) {
	list, err := r.reversible(v)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return undefinedHint("no last item, sequence was empty"), nil
	}
	return list[len(list)-1], nil
}

func (r *render) reversed(list []any) ([]any, error) {
	if err := r.makeList(len(list)); err != nil {
		return nil, err
	}
	out := make([]any, len(list))
	for i, v := range list {
		out[len(list)-1-i] = v
	}
	return out, nil
}

func filterReverse(r *render, v any, _ []any) (any, error) {
	if s, ok := asStr(v); ok {
		return r.slice(like(v, s), [3]any{nil, nil, int64(-1)})
	}
	list, err := r.listOf(v)
	if err != nil {
		return nil, err
	}
	out, err := r.reversed(list)
	if _, isIterator := v.(*iterator); isIterator {
		return out, err // Jinja2 makes a list where reversed() does not work
	}
	kind := "reversed"
	switch v.(type) {
	case []any:
		kind = "list_reverseiterator"
	case *Map:
		kind = "dict_reversekeyiterator"
	case rangeValue:
		kind = "range_iterator"
	}
	return &iterator{items: out, kind: kind}, err
}

func filterJoin(r *render, v any, args []any) (any, error) {
	sep, err := r.str(arg(args, 0, ""))
	if err != nil {
		return nil, err
	}
	get, err := r.getter(arg(args, 1, nil), false)
	if err != nil {
		return nil, err
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	var parts []string
	for {
		x, ok, err := it.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return r.joinText(parts, sep)
		}
		if x, err = get(x); err != nil {
			return nil, err
		}
		text, err := r.str(x)
		if err != nil {
			return nil, err
		}
		if err := r.makeList(1); err != nil {
			return nil, err
		}
		parts = append(parts, text)
	}
}

func filterItems(r *render, v any, _ []any) (any, error) {
	switch m := v.(type) {
	case *undefined:
		return &iterator{kind: "generator"}, nil
	case *Map:
		list, err := r.viewItems(view{m, "items"})
		return &iterator{items: list, kind: "generator"}, err
	}
	return nil, typeErrorf("can only get item pairs from a mapping, not from '%s'", typeName(v))
}

func filterSum(r *render, v any, args []any) (any, error) {
	get, err := r.getter(arg(args, 0, nil), false)
	if err != nil {
		return nil, err
	}
	sum := arg(args, 1, int64(0))
	if _, ok := asStr(sum); ok {
		return nil, typeErrorf("sum() can't sum strings; use join")
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	for {
		x, ok, err := it.next()
		if err != nil || !ok {
			return sum, err
		}
		if x, err = get(x); err != nil {
			return nil, err
		}
		if sum, err = r.binary("+", sum, x); err != nil {
			return nil, err
		}
		if err := r.step(); err != nil {
			return nil, err
		}
	}
}

func filterBatch(r *render, v any, args []any) (any, error) {
	size, err := intArg(args, 0, 0)
	if err != nil {
		return nil, err
	}
	list, err := r.listOf(v)
	if err != nil {
		return nil, err
	}
	if err := r.makeList(2 * len(list)); err != nil {
		return nil, err
	}
	var out []any
	for len(list) > 0 {
		// Jinja2 starts a new batch when the old one has exactly size
		// elements, which it never has for sizes below 1.
		n := len(list)
		if size > 0 {
			n = int(min(size, int64(n)))
		}
		out = append(out, list[:n:n])
		list = list[n:]
	}
	if fill := arg(args, 1, nil); fill != nil && len(out) > 0 && size > 0 {
		last := out[len(out)-1].([]any)
		missing, _, err := r.repeat([]any{fill}, size-int64(len(last)))
		if err != nil {
			return nil, err
		}
		out[len(out)-1] = append(last, missing.([]any)...)
	}
	return &iterator{items: out, kind: "generator"}, nil
}

func filterSlice(r *render, v any, args []any) (any, error) {
	slices, err := intArg(args, 0, 0)
	if err != nil {
		return nil, err
	}
	list, err := r.listOf(v)
	if err != nil {
		return nil, err
	}
	if slices == 0 {
		return nil, divisionByZero()
	}
	if slices < 0 {
		return &iterator{kind: "generator"}, nil
	}
	if err := r.makeList(int(min(slices, 1<<40)) + 2*len(list)); err != nil {
		return nil, err
	}
	fill := arg(args, 1, nil)
	per, extra := len(list)/int(slices), len(list)%int(slices)
	out := make([]any, slices)
	for i := range out {
		n := per
		if i < extra {
			n++
		}
		part := list[:n:n]
		if fill != nil && i >= extra {
			part = append(part, fill)
		}
		out[i] = part
		list = list[n:]
	}
	return &iterator{items: out, kind: "generator"}, nil
}
