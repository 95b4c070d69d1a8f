package template

import (
	"math/big"
	"strings"
)

// member returns a Python attribute of a value: a method, or a field of the
// few objects that have fields. ok is false where there is no such attribute.
// What the sandbox forbids is an undefined value that says so.
func (r *render) member(obj any, name string) (v any, ok bool, err error) {
	if strings.HasPrefix(name, "__") {
		return unsafeAttribute(obj, name), true, nil
	}
	switch o := obj.(type) {
	case string, markup:
		if call := stringMethod(name); call != nil {
			return &method{obj, name, call}, true, nil
		}
	case *Map:
		switch name {
		case "clear", "pop", "popitem", "setdefault", "update":
			return unsafeAttribute(obj, name), true, nil
		}
		if call := dictMethod(name); call != nil {
			return &method{obj, name, call}, true, nil
		}
	case []any:
		switch name {
		case "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove":
			return unsafeAttribute(obj, name), true, nil
		}
		if call := sequenceMethod(name, true); call != nil {
			return &method{obj, name, call}, true, nil
		}
	case tuple:
		if call := sequenceMethod(name, false); call != nil {
			return &method{obj, name, call}, true, nil
		}
	case *namespace:
		if i := o.attrs.findString(name); i >= 0 {
			if strings.HasPrefix(name, "_") {
				return unsafeAttribute(obj, name), true, nil
			}
			return o.attrs.vals[i], true, nil
		}
	case *loop:
		return o.member(name)
	case *macro:
		return o.member(name)
	case *cycler:
		return o.member(name)
	case groupPair:
		switch name {
		case "grouper":
			return o.tuple[0], true, nil
		case "list":
			return o.tuple[1], true, nil
		}
		return r.member(o.tuple, name)
	case float64:
		if name == "is_integer" {
			return &method{obj, name, floatIsInteger}, true, nil
		}
	case int64, *big.Int, bool:
		if name == "bit_length" {
			return &method{obj, name, intBitLength}, true, nil
		}
	case rangeValue:
		switch name {
		case "start":
			return o.start, true, nil
		case "stop":
			return o.stop, true, nil
		case "step":
			return o.step, true, nil
		}
	}
	return nil, false, nil
}

func unsafeAttribute(obj any, name string) any {
	return &undefined{sprintf("access to attribute '%s' of '%s' object is unsafe", name, typeName(obj)), SecurityError}
}

// missing is the undefined value of an attribute or item that is not there.
func missing(obj, name any) any {
	if obj == nil {
		return undefinedHint("None has no attribute %v", quoteName(name))
	}
	if s, ok := asStr(name); ok {
		return undefinedHint("'%s object' has no attribute '%s'", typeName(obj), s)
	}
	return undefinedHint("%s object has no element %v", typeName(obj), quoteName(name))
}

func quoteName(name any) string {
	switch n := name.(type) {
	case string:
		return "'" + n + "'"
	case int64:
		return sprintf("%d", n)
	}
	return typeName(name)
}

// attribute is obj.name: a Python attribute first, then an item.
func (r *render) attribute(obj any, name string) (any, error) {
	switch o := obj.(type) {
	case *undefined:
		return nil, o.fail()
	case *Map:
		// Most often an item of a dict that no method hides.
		if i := o.findString(name); i >= 0 && dictMethod(name) == nil {
			if v, ok, _ := r.member(obj, name); ok {
				return v, nil
			}
			return o.vals[i], nil
		}
	}
	v, ok, err := r.member(obj, name)
	if ok || err != nil {
		return v, err
	}
	return missing(obj, name), nil
}

// item is obj[index]: an item first, then a Python attribute.
func (r *render) item(obj, index any) (any, error) {
	v, ok, err := r.ownItem(obj, index)
	if ok || err != nil {
		return v, err
	}
	if name, isStr := asStr(index); isStr {
		if v, ok, err := r.member(obj, name); ok || err != nil {
			return v, err
		}
	}
	return missing(obj, index), nil
}

func (r *render) ownItem(obj, index any) (v any, ok bool, err error) {
	if u, isUndef := obj.(*undefined); isUndef {
		return nil, false, u.fail()
	}
	if m, isMap := obj.(*Map); isMap {
		i, err := m.find(index)
		if err != nil || i < 0 {
			return nil, false, nil // Jinja2 swallows unhashable keys here
		}
		return m.vals[i], true, nil
	}
	i, isInt := asInt(index)
	if !isInt {
		return nil, false, nil
	}
	switch o := obj.(type) {
	case groupPair:
		return r.ownItem(o.tuple, index)
	case []any:
		v, ok = at(o, i)
	case tuple:
		v, ok = at(o, i)
	case string, markup:
		s, _ := asStr(o)
		if v, ok, err = r.character(s, i); ok {
			v = like(obj, v.(string))
		}
	case rangeValue:
		if i < 0 {
			i += o.size
		}
		if i >= 0 && i < o.size {
			return o.start + i*o.step, true, nil
		}
	}
	return v, ok, err
}

