package template

// globalNamed returns a function that every template may call, nil when there
// is none of that name.
func globalNamed(name string) *function {
	switch name {
	case "range":
		return &function{name, rangeFunction}
	case "dict":
		return &function{name, func(r *render, a callArgs) (any, error) { return r.newDict(a) }}
	case "namespace":
		return &function{name, func(r *render, a callArgs) (any, error) {
			m, err := r.newDict(a)
			return &namespace{m}, err
		}}
	case "raise_exception":
		return &function{name, raiseException}
	case "strftime_now":
		return &function{name, strftimeNow}
	case "cycler":
		return &function{name, newCycler}
	case "joiner":
		return &function{name, func(_ *render, a callArgs) (any, error) {
			args, err := signature{0, 1, "sep"}.bind("joiner()", a)
			return &joiner{sep: arg(args, 0, ", ")}, err
		}}
	}
	return nil
}

// maxRange is the sandbox's bound on the length of a range.
const maxRange = 100_000

func rangeFunction(_ *render, a callArgs) (any, error) {
	args, err := signature{1, 3, ""}.bind("range()", a)
	if err != nil {
		return nil, err
	}
	var n [3]int64
	for i := range args {
		if n[i], err = intArg(args, i, 0); err != nil {
			return nil, err
		}
	}
	v := rangeValue{start: n[0], stop: n[1], step: 1}
	switch len(args) {
	case 1:
		v.start, v.stop = 0, n[0]
	case 3:
		v.step = n[2]
	}
	if v.step == 0 {
		return nil, valueErrorf("range() arg 3 must not be zero")
	}
	// Unsigned, so that no distance between two int64 overflows.
	switch {
	case v.step > 0 && v.stop > v.start:
		v.size = rangeSize(uint64(v.stop)-uint64(v.start), uint64(v.step))
	case v.step < 0 && v.stop < v.start:
		v.size = rangeSize(uint64(v.start)-uint64(v.stop), -uint64(v.step))
	}
	if v.size > maxRange {
		return nil, fail(LimitError, "range of more than %d elements", maxRange)
	}
	return v, nil
}

func rangeSize(distance, step uint64) int64 {
	return int64(min((distance-1)/step+1, maxRange+1))
}

// newDict is dict(mapping or pairs, **named).
func (r *render) newDict(a callArgs) (*Map, error) {
	m := &Map{}
	if len(a.pos) > 1 {
		return nil, typeErrorf("dict expected at most 1 argument, got %d", len(a.pos))
	}
	if len(a.pos) == 1 {
		if from, ok := a.pos[0].(*Map); ok {
			if err := r.makeList(2 * from.Len()); err != nil {
				return nil, err
			}
			m = from.clone()
		} else if err := r.addPairs(m, a.pos[0]); err != nil {
			return nil, err
		}
	}
	if err := r.makeList(2 * len(a.names)); err != nil {
		return nil, err
	}
	for i, name := range a.names {
		m.Set(name, a.named[i])
	}
	return m, nil
}

func (r *render) addPairs(m *Map, v any) error {
	list, err := r.listOf(v)
	if err != nil {
		return err
	}
	if err := r.makeList(2 * len(list)); err != nil {
		return err
	}
	for i, v := range list {
		pair, err := r.listOf(v)
		if err != nil {
			return err
		}
		if len(pair) != 2 {
			return valueErrorf("dictionary update sequence element #%d has length %d; 2 is required", i, len(pair))
		}
		if err := m.put(pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

func raiseException(r *render, a callArgs) (any, error) {
	args, err := signature{1, 1, "message"}.bind("raise_exception()", a)
	if err != nil {
		return nil, err
	}
	text, err := r.str(args[0])
	if err != nil {
		return nil, err
	}
	return nil, fail(Raised, "%s", text)
}

func strftimeNow(r *render, a callArgs) (any, error) {
	args, err := signature{1, 1, "format"}.bind("strftime_now()", a)
	if err != nil {
		return nil, err
	}
	format, err := strArg(args, 0, "")
	if err != nil {
		return nil, err
	}
	// A directive of two bytes gives at most 24.
	if err := r.makeString(12 * len(format)); err != nil {
		return nil, err
	}
	return strftime(r.now(), format), nil
}

// cycler is cycler(...): its next() goes round its items.
type cycler struct {
	items []any
	pos   int
}

func newCycler(_ *render, a callArgs) (any, error) {
	if len(a.named) > 0 {
		return nil, typeErrorf("cycler() got an unexpected keyword argument '%s'", a.names[0])
	}
	if len(a.pos) == 0 {
		return nil, typeErrorf("at least one item has to be provided")
	}
	return &cycler{items: a.pos}, nil
}

func (c *cycler) member(name string) (any, bool, error) {
	switch name {
	case "current":
		return c.items[c.pos], true, nil
	case "next":
		return &method{c, name, func(*render, any, callArgs) (any, error) {
			v := c.items[c.pos]
			c.pos = (c.pos + 1) % len(c.items)
			return v, nil
		}}, true, nil
	case "reset":
		return &method{c, name, func(*render, any, callArgs) (any, error) {
			c.pos = 0
			return nil, nil
		}}, true, nil
	}
	return nil, false, nil
}

// joiner is joiner(sep): "" when first called, then sep.
type joiner struct {
	sep  any
	used bool
}

func (j *joiner) next(a callArgs) (any, error) {
	if len(a.pos)+len(a.named) > 0 {
		return nil, typeErrorf("a joiner takes no arguments")
	}
	if !j.used {
		j.used = true
		return "", nil
	}
	return j.sep, nil
}
