package template

import (
	"math/big"
	"unicode"
)

// test is a built-in test, used as `x is name(args)`.
type test struct {
	sig signature
	fn  func(r *render, v any, args []any) (bool, error)
}

func (t *test) holds(r *render, name string, v any, a callArgs) (bool, error) {
	args, err := t.sig.bind("test "+name, a)
	if err != nil {
		return false, err
	}
	return t.fn(r, v, args)
}

func (x *testExpr) eval(r *render) (any, error) {
	v, err := r.eval(x.value)
	if err != nil {
		return nil, err
	}
	if x.test == nil {
		return nil, fail(RuntimeError, "no test named %q", x.name)
	}
	a, err := r.arguments(&x.args)
	if err != nil {
		return nil, err
	}
	return x.test.holds(r, x.name, v, a)
}

// testNamed returns a test, nil when there is none of that name.
func testNamed(name string) *test {
	is := func(fn func(v any) bool) *test {
		return &test{fn: func(_ *render, v any, _ []any) (bool, error) { return fn(v), nil }}
	}
	against := func(names string, fn func(r *render, v, other any) (bool, error)) *test {
		return &test{sig: signature{1, 1, names}, fn: func(r *render, v any, args []any) (bool, error) {
			return fn(r, v, args[0])
		}}
	}
	ordered := func(op string) *test {
		return against("", func(r *render, v, other any) (bool, error) { return r.compare(op, v, other) })
	}
	switch name {
	case "defined":
		return is(func(v any) bool { return !isUndefined(v) })
	case "undefined":
		return is(isUndefined)
	case "none":
		return is(func(v any) bool { return v == nil })
	case "boolean":
		return is(func(v any) bool { _, ok := v.(bool); return ok })
	case "true":
		return is(func(v any) bool { b, ok := v.(bool); return ok && b })
	case "false":
		return is(func(v any) bool { b, ok := v.(bool); return ok && !b })
	case "integer":
		return is(isInteger)
	case "float":
		return is(func(v any) bool { _, ok := v.(float64); return ok })
	case "number":
		return is(isNumber)
	case "string":
		return is(func(v any) bool { _, ok := asStr(v); return ok })
	case "mapping":
		return is(func(v any) bool { _, ok := v.(*Map); return ok })
	case "sequence":
		return is(isSequence)
	case "iterable":
		return is(isIterable)
	case "callable":
		return is(isCallable)
	case "escaped":
		return is(isMarkup)
	case "lower":
		return cased(unicode.IsLower)
	case "upper":
		return cased(unicode.IsUpper)
	case "filter":
		return is(func(v any) bool { s, ok := asStr(v); return ok && filterNamed(s) != nil })
	case "test":
		return is(func(v any) bool { s, ok := asStr(v); return ok && testNamed(s) != nil })
	case "odd":
		return &test{fn: func(r *render, v any, _ []any) (bool, error) { return r.remainderIs(v, int64(2), 1) }}
	case "even":
		return &test{fn: func(r *render, v any, _ []any) (bool, error) { return r.remainderIs(v, int64(2), 0) }}
	case "divisibleby":
		return against("num", func(r *render, v, other any) (bool, error) { return r.remainderIs(v, other, 0) })
	case "==", "eq", "equalto":
		return against("", func(r *render, v, other any) (bool, error) { return r.equal(v, other) })
	case "!=", "ne":
		return against("", func(r *render, v, other any) (bool, error) {
			same, err := r.equal(v, other)
			return !same, err
		})
	case "<", "lt", "lessthan":
		return ordered("<")
	case "<=", "le":
		return ordered("<=")
	case ">", "gt", "greaterthan":
		return ordered(">")
	case ">=", "ge":
		return ordered(">=")
	case "in":
		return against("seq", func(r *render, v, other any) (bool, error) { return r.contains(other, v) })
	case "sameas":
		return against("other", func(r *render, v, other any) (bool, error) { return sameAs(r, v, other) })
	}
	return nil
}

func isInteger(v any) bool {
	switch v.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

func isSequence(v any) bool {
	switch v := v.(type) {
	case *undefined:
		return v.kind == UndefinedError
	case view:
		return false
	}
	_, ok := sizeOf(v)
	return ok
}

func isIterable(v any) bool {
	switch v := v.(type) {
	case *undefined:
		return v.kind == UndefinedError
	case *iterator, view, *loop:
		return true
	}
	_, ok := sizeOf(v)
	return ok
}

func isCallable(v any) bool {
	switch v.(type) {
	case *function, *method, *macro, *joiner, *undefined, *loop:
		return true
	}
	return false
}

// cased tests that all letters of str(v) are of the case.
func cased(isCase func(rune) bool) *test {
	return &test{fn: func(r *render, v any, _ []any) (bool, error) {
		s, err := r.str(v)
		if err != nil {
			return false, err
		}
		return isCased(s, isCase), r.work(len(s))
	}}
}

func (r *render) remainderIs(v, divisor any, want int64) (bool, error) {
	m, err := r.binary("%", v, divisor)
	if err != nil {
		return false, err
	}
	return r.equal(m, want)
}

// sameAs is Python's `is`, as far as it means something: equal singletons and
// small numbers are the same, and so are containers that are one object.
func sameAs(r *render, v, other any) (bool, error) {
	if typeName(v) != typeName(other) {
		return false, nil
	}
	switch a := v.(type) {
	case []any:
		b := other.([]any)
		return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]), nil
	case tuple:
		b, ok := other.(tuple)
		return ok && len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]), nil
	case *Map, *undefined:
		return v == other, nil
	}
	return r.equal(v, other)
}
