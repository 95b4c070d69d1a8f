package template

import (
	"errors"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth bounds the nesting of decoded JSON, well within what printing
// and comparing values allow.
const maxJSONDepth = 200

// DecodeJSON reads one JSON value for use in a Chat: objects become *Map with
// the order of their keys kept (of two equal keys the last value wins), arrays
// []any, integers int64 (or *big.Int where 64 bits are too few), other numbers
// float64. A lone surrogate escape becomes U+FFFD. Nesting is bounded to 200.
func DecodeJSON(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("JSON is not valid UTF-8")
	}
	d := &jsonReader{s: string(data)}
	v, err := d.value(0)
	if err != nil {
		return nil, err
	}
	d.space()
	if d.pos < len(d.s) {
		return nil, d.fail("more text behind the value")
	}
	return v, nil
}

type jsonReader struct {
	s   string
	pos int
}

func (d *jsonReader) fail(format string, args ...any) error {
	return errors.New(sprintf("JSON at byte %d: ", d.pos) + sprintf(format, args...))
}

func (d *jsonReader) space() {
	for d.pos < len(d.s) && strings.IndexByte(" \t\r\n", d.s[d.pos]) >= 0 {
		d.pos++
	}
}

// peek returns the next byte behind white space, 0 at the end.
func (d *jsonReader) peek() byte {
	d.space()
	if d.pos < len(d.s) {
		return d.s[d.pos]
	}
	return 0
}

func (d *jsonReader) value(depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, d.fail("nested more than %d deep", maxJSONDepth)
	}
	switch c := d.peek(); {
	case c == '{':
		return d.object(depth)
	case c == '[':
		return d.array(depth)
	case c == '"':
		return d.text()
	case c == '-' || c >= '0' && c <= '9':
		return d.number()
	}
	for _, word := range [...]struct {
		text  string
		value any
	}{{"null", nil}, {"true", true}, {"false", false}} {
		if strings.HasPrefix(d.s[d.pos:], word.text) {
			d.pos += len(word.text)
			return word.value, nil
		}
	}
	return nil, d.fail("expected a value")
}

func (d *jsonReader) object(depth int) (any, error) {
	m := &Map{}
	d.pos++
	if d.peek() == '}' {
		d.pos++
		return m, nil
	}
	for {
		if d.peek() != '"' {
			return nil, d.fail("expected a key in double quotes")
		}
		key, err := d.text()
		if err != nil {
			return nil, err
		}
		if d.peek() != ':' {
			return nil, d.fail("expected : behind key %q", key)
		}
		d.pos++
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		m.Set(key, v)
		switch d.peek() {
		case ',':
			d.pos++
		case '}':
			d.pos++
			return m, nil
		default:
			return nil, d.fail("expected , or } in an object")
		}
	}
}

func (d *jsonReader) array(depth int) (any, error) {
	list := []any{}
	d.pos++
	if d.peek() == ']' {
		d.pos++
		return list, nil
	}
	for {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		switch d.peek() {
		case ',':
			d.pos++
		case ']':
			d.pos++
			return list, nil
		default:
			return nil, d.fail("expected , or ] in an array")
		}
	}
}

// digits moves past decimal digits and says whether there were any.
func (d *jsonReader) digits() bool {
	from := d.pos
	for d.pos < len(d.s) && d.s[d.pos] >= '0' && d.s[d.pos] <= '9' {
		d.pos++
	}
	return d.pos > from
}

func (d *jsonReader) number() (any, error) {
	from := d.pos
	if d.s[d.pos] == '-' {
		d.pos++
	}
	lead := d.pos
	if !d.digits() {
		return nil, d.fail("expected digits")
	}
	if d.s[lead] == '0' && d.pos > lead+1 {
		return nil, d.fail("a number with a leading zero")
	}
	isFloat := false
	if d.pos < len(d.s) && d.s[d.pos] == '.' {
		isFloat = true
		d.pos++
		if !d.digits() {
			return nil, d.fail("expected digits behind the decimal point")
		}
	}
	if d.pos < len(d.s) && (d.s[d.pos] == 'e' || d.s[d.pos] == 'E') {
		isFloat = true
		d.pos++
		if d.pos < len(d.s) && (d.s[d.pos] == '+' || d.s[d.pos] == '-') {
			d.pos++
		}
		if !d.digits() {
			return nil, d.fail("expected digits in the exponent")
		}
	}
	text := d.s[from:d.pos]
	if isFloat {
		f, _ := strconv.ParseFloat(text, 64) // out of range reads as infinity, as in Python
		return f, nil
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	if len(text) > 4300 { // Python's own bound on converting digits
		return nil, d.fail("an integer of %d digits; at most 4300 are accepted", len(text))
	}
	i, _ := new(big.Int).SetString(text, 10)
	return i, nil
}

func (d *jsonReader) text() (string, error) {
	d.pos++
	from := d.pos
	var b []byte // nil until the first escape
	for {
		if d.pos >= len(d.s) {
			return "", d.fail("a string is never closed")
		}
		c := d.s[d.pos]
		switch {
		case c == '"':
			s := d.s[from:d.pos]
			d.pos++
			if b != nil {
				s = string(append(b, s...))
			}
			return s, nil
		case c < 0x20:
			return "", d.fail("control character %#x in a string must be escaped", c)
		case c != '\\':
			d.pos++
			continue
		}
		b = append(b, d.s[from:d.pos]...)
		r, err := d.escape()
		if err != nil {
			return "", err
		}
		b = utf8.AppendRune(b, r)
		from = d.pos
	}
}

// escape reads the escape at the current backslash.
func (d *jsonReader) escape() (rune, error) {
	if d.pos+1 >= len(d.s) {
		return 0, d.fail("a string is never closed")
	}
	c := d.s[d.pos+1]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		d.pos += 2
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	r, ok := d.hex()
	if !ok {
		return 0, d.fail("malformed escape in a string")
	}
	d.pos += 6
	if utf16.IsSurrogate(r) {
		if low, ok := d.hex(); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				d.pos += 6
				return pair, nil
			}
		}
		return utf8.RuneError, nil
	}
	return r, nil
}

// hex reads \uXXXX at the current position without moving.
func (d *jsonReader) hex() (rune, bool) {
	s := d.s[d.pos:]
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(s[2:6], 16, 32)
	return rune(v), err == nil
}
