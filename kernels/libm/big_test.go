package libm

import (
	"math"
	"math/big"
)

// The oracle: the functions in arithmetic of many bits, by their plainest series.

const prec = 400

func bf(x float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(x) }
func add(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(max(a.Prec(), b.Prec())).Add(a, b)
}
func sub(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(max(a.Prec(), b.Prec())).Sub(a, b)
}
func mul(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(max(a.Prec(), b.Prec())).Mul(a, b)
}
func quo(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(max(a.Prec(), b.Prec())).Quo(a, b)
}

// series returns the sum of first·Π ratio(i) over i, until terms vanish.
func series(first *big.Float, ratio func(i int) *big.Float) *big.Float {
	sum, term := add(first, bf(0)), first
	for i := 1; term.Sign() != 0 && term.MantExp(nil) > sum.MantExp(nil)-prec-10; i++ {
		term = mul(term, ratio(i))
		sum = add(sum, term)
	}
	return sum
}

func bigExpm1(x *big.Float) *big.Float {
	if x.Sign() == 0 {
		return bf(0)
	}
	if x.MantExp(nil) > 0 { // e²ᵃ − 1 = (eᵃ − 1)(eᵃ + 1)
		h := bigExpm1(quo(x, bf(2)))
		return mul(h, add(h, bf(2)))
	}
	return series(x, func(i int) *big.Float { return quo(x, bf(float64(i+1))) })
}

func bigExp(x *big.Float) *big.Float {
	if x.Sign() < 0 { // 1 + (eˣ − 1) would cancel
		return quo(bf(1), bigExp(new(big.Float).Neg(x)))
	}
	return add(bigExpm1(x), bf(1))
}

// bigLog1p is 2·atanh(x/(2 + x)), after square roots where x is large.
func bigLog1p(x *big.Float) *big.Float {
	if x.Sign() == 0 {
		return bf(0)
	}
	if x.MantExp(nil) > 0 || x.Sign() < 0 && x.MantExp(nil) == 0 { // log(1+x) = 2·log √(1+x)
		root := new(big.Float).SetPrec(prec).Sqrt(add(x, bf(1)))
		return mul(bf(2), bigLog1p(sub(root, bf(1))))
	}
	s := quo(x, add(x, bf(2)))
	z := mul(s, s)
	sum, power := bf(0), s
	for i := 1; power.MantExp(nil) > s.MantExp(nil)-prec-10; i += 2 {
		sum = add(sum, quo(power, bf(float64(i))))
		power = mul(power, z)
	}
	return mul(bf(2), sum)
}

func bigLog(x *big.Float) *big.Float {
	m := new(big.Float)
	k := x.MantExp(m)
	if k == 0 || k == 1 {
		return bigLog1p(sub(x, bf(1)))
	}
	return add(mul(bf(float64(k)), bigLog1p(bf(1))), bigLog1p(sub(m, bf(1))))
}

// bigPi is π by Machin's formula, to 2000 bits.
func bigPi() *big.Float {
	const n = 2000
	one := new(big.Int).Lsh(big.NewInt(1), n)
	atanInv := func(k int64) *big.Int {
		t := new(big.Int).Quo(one, big.NewInt(k))
		sum := new(big.Int).Set(t)
		for i := int64(3); t.Sign() != 0; i += 2 {
			t.Quo(t, big.NewInt(-k*k))
			sum.Add(sum, new(big.Int).Quo(t, big.NewInt(i)))
		}
		return sum
	}
	p := new(big.Int).Mul(big.NewInt(16), atanInv(5))
	p.Sub(p, new(big.Int).Mul(big.NewInt(4), atanInv(239)))
	return quo(new(big.Float).SetPrec(n).SetInt(p), new(big.Float).SetPrec(n).SetInt(one))
}

// bigSincos reduces with enough digits of π for any float64.
func bigSincos(x float64, pi *big.Float) (sin, cos *big.Float) {
	halfPi := quo(pi, bf(2))
	wide := new(big.Float).SetPrec(2000).SetFloat64(x)
	n, _ := add(quo(wide, halfPi), bf(math.Copysign(0.5, x))).Int(nil)
	r := sub(wide, mul(new(big.Float).SetPrec(2000).SetInt(n), halfPi))
	r = new(big.Float).SetPrec(prec).Set(r)
	z := mul(r, r)
	sin = series(r, func(i int) *big.Float { return quo(z, bf(-float64(2*i*(2*i+1)))) })
	cos = series(bf(1), func(i int) *big.Float { return quo(z, bf(-float64(2*i*(2*i-1)))) })
	switch new(big.Int).And(n, big.NewInt(3)).Int64() {
	case 1:
		sin, cos = cos, sin.Neg(sin)
	case 2:
		sin, cos = sin.Neg(sin), cos.Neg(cos)
	case 3:
		sin, cos = cos.Neg(cos), sin
	}
	return sin, cos
}

// ulps returns |got − want| in units of the last place of want.
func ulps(got float64, want *big.Float) float64 {
	if want.Sign() == 0 || math.IsInf(got, 0) || math.IsNaN(got) {
		if w, _ := want.Float64(); w == got {
			return 0
		}
		return math.Inf(1)
	}
	unit := max(want.MantExp(nil)-53, -1074)
	d := sub(bf(got), want)
	d.SetMantExp(d, -unit)
	e, _ := d.Float64()
	return math.Abs(e)
}
