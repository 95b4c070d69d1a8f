package mathverify

import (
	"math"
	"math/big"
	"math/cmplx"
)

// rules are how two expressions are compared.
type rules struct {
	reference bool // as math-verify: inequalities are not intervals; p% is not p where the other side has a point
	budget    *int // comparisons left: sets of sets of sets would take exponentially many
}

// compare is equal with a fresh budget.
func compare(a, b *node, reference bool) bool {
	budget := 20_000
	return rules{reference, &budget}.equal(a, b)
}

// equal compares a gold expression with an answer.
func (r rules) equal(a, b *node) bool {
	if *r.budget--; *r.budget < 0 {
		return false
	}
	a, b = r.settle(a), r.settle(b)
	switch {
	case a.op == opRelation || b.op == opRelation:
		return r.equalRelations(a, b)
	case a.op == opText || b.op == opText:
		return a.op == b.op && a.name == b.name
	case a.op == opMatrix && b.op == opMatrix:
		return r.equalMatrices(a, b)
	case a.op == opUnion && b.op == opUnion:
		return r.sameElements(a.args, b.args)
	case a.op == opList || b.op == opList:
		return r.equalLists(a, b)
	case !a.scalar() || !b.scalar():
		return false
	}
	return r.equalScalars(a, b)
}

// settle reduces what names a value to the value: x = 5, x ∈ S, {5}, and inequalities in
// one variable to intervals.
func (r rules) settle(n *node) *node {
	if n.op == opRelation && n.name == "in" {
		return r.settle(n.args[1])
	}
	if n.op == opList && n.open == '{' && len(n.args) == 1 {
		return r.settle(n.args[0])
	}
	if n.op == opRelation && !r.reference {
		if interval, ok := intervalOf(n); ok {
			return interval
		}
	}
	return n
}

// intervalOf writes an inequality in one variable as an interval.
func intervalOf(n *node) (*node, bool) {
	low, high := combine(opNegate, symbol("oo")), symbol("oo")
	opening, closing := byte('('), byte(')')
	parts := []*node{n}
	if n.name == "chain" {
		if !n.args[0].args[1].isVariable() && !n.args[0].args[0].isVariable() {
			return nil, false
		}
		parts = n.args
	}
	for _, p := range parts {
		if p.name != "<" && p.name != "<=" {
			return nil, false
		}
		left, right := p.args[0], p.args[1]
		switch {
		case left.isVariable() && !right.free() && right.scalar():
			high = right
			if p.name == "<=" {
				closing = ']'
			}
		case right.isVariable() && !left.free() && left.scalar():
			low = left
			if p.name == "<=" {
				opening = '['
			}
		default:
			return nil, false
		}
	}
	return &node{op: opList, open: opening, close: closing, args: []*node{low, high}}, true
}

func (r rules) equalRelations(a, b *node) bool {
	if a.op != opRelation {
		a, b = b, a
	}
	if b.op != opRelation { // x = 5 against 5
		if a.name != "=" {
			return false
		}
		switch {
		case a.args[0].isVariable() || a.args[0].op == opText || namesFunction(a.args[0]):
			return r.equal(a.args[1], b)
		case a.args[1].isVariable():
			return r.equal(a.args[0], b)
		}
		return false
	}
	if a.name != b.name {
		return false
	}
	if a.name == "chain" {
		return r.equalRelations(a.args[0], b.args[0]) && r.equalRelations(a.args[1], b.args[1])
	}
	if r.equal(a.args[0], b.args[0]) && r.equal(a.args[1], b.args[1]) {
		return true
	}
	symmetric := a.name == "=" || a.name == "!="
	if symmetric && r.equal(a.args[0], b.args[1]) && r.equal(a.args[1], b.args[0]) {
		return true
	}
	for _, side := range append(a.args[:2:2], b.args...) {
		if !side.scalar() {
			return false
		}
	}
	return proportional(difference(a), difference(b), !symmetric)
}

// namesFunction reports whether n is f(x), which parses as a product.
func namesFunction(n *node) bool {
	return n.op == opProduct && len(n.args) == 2 && n.args[0].isVariable() && n.args[1].isVariable()
}

// difference is left - right.
func difference(n *node) *node {
	return combine(opSum, n.args[0], combine(opNegate, n.args[1]))
}

const samplePoints = 6

// proportional reports whether a = c·b for one constant c, positive if need be.
func proportional(a, b *node, positive bool) bool {
	if !a.free() || !b.free() {
		return false
	}
	ratio, seen := complex128(0), 0
	for i := range samplePoints {
		x, ok1 := value(a, i)
		y, ok2 := value(b, i)
		if !ok1 || !ok2 || cmplx.Abs(x) < 1e-12 || cmplx.Abs(y) < 1e-12 {
			continue
		}
		q := x / y
		if seen > 0 && cmplx.Abs(q-ratio) > 1e-9*(1+cmplx.Abs(ratio)) {
			return false
		}
		ratio = q
		seen++
	}
	return seen >= 3 && (!positive || real(ratio) > 0)
}

