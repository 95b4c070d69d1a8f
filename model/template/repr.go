package template

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is Python's str(v).
func (r *render) str(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case markup:
		return string(v), nil
	case *undefined:
		return "", nil
	}
	return r.repr(v)
}

// repr is Python's repr(v). Where Python prints an address there is none.
func (r *render) repr(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "None", nil
	case bool:
		if v {
			return "True", nil
		}
		return "False", nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return floatRepr(v), nil
	}
	b, err := r.appendRepr(nil, v, 0)
	if err != nil {
		return "", err
	}
	if err := r.makeString(len(b)); err != nil {
		return "", err
	}
	return string(b), nil
}

func (r *render) appendRepr(b []byte, v any, depth int) ([]byte, error) {
	if depth > maxValueDepth {
		return nil, errTooDeep()
	}
	if err := r.step(); err != nil {
		return nil, err
	}
	if err := r.checkString(len(b)); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return append(b, "None"...), nil
	case bool:
		if v {
			return append(b, "True"...), nil
		}
		return append(b, "False"...), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case *big.Int:
		return v.Append(b, 10), nil
	case float64:
		return append(b, floatRepr(v)...), nil
	case string:
		return r.appendQuoted(b, v)
	case markup:
		b, err := r.appendQuoted(append(b, "Markup("...), string(v))
		return append(b, ')'), err
	case []any:
		b, err := r.appendList(append(b, '['), v, depth)
		return append(b, ']'), err
	case tuple:
		b, err := r.appendList(append(b, '('), v, depth)
		if len(v) == 1 {
			b = append(b, ',')
		}
		return append(b, ')'), err
	case groupPair:
		return r.appendRepr(b, v.tuple, depth)
	case *Map:
		return r.appendDict(b, v, depth)
	case *undefined:
		return append(b, "Undefined"...), nil
	case rangeValue:
		b = append(b, sprintf("range(%d, %d", v.start, v.stop)...)
		if v.step != 1 {
			b = append(b, sprintf(", %d", v.step)...)
		}
		return append(b, ')'), nil
	case view:
		list, err := r.viewItems(v)
		if err != nil {
			return nil, err
		}
		b, err := r.appendRepr(append(b, typeName(v)+"("...), list, depth+1)
		return append(b, ')'), err
	case *namespace:
		b, err := r.appendRepr(append(b, "<Namespace "...), v.attrs, depth+1)
		return append(b, '>'), err
	case *macro:
		if v.def.name == "" {
			return append(b, "<Macro anonymous>"...), nil
		}
		return append(b, sprintf("<Macro '%s'>", v.def.name)...), nil
	case *loop:
		n, err := v.size()
		return append(b, sprintf("<LoopContext %d/%d>", v.index0+1, n)...), err
	case *method:
		return append(b, sprintf("<built-in method %s of %s object>", v.name, typeName(v.self))...), nil
	case *function:
		return append(b, sprintf("<function %s>", v.name)...), nil
	}
	return append(b, sprintf("<%s object>", typeName(v))...), nil
}

func (r *render) appendList(b []byte, list []any, depth int) ([]byte, error) {
	var err error
	for i, v := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		if b, err = r.appendRepr(b, v, depth+1); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (r *render) appendDict(b []byte, m *Map, depth int) ([]byte, error) {
	b = append(b, '{')
	var err error
	for i, k := range m.keys {
		if i > 0 {
			b = append(b, ", "...)
		}
		if b, err = r.appendRepr(b, k, depth+1); err != nil {
			return nil, err
		}
		b = append(b, ": "...)
		if b, err = r.appendRepr(b, m.vals[i], depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// floatRepr is the shortest text that reads back as f, written as Python does.
func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	exp, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	if exp < -4 || exp >= 16 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if strings.IndexByte(s, '.') < 0 {
		s += ".0"
	}
	return s
}

// appendQuoted appends the repr of a string.
func (r *render) appendQuoted(b []byte, s string) ([]byte, error) {
	if err := r.work(len(s)); err != nil {
		return nil, err
	}
	if err := r.checkString(len(b) + len(s)); err != nil {
		return nil, err
	}
	quote := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		quote = '"'
	}
	b = append(b, quote)
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == rune(quote) || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(c):
			b = append(b, s[i:i+n]...)
		default:
			b = append(b, asciiEscape(c)...)
		}
		i += n
	}
	return append(b, quote), nil
}
