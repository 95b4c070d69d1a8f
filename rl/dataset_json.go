package rl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// CheckJSON refuses what a decoder of one JSON value would quietly change: bytes that are not UTF-8,
// half of a surrogate pair (it becomes U+FFFD), and a key given twice in one object (one value is
// dropped). The error names the column, which is the key of the outermost object. Whether raw is
// JSON at all is for the decoder to tell.
func CheckJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return errors.New("not valid UTF-8; write the text in UTF-8")
	}
	c := &jsonCheck{}
	for at := 0; at < len(raw) && len(c.open) <= maxJSONNesting; at++ {
		switch raw[at] {
		case '{', '[':
			c.open = append(c.open, jsonScope{object: raw[at] == '{', key: raw[at] == '{'})
		case '}', ']':
			if len(c.open) > 0 {
				c.open = c.open[:len(c.open)-1]
			}
		case ',':
			if n := len(c.open); n > 0 {
				c.open[n-1].key = c.open[n-1].object
			}
		case '"':
			end := endOfString(raw, at)
			if end < 0 {
				return nil
			}
			if err := c.text(raw[at:end]); err != nil {
				return err
			}
			at = end - 1
		}
	}
	return nil
}

// maxJSONNesting is deeper than any decoder here goes.
const maxJSONNesting = 1000

// endOfString is the place behind the string that begins at a quote, -1 if it does not end.
func endOfString(raw []byte, at int) int {
	for i := at + 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// jsonCheck is where a check stands: the objects and arrays that are open.
type jsonCheck struct{ open []jsonScope }

type jsonScope struct {
	object bool
	key    bool     // the next string is a key
	name   string   // the last key
	few    []string // keys so far, while they are few
	many   map[string]bool
}

// text checks a string, quotes included, and takes it in if it is a key.
func (c *jsonCheck) text(quoted []byte) error {
	key := len(c.open) > 0 && c.open[len(c.open)-1].key
	if escape := loneSurrogate(quoted); escape != "" {
		if key {
			return c.at(fmt.Errorf("the key %s has %s, which is half of a character: it needs its other half, as in \\ud83d\\ude00; mend it", quoted, escape))
		}
		return c.at(fmt.Errorf("%s is half of a character: it needs its other half, as in \\ud83d\\ude00; mend it or remove it", escape))
	}
	if !key {
		return nil
	}
	name := string(quoted[1 : len(quoted)-1])
	if bytes.IndexByte(quoted, '\\') >= 0 && json.Unmarshal(quoted, &name) != nil {
		return nil
	}
	scope := &c.open[len(c.open)-1]
	if !scope.add(name) {
		if len(c.open) == 1 {
			return fmt.Errorf("column %q is given twice; remove one of them", name)
		}
		return c.at(fmt.Errorf("the key %q is given twice in one object; remove one of them", name))
	}
	scope.key, scope.name = false, name
	return nil
}

// at names the column of an error.
func (c *jsonCheck) at(err error) error {
	if len(c.open) == 0 || !c.open[0].object || len(c.open) == 1 && c.open[0].key {
		return err
	}
	return fmt.Errorf("column %q: %w", c.open[0].name, err)
}

// add takes a key in; false if it was there.
func (s *jsonScope) add(name string) bool {
	if s.many == nil {
		for _, k := range s.few {
			if k == name {
				return false
			}
		}
		if s.few = append(s.few, name); len(s.few) > 16 {
			s.many = map[string]bool{}
			for _, k := range s.few {
				s.many[k] = true
			}
		}
		return true
	}
	if s.many[name] {
		return false
	}
	s.many[name] = true
	return true
}

// loneSurrogate is the first escape in a string that is half of a pair, "" if there is none.
func loneSurrogate(quoted []byte) string {
	for i := 0; i < len(quoted); i++ {
		if quoted[i] != '\\' {
			continue
		}
		unit, ok := escapedUnit(quoted[i:])
		if !ok || !utf16.IsSurrogate(unit) {
			i++ // what is escaped is no escape itself
			continue
		}
		low, _ := escapedUnit(quoted[i+6:])
		if utf16.DecodeRune(unit, low) == utf8.RuneError {
			return string(quoted[i : i+6])
		}
		i += 11
	}
	return ""
}

// escapedUnit reads the UTF-16 unit of an escape such as \u00e4.
func escapedUnit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(v), err == nil
}
