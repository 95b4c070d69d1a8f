package mathverify

import (
	"hash/fnv"
	"math"
	"math/big"
	"math/cmplx"
)

const maxBits = 8192 // of an exact numerator or denominator

// exact is the rational value of n, if it has one within bounds.
func exact(n *node) (*big.Rat, bool) {
	var args [2]*big.Rat
	switch n.op {
	case opNumber:
		return n.value, true
	case opSum, opProduct:
		return exactFold(n)
	case opNegate, opDivide, opPower, opPercent:
		for i, a := range n.args {
			v, ok := exact(a)
			if !ok {
				return nil, false
			}
			args[i] = v
		}
	case opCall:
		return exactCall(n)
	default:
		return nil, false
	}
	switch n.op {
	case opNegate:
		return new(big.Rat).Neg(args[0]), true
	case opPercent:
		return new(big.Rat).Quo(args[0], big.NewRat(100, 1)), true
	case opDivide:
		if args[1].Sign() == 0 {
			return nil, false
		}
		return bounded(new(big.Rat).Quo(args[0], args[1]))
	}
	return exactPower(args[0], args[1])
}

func bounded(v *big.Rat) (*big.Rat, bool) {
	return v, v.Num().BitLen() <= maxBits && v.Denom().BitLen() <= maxBits
}

func exactFold(n *node) (*big.Rat, bool) {
	var sum *big.Rat
	for _, a := range n.args {
		v, ok := exact(a)
		switch {
		case !ok:
			return nil, false
		case sum == nil:
			sum = v
		case n.op == opSum:
			sum, ok = bounded(new(big.Rat).Add(sum, v))
		default:
			sum, ok = bounded(new(big.Rat).Mul(sum, v))
		}
		if !ok {
			return nil, false
		}
	}
	return sum, true
}

func exactPower(base, exponent *big.Rat) (*big.Rat, bool) {
	if !exponent.IsInt() || !exponent.Num().IsInt64() {
		return nil, false
	}
	e := exponent.Num().Int64()
	size := int64(max(base.Num().BitLen(), base.Denom().BitLen(), 1))
	if e > maxBits/size || -e > maxBits/size || base.Sign() == 0 && e <= 0 {
		return nil, false
	}
	power := new(big.Int).SetInt64(max(e, -e))
	num := new(big.Int).Exp(base.Num(), power, nil)
	den := new(big.Int).Exp(base.Denom(), power, nil)
	if e < 0 {
		num, den = den, num
	}
	return new(big.Rat).SetFrac(num, den), true
}

// exactCall knows the functions whose values at whole numbers are whole.
func exactCall(n *node) (*big.Rat, bool) {
	var whole [2]int64
	if n.name != "factorial" && n.name != "binomial" && n.name != "abs" {
		return nil, false
	}
	for i, a := range n.args {
		v, ok := exact(a)
		if !ok {
			return nil, false
		}
		if n.name == "abs" {
			return new(big.Rat).Abs(v), true
		}
		if !v.IsInt() || !v.Num().IsInt64() || v.Sign() < 0 || v.Num().Int64() > 500 {
			return nil, false
		}
		whole[i] = v.Num().Int64()
	}
	if n.name == "factorial" {
		return new(big.Rat).SetInt(new(big.Int).MulRange(1, whole[0])), true
	}
	return new(big.Rat).SetInt(new(big.Int).Binomial(whole[0], whole[1])), true
}

// point gives each variable a value; the same for the same name and index, everywhere.
func point(name string, index int) complex128 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	_, _ = h.Write([]byte{byte(index)})
	u := h.Sum64()
	x := float64(u>>11) / (1 << 53) // [0, 1)
	switch index % 3 {
	case 0:
		return complex(0.5+2*x, 0)
	case 1:
		return complex(-0.5-2*x, 0)
	}
	return complex(0.3+x, 0.4+float64(u&1023)/1024)
}

// value is n at sample point index. ok is false where n has no finite value.
func value(n *node, index int) (complex128, bool) {
	if n.op == opNumber {
		f, _ := n.value.Float64()
		return complex(f, 0), !math.IsInf(f, 0)
	}
	if n.op == opSymbol {
		switch n.name {
		case "pi":
			return math.Pi, true
		case "e":
			return math.E, true
		case "i":
			return 1i, true
		case "oo":
			return 0, false
		}
		return point(n.name, index), true
	}
	args := make([]complex128, len(n.args))
	for i, a := range n.args {
		v, ok := value(a, index)
		if !ok {
			return 0, false
		}
		args[i] = v
	}
	v, ok := apply(n, args)
	return v, ok && !cmplx.IsNaN(v) && !cmplx.IsInf(v)
}

func apply(n *node, args []complex128) (complex128, bool) {
	switch n.op {
	case opSum:
		sum := complex128(0)
		for _, a := range args {
			sum += a
		}
		return sum, true
	case opProduct:
		product := complex128(1)
		for _, a := range args {
			product *= a
		}
		return product, true
	case opNegate:
		return -args[0], true
	case opPercent:
		return args[0] / 100, true
	case opDivide:
		return args[0] / args[1], args[1] != 0
	case opPower:
		return power(args[0], args[1])
	case opCall:
		return applyCall(n.name, args)
	}
	return 0, false
}

func power(base, exponent complex128) (complex128, bool) {
	if base == 0 {
		if exponent == 0 {
			return 0, false
		}
		return 0, real(exponent) > 0
	}
	if imag(base) == 0 && imag(exponent) == 0 {
		if v := math.Pow(real(base), real(exponent)); !math.IsNaN(v) {
			return complex(v, 0), true
		}
	}
	return cmplx.Pow(base, exponent), true
}

func applyCall(name string, args []complex128) (complex128, bool) {
	x := args[0]
	switch name {
	case "root":
		if imag(x) == 0 && real(x) < 0 && args[1] == 3 {
			return complex(math.Cbrt(real(x)), 0), true
		}
		if args[1] == 2 {
			return cmplx.Sqrt(x), true
		}
		return power(x, 1/args[1])
	case "abs":
		return complex(cmplx.Abs(x), 0), true
	case "factorial":
		return complex(math.Gamma(real(x)+1), 0), imag(x) == 0
	case "binomial":
		g := func(a complex128) float64 { return math.Gamma(real(a) + 1) }
		return complex(g(x)/(g(args[1])*g(x-args[1])), 0), imag(x) == 0 && imag(args[1]) == 0
	case "log", "ln":
		v := cmplx.Log(x)
		if len(args) > 1 {
			v /= cmplx.Log(args[1])
		}
		return v, x != 0
	case "exp":
		return cmplx.Exp(x), true
	case "sin":
		return cmplx.Sin(x), true
	case "cos":
		return cmplx.Cos(x), true
	case "tan":
		return cmplx.Tan(x), true
	case "cot":
		return 1 / cmplx.Tan(x), x != 0
	case "sec":
		return 1 / cmplx.Cos(x), true
	case "csc":
		return 1 / cmplx.Sin(x), x != 0
	case "arcsin":
		return cmplx.Asin(x), true
	case "arccos":
		return cmplx.Acos(x), true
	case "arctan":
		return cmplx.Atan(x), true
	case "sinh":
		return cmplx.Sinh(x), true
	case "cosh":
		return cmplx.Cosh(x), true
	case "tanh":
		return cmplx.Tanh(x), true
	}
	return 0, false
}
