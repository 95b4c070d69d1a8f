package template

import (
	"math"
	"math/big"
	"strings"
)

// Map is a dict: values by key, in the order in which the keys were first set.
// The zero Map is empty and ready. A Map must not change while a render reads
// it.
type Map struct {
	keys  []any // strings, except in dicts that a template made
	vals  []any
	index map[any]int // canonical key to position; nil while the map is small
}

// smallMap is the size up to which keys are found by looking at each.
const smallMap = 8

// NewMap returns a map of the given pairs: NewMap("role", "user", "content",
// text). It panics unless keys are strings and every key has a value.
func NewMap(pairs ...any) *Map {
	if len(pairs)%2 != 0 {
		panic("template.NewMap: a key without a value")
	}
	m := &Map{}
	for i := 0; i < len(pairs); i += 2 {
		m.Set(pairs[i].(string), pairs[i+1])
	}
	return m
}

// Len is the number of keys. A nil Map is empty.
func (m *Map) Len() int {
	if m == nil {
		return 0
	}
	return len(m.keys)
}

// Get returns the value of a key and whether it is there.
func (m *Map) Get(key string) (any, bool) {
	if i := m.findString(key); i >= 0 {
		return m.vals[i], true
	}
	return nil, false
}

// Set gives a key its value. A new key goes behind all others.
func (m *Map) Set(key string, value any) {
	if i := m.findString(key); i >= 0 {
		m.vals[i] = value
		return
	}
	m.add(key, key, value)
}

// Delete removes a key if it is there.
func (m *Map) Delete(key string) {
	i := m.findString(key)
	if i < 0 {
		return
	}
	old := *m
	*m = Map{}
	for j, k := range old.keys {
		if j != i {
			m.add(k, canonicalOf(k), old.vals[j])
		}
	}
}

// Keys returns the keys in order. Keys that are not strings, which only maps
// made by a template have, are left out.
func (m *Map) Keys() []string {
	out := make([]string, 0, m.Len())
	if m == nil {
		return out
	}
	for _, k := range m.keys {
		if s, ok := k.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func (m *Map) findString(key string) int {
	if m == nil {
		return -1
	}
	if m.index != nil {
		if i, ok := m.index[key]; ok {
			return i
		}
		return -1
	}
	for i, k := range m.keys {
		if s, ok := k.(string); ok && s == key {
			return i
		}
		if s, ok := k.(markup); ok && string(s) == key {
			return i
		}
	}
	return -1
}

// add appends a key that is not there.
func (m *Map) add(key, canonical, value any) {
	m.keys = append(m.keys, key)
	m.vals = append(m.vals, value)
	if m.index != nil {
		m.index[canonical] = len(m.keys) - 1
	} else if len(m.keys) > smallMap {
		m.index = make(map[any]int, 2*len(m.keys))
		for i, k := range m.keys {
			m.index[canonicalOf(k)] = i
		}
	}
}

// find returns the position of a key, -1 when it is not there.
func (m *Map) find(key any) (int, error) {
	if s, ok := asStr(key); ok {
		return m.findString(s), nil
	}
	c, err := canonical(key, 0)
	if err != nil {
		return -1, err
	}
	if m.index != nil {
		if i, ok := m.index[c]; ok {
			return i, nil
		}
		return -1, nil
	}
	for i, k := range m.keys {
		if canonicalOf(k) == c {
			return i, nil
		}
	}
	return -1, nil
}

func (m *Map) put(key, value any) error {
	i, err := m.find(key)
	if err != nil {
		return err
	}
	if i >= 0 {
		m.vals[i] = value
	} else {
		m.add(key, canonicalOf(key), value)
	}
	return nil
}

func (m *Map) clone() *Map {
	c := &Map{keys: append([]any(nil), m.keys...), vals: append([]any(nil), m.vals...)}
	if m.index != nil {
		c.index = make(map[any]int, len(m.index))
		for k, i := range m.index {
			c.index[k] = i
		}
	}
	return c
}

// canonicalOf is canonical for a key that has been accepted before.
func canonicalOf(key any) any {
	c, _ := canonical(key, 0)
	return c
}

// tupleKey is the canonical form of a tuple: the forms of its elements with
// their Go types and lengths.
type tupleKey string

// canonical maps keys that Python counts as equal (1, 1.0 and True) to one
// comparable Go value, and fails on those that cannot be keys.
func canonical(key any, depth int) (any, error) {
	switch k := key.(type) {
	case nil, string, int64:
		return key, nil
	case markup:
		return string(k), nil
	case bool:
		if k {
			return int64(1), nil
		}
		return int64(0), nil
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<63 {
			return int64(k), nil
		}
		return k, nil
	case *big.Int:
		return tupleKey("big " + k.String()), nil
	case *undefined:
		return undefined{}, nil // all undefined values are equal
	case tuple:
		return canonicalTuple(k, depth)
	case []any, *Map:
		return nil, typeErrorf("unhashable type: '%s'", typeName(key))
	case view:
		if k.what != "values" {
			return nil, typeErrorf("unhashable type: '%s'", typeName(key))
		}
	}
	return key, nil // by identity
}

func canonicalTuple(t tuple, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, errTooDeep()
	}
	var b strings.Builder
	for _, v := range t {
		c, err := canonical(v, depth+1)
		if err != nil {
			return nil, err
		}
		part := sprintf("%T %v", c, c)
		b.WriteString(sprintf("%d:%s,", len(part), part))
		if b.Len() > 1<<16 {
			return nil, fail(LimitError, "a tuple used as dict key is longer than 64 KiB")
		}
	}
	return tupleKey(b.String()), nil
}
