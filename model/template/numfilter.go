package template

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// parsePythonInt is int(s, base).
func parsePythonInt(s string, base int) (any, bool) {
	s = strings.TrimFunc(s, isSpace)
	if len(s) > 4300 { // Python's own bound on converting digits
		return nil, false
	}
	body := strings.TrimLeft(s, "+-")
	if len(s)-len(body) > 1 || strings.HasSuffix(body, "_") || strings.Contains(body, "__") || strings.HasPrefix(body, "_") {
		return nil, false
	}
	if len(body) > 2 && body[0] == '0' {
		prefix := map[byte]int{'x': 16, 'X': 16, 'o': 8, 'O': 8, 'b': 2, 'B': 2}[body[1]]
		if prefix != 0 && prefix == base {
			body = strings.TrimPrefix(body[2:], "_")
		}
	}
	digits := strings.ReplaceAll(body, "_", "")
	if base == 0 {
		if trimmed := strings.TrimLeft(digits, "0"); digits != "" && trimmed != "" && trimmed != digits && trimmed[0] >= '0' && trimmed[0] <= '9' {
			return nil, false // 010 is no literal
		}
	}
	if digits == "" || digits[0] == '+' || digits[0] == '-' {
		return nil, false
	}
	i, ok := new(big.Int).SetString(digits, base)
	if !ok {
		return nil, false
	}
	if s[0] == '-' {
		i.Neg(i)
	}
	return normInt(i), true
}

// parsePythonFloat is float(s).
func parsePythonFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	if strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	for i := range len(s) {
		if s[i] == '_' && (i == 0 || i+1 == len(s) || !isDigit(s[i-1]) || !isDigit(s[i+1])) {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || isRange(err)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// floatToInt is int(f); ok is false for NaN and infinities.
func floatToInt(f float64) (any, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, false
	}
	i, _ := big.NewFloat(f).Int(nil)
	return normInt(i), true
}

func filterInt(r *render, v any, args []any) (any, error) {
	base, err := intArg(args, 1, 10)
	if err != nil {
		return nil, err
	}
	if base != 0 && (base < 2 || base > 36) {
		base = 37 // Python's ValueError, which gives the default
	}
	otherwise := arg(args, 0, int64(0))
	switch v := v.(type) {
	case *undefined:
		return nil, v.fail()
	case bool:
		return boolInt(v), nil
	case int64, *big.Int:
		return v, nil
	case float64:
		if math.IsInf(v, 0) {
			return nil, valueErrorf("cannot convert float infinity to integer")
		}
		if i, ok := floatToInt(v); ok {
			return i, nil
		}
		return otherwise, nil
	}
	s, ok := asStr(v)
	if !ok {
		return otherwise, nil
	}
	if err := r.work(len(s)); err != nil {
		return nil, err
	}
	if base <= 36 {
		if i, ok := parsePythonInt(s, int(base)); ok {
			return i, nil
		}
	}
	if f, ok := parsePythonFloat(s); ok {
		if i, ok := floatToInt(f); ok {
			return i, nil
		}
	}
	return otherwise, nil
}

func filterFloat(r *render, v any, args []any) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if isNumber(v) {
		f, ok := asFloat(v)
		if !ok {
			return nil, valueErrorf("int too large to convert to float")
		}
		return f, nil
	}
	if s, ok := asStr(v); ok {
		if err := r.work(len(s)); err != nil {
			return nil, err
		}
		if f, ok := parsePythonFloat(s); ok {
			return f, nil
		}
	}
	return arg(args, 0, 0.0), nil
}

func filterAbs(_ *render, v any, _ []any) (any, error) {
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	if i, ok := asBig(v); ok {
		return normInt(new(big.Int).Abs(i)), nil
	}
	return nil, typeErrorf("bad operand type for abs(): '%s'", typeName(v))
}

func filterRound(_ *render, v any, args []any) (any, error) {
	precision, err := intArg(args, 0, 0)
	if err != nil {
		return nil, err
	}
	how, err := strArg(args, 1, "common")
	if err != nil {
		return nil, err
	}
	if how != "common" && how != "ceil" && how != "floor" {
		return nil, valueErrorf("round: method must be common, ceil or floor")
	}
	if !isNumber(v) {
		return nil, typeErrorf("type %s doesn't define __round__ method", typeName(v))
	}
	precision = min(max(precision, -400), 400)
	if how == "common" {
		if f, ok := v.(float64); ok {
			return roundFloat(f, int(precision)), nil
		}
		if i, _ := asBig(v); precision < 0 {
			return roundInt(i, -precision), nil
		}
		i, _ := asBig(v)
		return normInt(i), nil
	}
	f, ok := asFloat(v)
	if !ok {
		return nil, valueErrorf("int too large to convert to float")
	}
	scale := math.Pow(10, float64(precision))
	if how == "ceil" {
		return math.Ceil(f*scale) / scale, nil
	}
	return math.Floor(f*scale) / scale, nil
}

// roundFloat rounds the exact value of f to decimals, halves to even.
func roundFloat(f float64, decimals int) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return f
	}
	if decimals >= 0 {
		r, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', decimals, 64), 64)
		return r
	}
	unit := math.Pow(10, float64(-decimals))
	if math.IsInf(unit, 0) {
		return math.Copysign(0, f)
	}
	return math.RoundToEven(f/unit) * unit
}

// roundInt rounds i to a multiple of 10**digits, halves to even.
func roundInt(i *big.Int, digits int64) any {
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(digits), nil)
	q, m := new(big.Int).DivMod(i, unit, new(big.Int))
	switch new(big.Int).Lsh(m, 1).Cmp(unit) {
	case 1:
		q.Add(q, big.NewInt(1))
	case 0:
		q.Add(q, big.NewInt(int64(q.Bit(0))))
	}
	return normInt(q.Mul(q, unit))
}

func floatIsInteger(_ *render, self any, _ callArgs) (any, error) {
	f := self.(float64)
	return f == math.Trunc(f) && !math.IsInf(f, 0), nil
}

func intBitLength(_ *render, self any, _ callArgs) (any, error) {
	i, _ := asBig(self)
	return int64(i.BitLen()), nil
}
