package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// jsonReader walks a JSON document once, without building it: a tokenizer.json is tens of megabytes of vocabulary,
// which the general decoder would read three times.
type jsonReader struct {
	data []byte
	pos  int
}

func (r *jsonReader) errorf(format string, args ...any) error {
	return fmt.Errorf("tokenizer: JSON at byte %d: %s", r.pos, fmt.Sprintf(format, args...))
}

// peek skips white space and returns the next byte, 0 at the end.
func (r *jsonReader) peek() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

func (r *jsonReader) expect(c byte) error {
	if got := r.peek(); got != c {
		return r.errorf("%q where %q belongs", got, c)
	}
	r.pos++
	return nil
}

// object calls field for every key, positioned at its value, which field must read.
func (r *jsonReader) object(field func(key []byte) error) error {
	if err := r.expect('{'); err != nil {
		return err
	}
	if r.peek() == '}' {
		r.pos++
		return nil
	}
	for {
		key, err := r.text()
		if err != nil {
			return err
		}
		if err := r.expect(':'); err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
		if r.peek() == ',' {
			r.pos++
			continue
		}
		return r.expect('}')
	}
}

// array calls item at every element, which item must read.
func (r *jsonReader) array(item func() error) error {
	if err := r.expect('['); err != nil {
		return err
	}
	if r.peek() == ']' {
		r.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if r.peek() == ',' {
			r.pos++
			continue
		}
		return r.expect(']')
	}
}

// text reads a string. The bytes are good until the document is.
func (r *jsonReader) text() ([]byte, error) {
	if r.peek() != '"' {
		return nil, r.errorf("%q where a string belongs", r.peek())
	}
	start := r.pos + 1
	end := bytes.IndexByte(r.data[start:], '"')
	if end < 0 {
		return nil, r.errorf("unterminated string")
	}
	if s := r.data[start : start+end]; bytes.IndexByte(s, '\\') < 0 {
		r.pos = start + end + 1
		return s, nil
	}
	if err := r.skipString(); err != nil {
		return nil, err
	}
	var s string
	if err := json.Unmarshal(r.data[start-1:r.pos], &s); err != nil {
		return nil, r.errorf("%v", err)
	}
	return []byte(s), nil
}

// skipString passes a string: its end is the first quote behind an even number of backslashes.
func (r *jsonReader) skipString() error {
	for at := r.pos + 1; ; {
		n := bytes.IndexByte(r.data[at:], '"')
		if n < 0 {
			return r.errorf("unterminated string")
		}
		at += n + 1
		slashes := 0
		for r.data[at-2-slashes] == '\\' { // the opening quote ends the count
			slashes++
		}
		if slashes%2 == 0 {
			r.pos = at
			return nil
		}
	}
}

// scalar reads a number or a word.
func (r *jsonReader) scalar() []byte {
	r.peek()
	start := r.pos
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case ',', ']', '}', ' ', '\t', '\n', '\r', ':', '"', '[', '{':
			return r.data[start:r.pos]
		}
		r.pos++
	}
	return r.data[start:r.pos]
}

func (r *jsonReader) integer() (int, error) {
	n, err := strconv.ParseInt(string(r.scalar()), 10, 32)
	if err != nil {
		return 0, r.errorf("%v", err)
	}
	return int(n), nil
}

func (r *jsonReader) number() (float64, error) {
	x, err := strconv.ParseFloat(string(r.scalar()), 64)
	if err != nil {
		return 0, r.errorf("%v", err)
	}
	return x, nil
}

// value skips one value and returns its bytes.
func (r *jsonReader) value() (json.RawMessage, error) {
	r.peek()
	start, depth := r.pos, 0
	for {
		switch c := r.peek(); c {
		case 0:
			return nil, r.errorf("unexpected end")
		case '"':
			if err := r.skipString(); err != nil {
				return nil, err
			}
		case '{', '[':
			depth++
			r.pos++
		case '}', ']':
			depth--
			r.pos++
		case ',', ':':
			r.pos++
		default:
			r.scalar()
		}
		if depth < 0 {
			return nil, r.errorf("unbalanced brackets")
		}
		if depth == 0 {
			return r.data[start:r.pos], nil
		}
	}
}
