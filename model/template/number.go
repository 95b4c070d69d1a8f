package template

import (
	"math"
	"math/big"
	"math/bits"
)

// maxIntBits bounds integers. Python has no bound, so this is one of ours.
const maxIntBits = 1 << 14

// normInt returns i as int64 where it fits.
func normInt(i *big.Int) any {
	if i.IsInt64() {
		return i.Int64()
	}
	return i
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// asInt returns the value of an int or bool that fits 64 bits.
func asInt(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		return boolInt(v), true
	}
	return 0, false
}

// asBig returns the value of any int or bool.
func asBig(v any) (*big.Int, bool) {
	if b, ok := v.(*big.Int); ok {
		return b, true
	}
	i, ok := asInt(v)
	if !ok {
		return nil, false
	}
	return big.NewInt(i), true
}

// asFloat converts any number to float; ok is false for other values and for
// integers beyond the floats.
func asFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, !math.IsInf(f, 0)
	}
	i, ok := asInt(v)
	return float64(i), ok
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, bool, float64, *big.Int:
		return true
	}
	return false
}

// numeric applies an arithmetic operator to two numbers.
func numeric(op string, a, b any) (any, error) {
	_, af := a.(float64)
	_, bf := b.(float64)
	if af || bf || op == "/" {
		x, okx := asFloat(a)
		y, oky := asFloat(b)
		if !okx || !oky {
			return nil, valueErrorf("int too large to convert to float")
		}
		return floatOp(op, x, y)
	}
	x, okx := asInt(a)
	y, oky := asInt(b)
	if okx && oky {
		if v, ok, err := smallOp(op, x, y); ok || err != nil {
			return v, err
		}
	}
	bx, _ := asBig(a)
	by, _ := asBig(b)
	return bigOp(op, bx, by)
}

func divisionByZero() error { return fail(ValueError, "division by zero") }

// smallOp computes in 64 bits; ok is false when the result does not fit or the
// operator is not one of integers in 64 bits.
func smallOp(op string, x, y int64) (v any, ok bool, err error) {
	switch op {
	case "+":
		z := x + y
		return z, (z > x) == (y > 0), nil
	case "-":
		z := x - y
		return z, (z < x) == (y > 0), nil
	case "*":
		hi, lo := bits.Mul64(uint64(max(x, -x)), uint64(max(y, -y)))
		if x == math.MinInt64 || y == math.MinInt64 || hi != 0 || lo > math.MaxInt64 {
			return nil, false, nil
		}
		return x * y, true, nil
	case "//", "%":
		if y == 0 {
			return nil, false, divisionByZero()
		}
		if y == -1 {
			return nil, false, nil // the quotient may overflow
		}
		q, m := x/y, x%y
		if m != 0 && (m < 0) != (y < 0) {
			q, m = q-1, m+y
		}
		if op == "%" {
			return m, true, nil
		}
		return q, true, nil
	}
	return nil, false, nil
}

func bigOp(op string, x, y *big.Int) (any, error) {
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	case "//", "%":
		if y.Sign() == 0 {
			return nil, divisionByZero()
		}
		q, m := new(big.Int).QuoRem(x, y, new(big.Int))
		if m.Sign() != 0 && (m.Sign() < 0) != (y.Sign() < 0) {
			q.Sub(q, big.NewInt(1))
			m.Add(m, y)
		}
		if z = q; op == "%" {
			z = m
		}
	case "**":
		if y.Sign() < 0 {
			fx, okx := asFloat(normInt(x))
			fy, oky := asFloat(normInt(y))
			if !okx || !oky {
				return nil, valueErrorf("int too large to convert to float")
			}
			return floatOp("**", fx, fy)
		}
		if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > maxIntBits || int64(x.BitLen()-1)*y.Int64() > maxIntBits) {
			return nil, fail(LimitError, "a power of more than %d bits", maxIntBits)
		}
		if x.BitLen() <= 1 { // -1, 0, 1: only whether y is odd or zero matters
			e := int64(y.Bit(0))
			if e == 0 && y.Sign() != 0 {
				e = 2
			}
			y = big.NewInt(e)
		}
		z.Exp(x, y, nil)
	}
	if z.BitLen() > maxIntBits {
		return nil, fail(LimitError, "an integer of more than %d bits", maxIntBits)
	}
	return normInt(z), nil
}

func floatOp(op string, x, y float64) (any, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		return floatPower(x, y)
	}
	if y == 0 {
		return nil, divisionByZero()
	}
	if op == "/" {
		return x / y, nil
	}
	// As CPython: the remainder takes the sign of y, the quotient is exact.
	m := math.Mod(x, y)
	q := (x - m) / y
	if m != 0 {
		if (y < 0) != (m < 0) {
			m += y
			q--
		}
	} else {
		m = math.Copysign(0, y)
	}
	if op == "%" {
		return m, nil
	}
	if q == 0 {
		return math.Copysign(0, x/y), nil
	}
	f := math.Floor(q)
	if q-f > 0.5 {
		f++
	}
	return f, nil
}

func floatPower(x, y float64) (any, error) {
	if x == 0 && y < 0 {
		return nil, valueErrorf("0.0 cannot be raised to a negative power")
	}
	if x < 0 && y != math.Trunc(y) && !math.IsInf(y, 0) {
		return nil, valueErrorf("%v ** %v is a complex number, which templates do not have", x, y)
	}
	z := math.Pow(x, y)
	if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		return nil, valueErrorf("result of ** is too large for a float")
	}
	return z, nil
}

// compareNumbers returns -1, 0 or 1, and unordered for NaN.
func compareNumbers(a, b any) (order int, unordered bool) {
	if x, ok := asInt(a); ok {
		if y, ok := asInt(b); ok {
			return cmpOrder(x < y, x > y), false
		}
	}
	x, okx := a.(float64)
	y, oky := b.(float64)
	if okx && math.IsNaN(x) || oky && math.IsNaN(y) {
		return 0, true
	}
	if okx && oky {
		return cmpOrder(x < y, x > y), false
	}
	if okx && math.IsInf(x, 0) {
		return int(math.Copysign(1, x)), false
	}
	if oky && math.IsInf(y, 0) {
		return -int(math.Copysign(1, y)), false
	}
	return exact(a).Cmp(exact(b)), false
}

func cmpOrder(less, more bool) int {
	if less {
		return -1
	}
	if more {
		return 1
	}
	return 0
}

// exact returns a finite number without rounding.
func exact(v any) *big.Float {
	if f, ok := v.(float64); ok {
		return big.NewFloat(f)
	}
	i, _ := asBig(v)
	return new(big.Float).SetPrec(uint(max(i.BitLen(), 64))).SetInt(i)
}
