package template

import "strings"

// maxValueDepth bounds how deep nested values are walked: by comparing,
// printing, hashing and JSON.
const maxValueDepth = 500

func errTooDeep() error {
	return fail(LimitError, "a value nested more than %d deep", maxValueDepth)
}

// equal is Python's a == b.
func (r *render) equal(a, b any) (bool, error) { return r.equalAt(a, b, 0) }

func (r *render) equalAt(a, b any, depth int) (bool, error) {
	if s, ok := asStr(a); ok {
		t, ok := asStr(b)
		if !ok || len(s) != len(t) {
			return false, nil
		}
		return s == t, r.work(len(s))
	}
	if isNumber(a) {
		if !isNumber(b) {
			return false, nil
		}
		order, unordered := compareNumbers(a, b)
		return order == 0 && !unordered, nil
	}
	if depth > maxValueDepth {
		return false, errTooDeep()
	}
	switch x := a.(type) {
	case nil:
		return b == nil, nil
	case []any:
		y, ok := b.([]any)
		if !ok {
			return false, nil
		}
		return r.equalLists(x, y, depth)
	case tuple:
		y, ok := b.(tuple)
		if !ok {
			return false, nil
		}
		return r.equalLists(x, y, depth)
	case *Map:
		y, ok := b.(*Map)
		if !ok {
			return false, nil
		}
		return r.equalMaps(x, y, depth)
	case *undefined:
		return isUndefined(b), nil
	case rangeValue:
		y, ok := b.(rangeValue)
		return ok && x.size == y.size && (x.size == 0 || x.start == y.start && (x.size == 1 || x.step == y.step)), nil
	case view:
		return r.equalViews(x, b, depth)
	}
	return sameObject(a, b), nil
}

// sameObject compares by identity, for the types that are pointers.
func sameObject(a, b any) bool {
	switch a.(type) {
	case *iterator, *function, *method, *macro, *loop, *namespace, *cycler, *joiner, *Map, *undefined:
		return a == b
	}
	return false
}

func (r *render) equalLists(x, y []any, depth int) (bool, error) {
	if len(x) != len(y) {
		return false, nil
	}
	for i := range x {
		if err := r.step(); err != nil {
			return false, err
		}
		same, err := r.equalAt(x[i], y[i], depth+1)
		if err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func (r *render) equalMaps(x, y *Map, depth int) (bool, error) {
	if x == y {
		return true, nil
	}
	if x.Len() != y.Len() {
		return false, nil
	}
	for i, k := range x.keys {
		if err := r.step(); err != nil {
			return false, err
		}
		j, err := y.find(k)
		if err != nil || j < 0 {
			return false, err
		}
		same, err := r.equalAt(x.vals[i], y.vals[j], depth+1)
		if err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// equalViews compares key views as sets; item views likewise; value
// views are equal to nothing, as every d.values() is a new one.
func (r *render) equalViews(x view, b any, depth int) (bool, error) {
	y, ok := b.(view)
	if !ok {
		return false, nil
	}
	if x.what == "values" || x.what != y.what {
		return false, nil
	}
	if x.what == "items" {
		return r.equalMaps(x.m, y.m, depth)
	}
	if x.m.Len() != y.m.Len() {
		return false, nil
	}
	for _, k := range x.m.keys {
		if i, err := y.m.find(k); err != nil || i < 0 {
			return false, err
		}
	}
	return true, nil
}

// compare is a op b for <, <=, > and >=.
func (r *render) compare(op string, a, b any) (bool, error) {
	order, unordered, err := r.order(op, a, b, 0)
	if err != nil || unordered {
		return false, err
	}
	switch op {
	case "<":
		return order < 0, nil
	case "<=":
		return order <= 0, nil
	case ">":
		return order > 0, nil
	}
	return order >= 0, nil
}

func (r *render) order(op string, a, b any, depth int) (order int, unordered bool, err error) {
	for _, v := range [2]any{a, b} {
		if u, ok := v.(*undefined); ok {
			return 0, false, u.fail()
		}
	}
	if isNumber(a) && isNumber(b) {
		order, unordered = compareNumbers(a, b)
		return order, unordered, nil
	}
	if s, ok := asStr(a); ok {
		if t, ok := asStr(b); ok {
			// UTF-8 sorts as its code points do.
			return strings.Compare(s, t), false, r.work(min(len(s), len(t)))
		}
	}
	x, isList := a.([]any)
	y, ok := b.([]any)
	if isList && ok {
		return r.orderLists(op, x, y, depth)
	}
	tx, isTuple := a.(tuple)
	ty, ok := b.(tuple)
	if isTuple && ok {
		return r.orderLists(op, tx, ty, depth)
	}
	return 0, false, typeErrorf("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
}

func (r *render) orderLists(op string, x, y []any, depth int) (int, bool, error) {
	if depth > maxValueDepth {
		return 0, false, errTooDeep()
	}
	for i := 0; i < len(x) && i < len(y); i++ {
		if err := r.step(); err != nil {
			return 0, false, err
		}
		same, err := r.equalAt(x[i], y[i], depth+1)
		if err != nil {
			return 0, false, err
		}
		if !same {
			return r.order(op, x[i], y[i], depth+1)
		}
	}
	return cmpOrder(len(x) < len(y), len(x) > len(y)), false, nil
}

// contains is Python's v in c.
func (r *render) contains(c, v any) (bool, error) {
	if text, ok := asStr(c); ok {
		s, ok := asStr(v)
		if !ok {
			return false, typeErrorf("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		return strings.Contains(text, s), r.work(len(text))
	}
	switch c := c.(type) {
	case *Map:
		i, err := c.find(v)
		return i >= 0, err
	case view:
		if c.what == "keys" {
			i, err := c.m.find(v)
			return i >= 0, err
		}
	case rangeValue:
		if i, ok := asInt(v); ok {
			d := i - c.start
			return c.size > 0 && d%c.step == 0 && d/c.step >= 0 && d/c.step < c.size, nil
		}
	case *iterator, []any, tuple, *undefined:
	default:
		if _, err := r.iterate(c); err != nil {
			return false, typeErrorf("argument of type '%s' is not iterable", typeName(c))
		}
	}
	it, err := r.iterate(c)
	if err != nil {
		return false, err
	}
	for {
		x, ok, err := it.next()
		if err != nil || !ok {
			return false, err
		}
		if err := r.step(); err != nil {
			return false, err
		}
		same, err := r.equal(x, v)
		if err != nil || same {
			return same, err
		}
	}
}
