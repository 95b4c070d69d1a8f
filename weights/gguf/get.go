package gguf

import (
	"fmt"
	"math"
)

// The getters return the value of a key converted to a plain Go type. A key
// that is missing or has a value of another kind is an error that names it;
// the forms that end in Or return a default for a missing key, and still an
// error for a value of another kind.

// Uint returns the non-negative integer of any width at key.
func (f *File) Uint(key string) (uint64, error) { return get(f, key, asUint) }

// UintOr is Uint with a default for a missing key.
func (f *File) UintOr(key string, missing uint64) (uint64, error) {
	return getOr(f, key, missing, asUint)
}

// Int returns the integer of any width at key.
func (f *File) Int(key string) (int, error) { return get(f, key, asInt) }

// IntOr is Int with a default for a missing key.
func (f *File) IntOr(key string, missing int) (int, error) { return getOr(f, key, missing, asInt) }

// Float returns the number at key, of either float width or an integer.
func (f *File) Float(key string) (float64, error) { return get(f, key, asFloat) }

// FloatOr is Float with a default for a missing key.
func (f *File) FloatOr(key string, missing float64) (float64, error) {
	return getOr(f, key, missing, asFloat)
}

// Bool returns the bool at key.
func (f *File) Bool(key string) (bool, error) { return get(f, key, as[bool]) }

// BoolOr is Bool with a default for a missing key.
func (f *File) BoolOr(key string, missing bool) (bool, error) {
	return getOr(f, key, missing, as[bool])
}

// Str returns the string at key.
func (f *File) Str(key string) (string, error) { return get(f, key, as[string]) }

// StrOr is Str with a default for a missing key.
func (f *File) StrOr(key string, missing string) (string, error) {
	return getOr(f, key, missing, as[string])
}

// Strings returns the array of strings at key. The caller must not change it.
func (f *File) Strings(key string) ([]string, error) { return get(f, key, as[[]string]) }

// StringsOr is Strings with a default for a missing key.
func (f *File) StringsOr(key string, missing []string) ([]string, error) {
	return getOr(f, key, missing, as[[]string])
}

// Floats returns the array of floats of either width at key.
func (f *File) Floats(key string) ([]float32, error) { return get(f, key, asFloats) }

// FloatsOr is Floats with a default for a missing key.
func (f *File) FloatsOr(key string, missing []float32) ([]float32, error) {
	return getOr(f, key, missing, asFloats)
}

// Ints returns the array of integers of any width at key.
func (f *File) Ints(key string) ([]int, error) { return get(f, key, asInts) }

// IntsOr is Ints with a default for a missing key.
func (f *File) IntsOr(key string, missing []int) ([]int, error) {
	return getOr(f, key, missing, asInts)
}

// Bools returns the array of bools at key. The caller must not change it.
func (f *File) Bools(key string) ([]bool, error) { return get(f, key, as[[]bool]) }

// BoolsOr is Bools with a default for a missing key.
func (f *File) BoolsOr(key string, missing []bool) ([]bool, error) {
	return getOr(f, key, missing, as[[]bool])
}

func get[T any](f *File, key string, convert func(any) (T, error)) (T, error) {
	v, ok := f.KV[key]
	if !ok {
		var zero T
		return zero, fmt.Errorf("gguf: key %q is missing", key)
	}
	out, err := convert(v)
	if err != nil {
		return out, fmt.Errorf("gguf: key %q: %w", key, err)
	}
	return out, nil
}

func getOr[T any](f *File, key string, missing T, convert func(any) (T, error)) (T, error) {
	if _, ok := f.KV[key]; !ok {
		return missing, nil
	}
	return get(f, key, convert)
}

// typeOf names the type of a value with enough of it to recognize it.
func typeOf(v any) string {
	switch v := v.(type) {
	case string:
		if len(v) > 40 {
			return fmt.Sprintf("string (%q…)", v[:40])
		}
		return fmt.Sprintf("string (%q)", v)
	case bool, uint8, int8, uint16, int16, uint32, int32, uint64, int64, float32, float64:
		return fmt.Sprintf("%T (%v)", v, v)
	}
	return fmt.Sprintf("%T", v)
}

func as[T any](v any) (T, error) {
	out, ok := v.(T)
	if !ok {
		return out, fmt.Errorf("is %s, want %T", typeOf(v), out)
	}
	return out, nil
}

// integer returns the integer v as its magnitude and sign, and whether it is one.
func integer(v any) (magnitude uint64, negative, ok bool) {
	var s int64
	switch v := v.(type) {
	case uint8:
		return uint64(v), false, true
	case uint16:
		return uint64(v), false, true
	case uint32:
		return uint64(v), false, true
	case uint64:
		return v, false, true
	case int8:
		s = int64(v)
	case int16:
		s = int64(v)
	case int32:
		s = int64(v)
	case int64:
		s = v
	default:
		return 0, false, false
	}
	if s < 0 {
		return -uint64(s), true, true
	}
	return uint64(s), false, true
}

func asUint(v any) (uint64, error) {
	m, negative, ok := integer(v)
	if !ok || negative {
		return 0, fmt.Errorf("is %s, want a non-negative integer", typeOf(v))
	}
	return m, nil
}

func asInt(v any) (int, error) {
	m, negative, ok := integer(v)
	limit := uint64(math.MaxInt)
	if negative {
		limit++
	}
	switch {
	case !ok:
		return 0, fmt.Errorf("is %s, want an integer", typeOf(v))
	case m > limit:
		return 0, fmt.Errorf("is %s, too large", typeOf(v))
	case negative:
		return -int(m), nil
	}
	return int(m), nil
}

func asFloat(v any) (float64, error) {
	switch v := v.(type) {
	case float32:
		return float64(v), nil
	case float64:
		return v, nil
	}
	m, negative, ok := integer(v)
	if !ok {
		return 0, fmt.Errorf("is %s, want a number", typeOf(v))
	}
	if negative {
		return -float64(m), nil
	}
	return float64(m), nil
}

func asFloats(v any) ([]float32, error) {
	switch v := v.(type) {
	case []float32:
		return v, nil
	case []float64:
		out := make([]float32, len(v))
		for i, x := range v {
			out[i] = float32(x)
		}
		return out, nil
	}
	return nil, fmt.Errorf("is %s, want an array of floats", typeOf(v))
}

func asInts(v any) ([]int, error) {
	switch v := v.(type) {
	case []uint8:
		return ints(v)
	case []int8:
		return ints(v)
	case []uint16:
		return ints(v)
	case []int16:
		return ints(v)
	case []uint32:
		return ints(v)
	case []int32:
		return ints(v)
	case []uint64:
		return ints(v)
	case []int64:
		return ints(v)
	}
	return nil, fmt.Errorf("is %s, want an array of integers", typeOf(v))
}

func ints[T uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64](v []T) ([]int, error) {
	out := make([]int, len(v))
	for i, x := range v {
		out[i] = int(x)
		if T(out[i]) != x || (out[i] < 0) != (x < 0) {
			return nil, fmt.Errorf("element %d is %d, too large", i, x)
		}
	}
	return out, nil
}
