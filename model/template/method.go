package template

// textMethod is a method of str.
type textMethod struct {
	sig signature
	fn  func(r *render, s string, args []any) (any, error)
}

// stringMethod returns a method of str by name, nil when there is none. On
// Markup its results that are str are Markup.
func stringMethod(name string) func(r *render, self any, a callArgs) (any, error) {
	switch name {
	case "format":
		return methodFormat
	case "format_map":
		return methodFormatMap
	case "join":
		return methodJoin
	}
	m, ok := caseMethod(name)
	if !ok {
		if m, ok = searchMethod(name); !ok {
			return nil
		}
	}
	return func(r *render, self any, a callArgs) (any, error) {
		args, err := m.sig.bind(name+"()", a)
		if err != nil {
			return nil, err
		}
		s, _ := asStr(self)
		if err := r.work(len(s)); err != nil {
			return nil, err
		}
		if name == "replace" && isMarkup(self) {
			if args, err = r.escapeReplacement(args); err != nil {
				return nil, err
			}
		}
		v, err := m.fn(r, s, args)
		if err != nil || !isMarkup(self) {
			return v, err
		}
		return asMarkup(v), nil
	}
}

func (r *render) escapeReplacement(args []any) ([]any, error) {
	out := append([]any(nil), args...)
	if _, ok := out[1].(string); ok {
		var err error
		if out[1], err = r.escape(out[1]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// asMarkup turns a str, or a new list or tuple of them, into Markup.
func asMarkup(v any) any {
	switch v := v.(type) {
	case string:
		return markup(v)
	case []any:
		for i := range v {
			v[i] = asMarkup(v[i])
		}
	case tuple:
		for i := range v {
			v[i] = asMarkup(v[i])
		}
	}
	return v
}

func methodJoin(r *render, self any, a callArgs) (any, error) {
	args, err := signature{1, 1, ""}.bind("join()", a)
	if err != nil {
		return nil, err
	}
	sep, _ := asStr(self)
	list, err := r.listOf(args[0])
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(list))
	for i, v := range list {
		s, ok := asStr(v)
		if isMarkup(self) && !isMarkup(v) {
			escaped, err := r.escape(v)
			if err != nil {
				return nil, err
			}
			s, ok = string(escaped.(markup)), true
		}
		if !ok {
			return nil, typeErrorf("sequence item %d: expected str instance, %s found", i, typeName(v))
		}
		parts[i] = s
	}
	s, err := r.joinText(parts, sep)
	return like(self, s), err
}

// dictMethod returns a method of dict by name, nil when there is none.
func dictMethod(name string) func(r *render, self any, a callArgs) (any, error) {
	switch name {
	case "get":
		return dictGet
	case "keys", "values", "items":
		return func(_ *render, self any, a callArgs) (any, error) {
			_, err := signature{0, 0, ""}.bind(name+"()", a)
			return view{self.(*Map), name}, err
		}
	case "copy":
		return func(r *render, self any, a callArgs) (any, error) {
			if _, err := (signature{0, 0, ""}).bind("copy()", a); err != nil {
				return nil, err
			}
			if err := r.makeList(2 * self.(*Map).Len()); err != nil {
				return nil, err
			}
			return self.(*Map).clone(), nil
		}
	case "clear", "pop", "popitem", "setdefault", "update", "fromkeys":
		// Known, so that they hide items of these names; all but fromkeys are
		// stopped by the sandbox before.
		return func(*render, any, callArgs) (any, error) {
			return nil, fail(SecurityError, "dict.%s is not available in chat templates", name)
		}
	}
	return nil
}

func dictGet(_ *render, self any, a callArgs) (any, error) {
	args, err := signature{1, 2, ""}.bind("get()", a)
	if err != nil {
		return nil, err
	}
	m := self.(*Map)
	i, err := m.find(args[0])
	if err != nil {
		return nil, err
	}
	if i < 0 {
		return arg(args, 1, nil), nil
	}
	return m.vals[i], nil
}

// sequenceMethod returns a method of list or tuple, nil when there is none.
func sequenceMethod(name string, isList bool) func(r *render, self any, a callArgs) (any, error) {
	elements := func(self any) []any {
		if t, ok := self.(tuple); ok {
			return t
		}
		return self.([]any)
	}
	switch {
	case name == "copy" && isList:
		return func(_ *render, self any, a callArgs) (any, error) {
			_, err := signature{0, 0, ""}.bind("copy()", a)
			return self, err
		}
	case name == "count":
		return func(r *render, self any, a callArgs) (any, error) {
			args, err := signature{1, 1, ""}.bind("count()", a)
			if err != nil {
				return nil, err
			}
			n := int64(0)
			for _, v := range elements(self) {
				same, err := r.equal(v, args[0])
				if err != nil {
					return nil, err
				}
				n += boolInt(same)
			}
			return n, r.spend(len(elements(self)))
		}
	case name == "index":
		return sequenceIndex(elements)
	}
	return nil
}

func sequenceIndex(elements func(any) []any) func(r *render, self any, a callArgs) (any, error) {
	return func(r *render, self any, a callArgs) (any, error) {
		args, err := signature{1, 3, ""}.bind("index()", a)
		if err != nil {
			return nil, err
		}
		list := elements(self)
		lo, err := intArg(args, 1, 0)
		if err != nil {
			return nil, err
		}
		hi, err := intArg(args, 2, int64(len(list)))
		if err != nil {
			return nil, err
		}
		from, to := sliceBounds([3]any{lo, hi}, [3]int64{lo, hi, 1}, int64(len(list)))
		for i := from; i < to; i++ {
			if err := r.step(); err != nil {
				return nil, err
			}
			same, err := r.equal(list[i], args[0])
			if err != nil {
				return nil, err
			}
			if same {
				return i, nil
			}
		}
		return nil, valueErrorf("value is not in the list")
	}
}
