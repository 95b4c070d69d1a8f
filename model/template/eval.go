package template

import (
	"math/big"
	"strings"
)

// maxEvalDepth bounds nested evaluations, and so the Go stack: a level takes
// well under a kilobyte.
const maxEvalDepth = 20_000

// eval evaluates an expression and accounts for it.
func (r *render) eval(x expr) (any, error) {
	r.steps--
	if r.steps < 0 {
		return nil, r.spend(0)
	}
	switch x := x.(type) {
	case *constExpr:
		return x.value, nil
	case *nameExpr:
		return r.lookup(x.id, x.name), nil
	}
	r.depth++
	if r.depth > maxEvalDepth {
		return nil, fail(LimitError, "evaluation nested more than %d deep", maxEvalDepth)
	}
	v, err := x.eval(r)
	r.depth--
	return v, err
}

func (r *render) evalAll(xs []expr) ([]any, error) {
	if err := r.makeList(len(xs)); err != nil {
		return nil, err
	}
	list := make([]any, len(xs))
	for i, x := range xs {
		v, err := r.eval(x)
		if err != nil {
			return nil, err
		}
		list[i] = v
	}
	return list, nil
}

func (x *constExpr) eval(*render) (any, error) { return x.value, nil }

func (x *nameExpr) eval(r *render) (any, error) { return r.lookup(x.id, x.name), nil }

func (x *listExpr) eval(r *render) (any, error) { return r.evalAll(x.items) }

func (x *tupleExpr) eval(r *render) (any, error) {
	list, err := r.evalAll(x.items)
	return tuple(list), err
}