func (r rules) equalMatrices(a, b *node) bool {
	if len(a.args) != len(b.args) {
		return false
	}
	for i := range a.args {
		if !r.sameOrder(a.args[i].args, b.args[i].args) {
			return false
		}
	}
	return true
}

// equalLists compares sets without order, tuples and intervals with it. A list without
// brackets is a set beside a set or another such list, a tuple beside a tuple. A row or
// column matrix is a tuple beside a tuple.
func (r rules) equalLists(a, b *node) bool {
	if a.op == opMatrix {
		a = vector(a)
	}
	if b.op == opMatrix {
		b = vector(b)
	}
	if a == nil || b == nil || a.op != opList || b.op != opList {
		return false
	}
	unordered := func(n *node) bool { return n.open == '{' || n.open == 0 }
	switch {
	case unordered(a) && unordered(b):
		return r.sameElements(a.args, b.args)
	case a.open == '{' || b.open == '{':
		return false
	case a.open == 0 || b.open == 0:
		return r.sameOrder(a.args, b.args) && a.open != '[' && b.open != '['
	}
	return a.open == b.open && a.close == b.close && r.sameOrder(a.args, b.args)
}

// vector is the tuple of a matrix with one row or column, else nil.
func vector(m *node) *node {
	n := &node{op: opList, open: '(', close: ')'}
	if len(m.args) == 1 {
		n.args = m.args[0].args
		return n
	}
	for _, row := range m.args {
		if len(row.args) != 1 {
			return nil
		}
		n.args = append(n.args, row.args[0])
	}
	return n
}

func (r rules) sameOrder(a, b []*node) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !r.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// sameElements compares as sets: each has an equal on the other side.
func (r rules) sameElements(a, b []*node) bool {
	return r.contains(a, b) && r.contains(b, a)
}

func (r rules) contains(set, elements []*node) bool {
	for _, e := range elements {
		found := false
		for _, s := range set {
			found = found || r.equal(s, e)
		}
		if !found {
			return false
		}
	}
	return true
}

// equalScalars also lets p% stand for p.
func (r rules) equalScalars(a, b *node) bool {
	if equalValues(a, b) {
		return true
	}
	pa, pb := a.op == opPercent, b.op == opPercent
	switch {
	case pa == pb:
		return false
	case pa:
		return (!r.reference || !b.inexact()) && equalValues(a.args[0], b)
	}
	return (!r.reference || !a.inexact()) && equalValues(a, b.args[0])
}

func equalValues(a, b *node) bool {
	if sign, ok := infinite(a); ok {
		other, both := infinite(b)
		return both && sign == other
	}
	x, ok1 := exact(a)
	y, ok2 := exact(b)
	if ok1 && ok2 {
		return x.Cmp(y) == 0 || (a.inexact() != b.inexact()) && unending(a, b, x, y) && close6(x, y)
	}
	if !a.free() && !b.free() {
		v, ok1 := value(a, 0)
		w, ok2 := value(b, 0)
		return ok1 && ok2 && nearly(v, w, a.inexact() || b.inexact())
	}
	return identical(a, b)
}

func infinite(n *node) (sign int, ok bool) {
	switch {
	case n.op == opSymbol && n.name == "oo":
		return 1, true
	case n.op == opNegate:
		sign, ok := infinite(n.args[0])
		return -sign, ok
	}
	return 0, false
}

// unending reports whether the side without a point has no finite decimal form, so that
// the side with a point can only be a rounding of it.
func unending(a, b *node, x, y *big.Rat) bool {
	v := x
	if a.inexact() {
		v = y
	}
	_, finite := v.FloatPrec()
	return !finite
}

func close6(x, y *big.Rat) bool {
	v, _ := x.Float64()
	w, _ := y.Float64()
	return nearly(complex(v, 0), complex(w, 0), true)
}

// nearly compares numbers of which at least one is irrational: to six places, as
// math-verify does, if one is written with a point; to float64's accuracy otherwise. The
// relative bound keeps small numbers apart.
func nearly(v, w complex128, rounded bool) bool {
	apart, size := cmplx.Abs(v-w), max(cmplx.Abs(v), cmplx.Abs(w))
	if apart <= 1e-11*size || apart <= 1e-13 {
		return true
	}
	six := func(x float64) float64 { return math.Round(x * 1e6) }
	return rounded && six(real(v)) == six(real(w)) && six(imag(v)) == six(imag(w)) && apart <= 1e-4*size
}

// identical compares expressions with variables at sample points.
func identical(a, b *node) bool {
	seen := 0
	for i := range samplePoints {
		v, ok1 := value(a, i)
		w, ok2 := value(b, i)
		if ok1 != ok2 {
			return false
		}
		if !ok1 {
			continue
		}
		if cmplx.Abs(v-w) > 1e-9*(1+max(cmplx.Abs(v), cmplx.Abs(w))) {
			return false
		}
		seen++
	}
	return seen >= 3
}
