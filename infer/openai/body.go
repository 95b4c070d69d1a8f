package openai

import (
	"math"
	"math/big"
	"slices"
	"strconv"

	"graft/model/template"
	"graft/spelling"
)

// body is a JSON object of a request being read: every field is asked for by name and type, the first
// fault sticks, and what nobody asked for is an error at the end. null counts as absent.
type body struct {
	fields *template.Map
	path   string // of this object in the request, with a dot behind it; "" for the request itself
	read   []string
	fault  *Fault
}

// parseBody reads the JSON of a request.
func parseBody(raw []byte) (*body, *Fault) {
	v, err := template.DecodeJSON(raw)
	if err != nil {
		return nil, invalid("", "the request body is not valid: %v", err)
	}
	m, ok := v.(*template.Map)
	if !ok {
		return nil, invalid("", "the request body is %s, want a JSON object", kindOf(v))
	}
	return &body{fields: m}, nil
}

// fail keeps the first fault.
func (b *body) fail(name, format string, args ...any) {
	if b.fault == nil {
		b.fault = invalid(b.path+name, format, args...)
	}
}

// keep keeps the first fault and reports whether there was one to keep.
func (b *body) keep(fault *Fault) bool {
	if fault != nil && b.fault == nil {
		b.fault = fault
	}
	return fault != nil
}

// value is a field that is there and not null.
func (b *body) value(name string) (any, bool) {
	b.read = append(b.read, name)
	v, ok := b.fields.Get(name)
	return v, ok && v != nil
}

func (b *body) wrongType(name string, v any, want string) {
	b.fail(name, "%s is %s, want %s", b.path+name, kindOf(v), want)
}

func (b *body) text(name, fallback string) string {
	v, ok := b.value(name)
	if !ok {
		return fallback
	}
	s, ok := v.(string)
	if !ok {
		b.wrongType(name, v, "a string")
	}
	return s
}

func (b *body) flag(name string, fallback bool) bool {
	v, ok := b.value(name)
	if !ok {
		return fallback
	}
	set, ok := v.(bool)
	if !ok {
		b.wrongType(name, v, "true or false")
	}
	return set
}

// integer is a whole number from lo to hi.
func (b *body) integer(name string, fallback, lo, hi int64) int64 {
	v, ok := b.value(name)
	if !ok {
		return fallback
	}
	return b.whole(name, v, lo, hi)
}

func (b *body) whole(name string, v any, lo, hi int64) int64 {
	n, ok := v.(int64)
	if f, isFloat := v.(float64); isFloat && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		n, ok = int64(f), true // 16.0, which some clients send
	}
	if _, huge := v.(*big.Int); huge {
		b.fail(name, "%s is out of range, want %d to %d", b.path+name, lo, hi)
		return lo
	}
	if !ok {
		b.wrongType(name, v, "a whole number")
		return lo
	}
	if n < lo || n > hi {
		b.fail(name, "%s is %d, want %d to %d", b.path+name, n, lo, hi)
		return lo
	}
	return n
}

// number is a finite number; the caller checks its range.
func (b *body) number(name string, fallback float64) float64 {
	v, ok := b.value(name)
	if !ok {
		return fallback
	}
	return b.finite(name, v)
}

func (b *body) finite(name string, v any) float64 {
	switch n := v.(type) {
	case int64:
		return float64(n)
	case float64:
		if !math.IsInf(n, 0) && !math.IsNaN(n) {
			return n
		}
		b.fail(name, "%s is out of range", b.path+name)
	case *big.Int:
		b.fail(name, "%s is out of range", b.path+name)
	default:
		b.wrongType(name, v, "a number")
	}
	return 0
}

// within is a number from lo to hi.
func (b *body) within(name string, fallback, lo, hi float64) float64 {
	n := b.number(name, fallback)
	if b.fault == nil && !(n >= lo && n <= hi) {
		b.fail(name, "%s is %v, want %v to %v", b.path+name, n, lo, hi)
	}
	return n
}

// object is a nested object, or nil.
func (b *body) object(name string) *body {
	v, ok := b.value(name)
	if !ok {
		return nil
	}
	m, ok := v.(*template.Map)
	if !ok {
		b.wrongType(name, v, "an object")
		return nil
	}
	return &body{fields: m, path: b.path + name + "."}
}

// list is an array of up to most elements, or nil.
func (b *body) list(name string, most int) []any {
	v, ok := b.value(name)
	if !ok {
		return nil
	}
	l, ok := v.([]any)
	if !ok {
		b.wrongType(name, v, "an array")
		return nil
	}
	if len(l) > most {
		b.fail(name, "%s has %d elements, at most %d", b.path+name, len(l), most)
		return nil
	}
	return l
}

// ids is an array of token ids below vocab, or nil.
func (b *body) ids(name string, most, vocab int) []int32 {
	list := b.list(name, most)
	if list == nil {
		return nil
	}
	return b.tokens(name, list, vocab)
}

func (b *body) tokens(name string, list []any, vocab int) []int32 {
	ids := make([]int32, len(list))
	for i, v := range list {
		n, ok := v.(int64)
		if !ok {
			b.wrongType(name+"["+strconv.Itoa(i)+"]", v, "a token id")
			return nil
		}
		if n < 0 || n >= int64(vocab) {
			b.fail(name+"["+strconv.Itoa(i)+"]", "token id %d is out of the vocabulary of %d", n, vocab)
			return nil
		}
		ids[i] = int32(n)
	}
	return ids
}

// ignore names fields that do not change what is computed.
func (b *body) ignore(names ...string) { b.read = append(b.read, names...) }

// refuse names a field that would change the result and is not supported; neutral lists the values
// that ask for nothing.
func (b *body) refuse(name, why string, neutral ...any) {
	v, ok := b.value(name)
	if !ok || slices.Contains(neutral, v) {
		return
	}
	if l, isList := v.([]any); isList && len(l) == 0 {
		return
	}
	b.fail(name, "%s is not supported: %s", b.path+name, why)
}

// done ends the reading: the first fault, or a field that nobody knows.
func (b *body) done() *Fault {
	if b.fault != nil {
		return b.fault
	}
	for _, key := range b.fields.Keys() {
		if slices.Contains(b.read, key) {
			continue
		}
		hint := ""
		if near, ok := nearest(key, b.read); ok {
			hint = "; did you mean " + near + "?"
		}
		fault := invalid(b.path+clip(key), "unknown field %q%s", clip(b.path+key), hint)
		fault.foreign = true
		return fault
	}
	return nil
}

// nearest is the name that a misspelled key probably meant.
func nearest(key string, names []string) (string, bool) {
	if len(key) > 64 {
		return "", false
	}
	best, at := 3, ""
	for _, name := range names {
		if d := spelling.Distance(key, name); d < best && d*2 < len(name) {
			best, at = d, name
		}
	}
	return at, at != ""
}

// kindOf names the JSON type of a value.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "an array"
	case *template.Map:
		return "an object"
	}
	return "a number"
}