func (x *dictExpr) eval(r *render) (any, error) {
	if err := r.makeList(2 * len(x.keys)); err != nil {
		return nil, err
	}
	m := &Map{}
	for i, kx := range x.keys {
		k, err := r.eval(kx)
		if err != nil {
			return nil, err
		}
		v, err := r.eval(x.values[i])
		if err != nil {
			return nil, err
		}
		if err := m.put(k, v); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (x *attrExpr) eval(r *render) (any, error) {
	obj, err := r.eval(x.obj)
	if err != nil {
		return nil, err
	}
	return r.attribute(obj, x.name)
}

func (x *itemExpr) eval(r *render) (any, error) {
	obj, err := r.eval(x.obj)
	if err != nil {
		return nil, err
	}
	index, err := r.eval(x.index)
	if err != nil {
		return nil, err
	}
	return r.item(obj, index)
}

func (x *sliceExpr) eval(r *render) (any, error) {
	obj, err := r.eval(x.obj)
	if err != nil {
		return nil, err
	}
	var bounds [3]any
	for i, b := range [3]expr{x.lo, x.hi, x.step} {
		if b != nil {
			if bounds[i], err = r.eval(b); err != nil {
				return nil, err
			}
		}
	}
	return r.slice(obj, bounds)
}

func (x *notExpr) eval(r *render) (any, error) {
	v, err := r.eval(x.x)
	return !truth(v), err
}

func (x *andExpr) eval(r *render) (any, error) {
	v, err := r.eval(x.left)
	if err != nil || !truth(v) {
		return v, err
	}
	return r.eval(x.right)
}

func (x *orExpr) eval(r *render) (any, error) {
	v, err := r.eval(x.left)
	if err != nil || truth(v) {
		return v, err
	}
	return r.eval(x.right)
}

func (x *condExpr) eval(r *render) (any, error) {
	c, err := r.eval(x.cond)
	if err != nil {
		return nil, err
	}
	if truth(c) {
		return r.eval(x.yes)
	}
	if x.no == nil {
		return undefinedHint("the inline if-expression evaluated to false and no else section was defined"), nil
	}
	return r.eval(x.no)
}

func (x *concatExpr) eval(r *render) (any, error) {
	parts := make([]string, len(x.parts))
	for i, part := range x.parts {
		v, err := r.eval(part)
		if err != nil {
			return nil, err
		}
		if parts[i], err = r.str(v); err != nil {
			return nil, err
		}
	}
	return r.joinText(parts, "")
}

func (x *compareExpr) eval(r *render) (any, error) {
	left, err := r.eval(x.first)
	if err != nil {
		return nil, err
	}
	for i, op := range x.ops {
		right, err := r.eval(x.rest[i])
		if err != nil {
			return nil, err
		}
		var ok bool
		switch op {
		case "==", "!=":
			ok, err = r.equal(left, right)
			ok = ok == (op == "==")
		case "in", "not in":
			ok, err = r.contains(right, left)
			ok = ok == (op == "in")
		default:
			ok, err = r.compare(op, left, right)
		}
		if err != nil || !ok {
			return false, err
		}
		left = right
	}
	return true, nil
}

func (x *unaryExpr) eval(r *render) (any, error) {
	v, err := r.eval(x.x)
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if f, ok := v.(float64); ok {
		if x.op == "-" {
			f = -f
		}
		return f, nil
	}
	i, ok := asBig(v)
	if !ok {
		return nil, typeErrorf("bad operand type for unary %s: '%s'", x.op, typeName(v))
	}
	if x.op == "-" {
		i = new(big.Int).Neg(i)
	}
	return normInt(i), nil
}

func (x *binaryExpr) eval(r *render) (any, error) {
	a, err := r.eval(x.left)
	if err != nil {
		return nil, err
	}
	b, err := r.eval(x.right)
	if err != nil {
		return nil, err
	}
	return r.binary(x.op, a, b)
}

// binary applies an arithmetic operator as Python does.
func (r *render) binary(op string, a, b any) (any, error) {
	if isNumber(a) && isNumber(b) {
		return numeric(op, a, b)
	}
	if text, ok := asStr(a); ok && op == "%" {
		s, err := r.percent(text, b, isMarkup(a))
		return like(a, s), err
	}
	for _, v := range [2]any{a, b} {
		if u, ok := v.(*undefined); ok {
			return nil, u.fail()
		}
	}
	switch op {
	case "+":
		return r.plus(a, b)
	case "*":
		if n, ok := asInt(b); ok {
			if v, ok, err := r.repeat(a, n); ok {
				return v, err
			}
		}
		if n, ok := asInt(a); ok {
			if v, ok, err := r.repeat(b, n); ok {
				return v, err
			}
		}
	}
	return nil, typeErrorf("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

func (r *render) plus(a, b any) (any, error) {
	s, ok := asStr(a)
	t, ok2 := asStr(b)
	switch {
	case ok && ok2:
		if isMarkup(a) != isMarkup(b) {
			// Markup protects itself from text that is not.
			if isMarkup(a) {
				t = escapeHTML(t)
			} else {
				s = escapeHTML(s)
			}
			v, err := r.joinText([]string{s, t}, "")
			return markup(v), err
		}
		if err := r.makeString(len(s) + len(t)); err != nil {
			return nil, err
		}
		return like(a, s+t), nil
	case ok:
		return nil, typeErrorf(`can only concatenate str (not "%s") to str`, typeName(b))
	}
	switch x := a.(type) {
	case []any:
		if y, ok := b.([]any); ok {
			return r.joinLists(x, y)
		}
		return nil, typeErrorf(`can only concatenate list (not "%s") to list`, typeName(b))
	case tuple:
		if y, ok := b.(tuple); ok {
			list, err := r.joinLists(x, y)
			return tuple(list), err
		}
		return nil, typeErrorf(`can only concatenate tuple (not "%s") to tuple`, typeName(b))
	}
	return nil, typeErrorf("unsupported operand type(s) for +: '%s' and '%s'", typeName(a), typeName(b))
}

func (r *render) joinLists(x, y []any) ([]any, error) {
	if err := r.makeList(len(x) + len(y)); err != nil {
		return nil, err
	}
	list := make([]any, 0, len(x)+len(y))
	return append(append(list, x...), y...), nil
}

// repeat is v * n for sequences; ok is false for other values.
func (r *render) repeat(v any, n int64) (result any, ok bool, err error) {
	n = max(n, 0)
	if s, ok := asStr(v); ok {
		if len(s) == 0 {
			n = 0
		}
		if n > int64(r.lim.StringSize) {
			return nil, true, r.checkString(r.lim.StringSize + 1)
		}
		if err := r.makeString(len(s) * int(n)); err != nil {
			return nil, true, err
		}
		return like(v, strings.Repeat(s, int(n))), true, nil
	}
	list, isList := v.([]any)
	t, isTuple := v.(tuple)
	if !isList && !isTuple {
		return nil, false, nil
	}
	if isTuple {
		list = t
	}
	if len(list) == 0 {
		n = 0
	}
	if n > int64(r.lim.StringSize) {
		return nil, true, r.checkLen(r.lim.StringSize)
	}
	if err := r.makeList(len(list) * int(n)); err != nil {
		return nil, true, err
	}
	out := make([]any, 0, len(list)*int(n))
	for range n {
		out = append(out, list...)
	}
	if isTuple {
		return tuple(out), true, nil
	}
	return out, true, nil
}

func isMarkup(v any) bool {
	_, ok := v.(markup)
	return ok
}

// like returns s as Markup if v is Markup.
func like(v any, s string) any {
	if isMarkup(v) {
		return markup(s)
	}
	return s
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

func escapeHTML(s string) string { return htmlEscaper.Replace(s) }
