package template

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonStyle holds the arguments of tojson, which are those of json.dumps.
type jsonStyle struct {
	ascii     bool
	indented  bool
	indent    string
	item, key string // separators
	sortKeys  bool
}

// jsonWriter writes values as json.dumps does.
type jsonWriter struct {
	r     *render
	style jsonStyle
	b     []byte
}

func (w *jsonWriter) value(v any, depth int) error {
	if depth > maxValueDepth {
		return errTooDeep()
	}
	if err := w.r.step(); err != nil {
		return err
	}
	if err := w.r.checkString(len(w.b)); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		w.b = append(w.b, "null"...)
	case bool:
		w.b = strconv.AppendBool(w.b, v)
	case int64:
		w.b = strconv.AppendInt(w.b, v, 10)
	case *big.Int:
		w.b = v.Append(w.b, 10)
	case float64:
		w.b = append(w.b, jsonFloat(v)...)
	case string:
		return w.text(v)
	case markup:
		return w.text(string(v))
	case []any:
		return w.list(v, depth)
	case tuple:
		return w.list(v, depth)
	case groupPair:
		return w.list(v.tuple, depth)
	case *Map:
		return w.dict(v, depth)
	default:
		return typeErrorf("Object of type %s is not JSON serializable", typeName(v))
	}
	return nil
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

// line starts a new line at a depth, when there are lines.
func (w *jsonWriter) line(depth int) error {
	if !w.style.indented {
		return nil
	}
	if err := w.r.checkString(len(w.b) + depth*len(w.style.indent)); err != nil {
		return err
	}
	w.b = append(w.b, '\n')
	for range depth {
		w.b = append(w.b, w.style.indent...)
	}
	return nil
}

func (w *jsonWriter) list(list []any, depth int) error {
	if len(list) == 0 {
		w.b = append(w.b, "[]"...)
		return nil
	}
	w.b = append(w.b, '[')
	for i, v := range list {
		if i > 0 {
			w.b = append(w.b, w.style.item...)
		}
		if err := w.line(depth + 1); err != nil {
			return err
		}
		if err := w.value(v, depth+1); err != nil {
			return err
		}
	}
	if err := w.line(depth); err != nil {
		return err
	}
	w.b = append(w.b, ']')
	return nil
}

func (w *jsonWriter) dict(m *Map, depth int) error {
	if m.Len() == 0 {
		w.b = append(w.b, "{}"...)
		return nil
	}
	order, err := w.keyOrder(m)
	if err != nil {
		return err
	}
	w.b = append(w.b, '{')
	for i := range m.keys {
		j := i
		if order != nil {
			j = order[i]
		}
		if i > 0 {
			w.b = append(w.b, w.style.item...)
		}
		if err := w.line(depth + 1); err != nil {
			return err
		}
		if err := w.dictKey(m.keys[j]); err != nil {
			return err
		}
		w.b = append(w.b, w.style.key...)
		if err := w.value(m.vals[j], depth+1); err != nil {
			return err
		}
	}
	if err := w.line(depth); err != nil {
		return err
	}
	w.b = append(w.b, '}')
	return nil
}

func (w *jsonWriter) keyOrder(m *Map) ([]int, error) {
	if !w.style.sortKeys {
		return nil, nil
	}
	order := make([]int, m.Len())
	for i := range order {
		order[i] = i
	}
	var failed error
	slices.SortStableFunc(order, func(i, j int) int {
		o, _, err := w.r.order("<", m.keys[i], m.keys[j], 0)
		if err != nil && failed == nil {
			failed = err
		}
		return o
	})
	return order, failed
}

func (w *jsonWriter) dictKey(k any) error {
	switch k := k.(type) {
	case string:
		return w.text(k)
	case markup:
		return w.text(string(k))
	case nil, bool, int64, *big.Int, float64:
		w.b = append(w.b, '"')
		if err := w.value(k, 0); err != nil {
			return err
		}
		w.b = append(w.b, '"')
		return nil
	}
	return typeErrorf("keys must be str, int, float, bool or None, not %s", typeName(k))
}

const hexDigits = "0123456789abcdef"

func (w *jsonWriter) text(s string) error {
	if err := w.r.work(len(s)); err != nil {
		return err
	}
	if err := w.r.checkString(len(w.b) + len(s)); err != nil {
		return err
	}
	b := append(w.b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf && w.style.ascii {
			b = append(b, s[from:i]...)
			r, n := utf8.DecodeRuneInString(s[i:])
			if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
				b = appendUnicode(appendUnicode(b, hi), lo)
			} else {
				b = appendUnicode(b, r)
			}
			i += n
			from = i
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		default:
			b = appendUnicode(b, rune(c))
		}
		i++
		from = i
	}
	w.b = append(append(b, s[from:]...), '"')
	return nil
}

func appendUnicode(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