func at(list []any, i int64) (any, bool) {
	if i < 0 {
		i += int64(len(list))
	}
	if i < 0 || i >= int64(len(list)) {
		return nil, false
	}
	return list[i], true
}

// character is s[i] for a string.
func (r *render) character(s string, i int64) (any, bool, error) {
	if err := r.work(len(s)); err != nil {
		return nil, false, err
	}
	n := int64(runeLen(s))
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return nil, false, nil
	}
	from := runeOffset(s, int(i))
	to := from + runeOffset(s[from:], 1)
	return s[from:to], true, nil
}

// runeOffset returns the byte offset of character n, len(s) behind the last.
func runeOffset(s string, n int) int {
	if n <= 0 {
		return 0
	}
	for i := 0; i < len(s); i++ {
		if s[i]&0xc0 != 0x80 {
			if n == 0 {
				return i
			}
			n--
		}
	}
	return len(s)
}

// slice is obj[lo:hi:step], with None for absent bounds.
func (r *render) slice(obj any, bounds [3]any) (any, error) {
	if u, ok := obj.(*undefined); ok {
		return nil, u.fail()
	}
	if g, ok := obj.(groupPair); ok {
		obj = g.tuple
	}
	size, ok := sizeOf(obj)
	if _, isMap := obj.(*Map); isMap || !ok {
		return nil, notSliceable(obj)
	}
	var b [3]int64
	b[2] = 1
	for i, v := range bounds {
		if v == nil {
			continue
		}
		n, ok := asInt(v)
		if !ok {
			return nil, typeErrorf("slice indices must be integers or None, not %s", typeName(v))
		}
		b[i] = n
	}
	if b[2] == 0 {
		return nil, valueErrorf("slice step cannot be zero")
	}
	lo, hi := sliceBounds(bounds, b, int64(size))
	return r.takeSlice(obj, lo, hi, b[2])
}

func notSliceable(obj any) error { return typeErrorf("'%s' object cannot be sliced", typeName(obj)) }

// sliceBounds clips bounds to the sequence, as Python's slice.indices does.
func sliceBounds(bounds [3]any, b [3]int64, size int64) (lo, hi int64) {
	first, last := int64(0), size // where a forward slice may start and end
	if b[2] < 0 {
		first, last = -1, size-1
	}
	clip := func(given any, v, otherwise int64) int64 {
		if given == nil {
			return otherwise
		}
		if v < 0 {
			return max(v+size, first)
		}
		return min(v, last)
	}
	if b[2] < 0 {
		return clip(bounds[0], b[0], last), clip(bounds[1], b[1], first)
	}
	return clip(bounds[0], b[0], first), clip(bounds[1], b[1], last)
}

func (r *render) takeSlice(obj any, lo, hi, step int64) (any, error) {
	if s, ok := asStr(obj); ok {
		if err := r.work(len(s)); err != nil {
			return nil, err
		}
		if step == 1 {
			if hi <= lo {
				return like(obj, ""), nil
			}
			from := runeOffset(s, int(lo))
			to := from + runeOffset(s[from:], int(hi-lo))
			return like(obj, s[from:to]), nil
		}
		chars, err := r.characters(s)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		for _, c := range stride(chars, lo, hi, step) {
			b.WriteString(c.(string))
		}
		return like(obj, b.String()), r.makeString(b.Len())
	}
	var list []any
	switch o := obj.(type) {
	case []any:
		if step == 1 {
			return o[min(lo, hi):hi:hi], nil
		}
		list = o
	case tuple:
		list = o
	case rangeValue:
		var err error
		if list, _, err = r.items(o); err != nil {
			return nil, err
		}
	default:
		return nil, notSliceable(obj)
	}
	if err := r.makeList(len(list)); err != nil {
		return nil, err
	}
	out := stride(list, lo, hi, step)
	if _, ok := obj.(tuple); ok {
		return tuple(out), nil
	}
	return out, nil
}

func stride(list []any, lo, hi, step int64) []any {
	out := []any{}
	for i := lo; step > 0 && i < hi || step < 0 && i > hi; i += step {
		out = append(out, list[i])
		if step > int64(len(list)) || -step > int64(len(list)) {
			break // the next index is outside and might overflow
		}
	}
	return out
}
