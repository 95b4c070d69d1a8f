package mathverify

import "math/big"

// op is the kind of a node.
type op int

const (
	opNumber   op = iota // value; decimal if written with a point
	opSymbol             // name: a variable, or pi, e, i, oo
	opText               // name: words in \text{}
	opSum                // args
	opProduct            // args
	opNegate             // args[0]
	opDivide             // args[0] / args[1]
	opPower              // args[0] ^ args[1]
	opCall               // name of args[0], and args[1] the base of a logarithm or degree of a root
	opPercent            // args[0] / 100
	opList               // args within open and close; open is 0 for a list without brackets
	opUnion              // args
	opMatrix             // args are lists, the rows
	opRelation           // args[0] name args[1]: = < <= != in
)

// node is a parsed expression.
type node struct {
	op          op
	name        string
	value       *big.Rat
	decimal     bool
	args        []*node
	open, close byte // of opList: one of ( [ { and its partner
}

func number(value *big.Rat) *node           { return &node{op: opNumber, value: value} }
func symbol(name string) *node              { return &node{op: opSymbol, name: name} }
func combine(o op, args ...*node) *node     { return &node{op: o, args: args} }
func call(name string, args ...*node) *node { return &node{op: opCall, name: name, args: args} }

// bare is a list without brackets, or its only element.
func bare(args []*node) *node {
	if len(args) == 1 {
		return args[0]
	}
	return &node{op: opList, args: args}
}

// has reports whether any node of the tree satisfies test.
func (n *node) has(test func(*node) bool) bool {
	if test(n) {
		return true
	}
	for _, a := range n.args {
		if a.has(test) {
			return true
		}
	}
	return false
}

// constant reports whether a symbol has one value everywhere.
func constant(name string) bool {
	return name == "pi" || name == "e" || name == "i" || name == "oo"
}

func (n *node) isVariable() bool { return n.op == opSymbol && !constant(n.name) }

// free reports whether n has variables.
func (n *node) free() bool { return n.has((*node).isVariable) }

// inexact reports whether n has a number written with a point.
func (n *node) inexact() bool { return n.has(func(m *node) bool { return m.decimal }) }

// scalar reports whether n is one quantity: no list, relation, matrix or text inside.
func (n *node) scalar() bool {
	return !n.has(func(m *node) bool {
		switch m.op {
		case opText, opList, opUnion, opMatrix, opRelation:
			return true
		}
		return false
	})
}
