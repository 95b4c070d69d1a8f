package template

import (
	"math/big"
	"strings"
	"unicode"
)

// Values of the language and their Go types:
//
//	None nil · bool · int int64, beyond 64 bits *big.Int · float float64
//	str string · Markup markup · list []any · tuple tuple · dict *Map
//	undefined *undefined · range rangeValue · dict views view
//	generators *iterator · callables *function, *method, *macro, *loop
//	namespace() *namespace
//
// Lists and dicts never change once made: the sandbox is immutable. So they
// are shared without copying, and only namespaces can hold themselves.
type (
	tuple  []any
	markup string

	// undefined is the value of a missing variable, key or attribute. Using
	// it fails with hint; printing, testing and iterating it does not.
	undefined struct {
		hint string
		kind Kind
	}

	rangeValue struct{ start, stop, step, size int64 }

	// view is d.keys(), d.values() or d.items().
	view struct {
		m    *Map
		what string
	}

	namespace struct{ attrs *Map }

	// groupPair is an element of the groupby filter: a tuple with the
	// attributes grouper and list.
	groupPair struct{ tuple tuple }

	function struct {
		name string
		call func(r *render, a callArgs) (any, error)
	}

	method struct {
		self any
		name string
		call func(r *render, self any, a callArgs) (any, error)
	}
)

// absent marks a variable without value and an argument that was not given.
// It never reaches a template.
var absent any = absentValue{}

type absentValue struct{}

func undefinedName(name string) *undefined {
	return &undefined{"'" + name + "' is undefined", UndefinedError}
}

func undefinedHint(format string, args ...any) *undefined {
	return &undefined{sprintf(format, args...), UndefinedError}
}

func (u *undefined) fail() error { return fail(u.kind, "%s", u.hint) }

func isUndefined(v any) bool {
	_, ok := v.(*undefined)
	return ok
}

// asStr returns the text of a str or Markup.
func asStr(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case []any:
		return "list"
	case tuple, groupPair:
		return "tuple"
	case *Map:
		return "dict"
	case *undefined:
		return "Undefined"
	case rangeValue:
		return "range"
	case view:
		return "dict_" + v.what
	case *iterator:
		return v.kind
	case *macro:
		return "Macro"
	case *loop:
		return "LoopContext"
	case *namespace:
		return "Namespace"
	case *cycler:
		return "Cycler"
	}
	return "function"
}

// truth is Python's bool(v).
func truth(v any) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case []any:
		return len(v) > 0
	case tuple:
		return len(v) > 0
	case *Map:
		return v.Len() > 0
	case rangeValue:
		return v.size > 0
	case view:
		return v.m.Len() > 0
	}
	return true
}

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// runeLen is len(s) in Python: characters, not bytes.
func runeLen(s string) int {
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i]&0xc0 != 0x80 {
			n++
		}
	}
	return n
}

// sizeOf is Python's len(v); ok is false where there is none.
func sizeOf(v any) (n int, ok bool) {
	switch v := v.(type) {
	case string:
		return runeLen(v), true
	case markup:
		return runeLen(string(v)), true
	case []any:
		return len(v), true
	case tuple:
		return len(v), true
	case groupPair:
		return len(v.tuple), true
	case *Map:
		return v.Len(), true
	case *undefined:
		return 0, true
	case rangeValue:
		return int(v.size), true
	case view:
		return v.m.Len(), true
	}
	return 0, false
}

// iterator is a generator: items first, then what more yields.
type iterator struct {
	items []any
	more  func() (v any, ok bool, err error)
	kind  string // Python's type name
	depth int    // of generators that this one reads from
}

// over returns a generator that reads from it by way of more. A template may
// stack generators, but not so high that reading them takes a deep stack.
func (it *iterator) over(more func() (any, bool, error)) (any, error) {
	if it.depth >= maxValueDepth {
		return nil, errTooDeep()
	}
	return &iterator{kind: "generator", depth: it.depth + 1, more: more}, nil
}

func (it *iterator) next() (any, bool, error) {
	if len(it.items) > 0 {
		v := it.items[0]
		it.items = it.items[1:]
		return v, true, nil
	}
	if it.more == nil {
		return nil, false, nil
	}
	return it.more()
}

// items returns the elements of a finite collection without running a
// generator; ok is false for anything else.
func (r *render) items(v any) (list []any, ok bool, err error) {
	switch v := v.(type) {
	case []any:
		return v, true, nil
	case tuple:
		return v, true, nil
	case groupPair:
		return v.tuple, true, nil
	case *undefined:
		if v.kind != UndefinedError {
			return nil, true, v.fail()
		}
		return nil, true, nil
	case *Map:
		return v.keys, true, nil
	case string:
		list, err = r.characters(v)
		return list, true, err
	case markup:
		list, err = r.characters(string(v))
		return list, true, err
	case view:
		list, err = r.viewItems(v)
		return list, true, err
	case rangeValue:
		if err := r.makeList(int(v.size)); err != nil {
			return nil, true, err
		}
		list = make([]any, v.size)
		for i := range list {
			list[i] = v.start + int64(i)*v.step
		}
		return list, true, nil
	}
	return nil, false, nil
}

func (r *render) characters(s string) ([]any, error) {
	n := runeLen(s)
	if err := r.makeList(n); err != nil {
		return nil, err
	}
	list := make([]any, 0, n)
	for len(s) > 0 {
		i := 1
		for i < len(s) && s[i]&0xc0 == 0x80 {
			i++
		}
		list = append(list, s[:i])
		s = s[i:]
	}
	return list, nil
}

func (r *render) viewItems(v view) ([]any, error) {
	switch v.what {
	case "keys":
		return v.m.keys, nil
	case "values":
		return v.m.vals, nil
	}
	if err := r.makeList(3 * v.m.Len()); err != nil {
		return nil, err
	}
	list := make([]any, v.m.Len())
	pairs := make([]any, 2*len(list))
	for i, k := range v.m.keys {
		pair := pairs[2*i : 2*i+2 : 2*i+2]
		pair[0], pair[1] = k, v.m.vals[i]
		list[i] = tuple(pair)
	}
	return list, nil
}

// iterate is Python's iter(v).
func (r *render) iterate(v any) (*iterator, error) {
	if it, ok := v.(*iterator); ok {
		return it, nil
	}
	if l, ok := v.(*loop); ok {
		return &iterator{more: l.advance, kind: "LoopContext"}, nil
	}
	list, ok, err := r.items(v)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, typeErrorf("'%s' object is not iterable", typeName(v))
	}
	return &iterator{items: list, kind: "iterator"}, nil
}

// listOf is Python's list(v), sharing the elements where it can.
func (r *render) listOf(v any) ([]any, error) {
	if list, ok, err := r.items(v); ok {
		return list, err
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	var list []any
	for {
		v, ok, err := it.next()
		if err != nil || !ok {
			return list, err
		}
		if err := r.makeList(1); err != nil {
			return nil, err
		}
		list = append(list, v)
		if err := r.checkLen(len(list)); err != nil {
			return nil, err
		}
	}
}

// joinText concatenates parts into one bounded string.
func (r *render) joinText(parts []string, sep string) (string, error) {
	n := 0
	for i, p := range parts {
		n += len(p)
		if i > 0 {
			n += len(sep)
		}
	}
	if err := r.makeString(n); err != nil {
		return "", err
	}
	return strings.Join(parts, sep), nil
}
