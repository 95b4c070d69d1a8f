package mathverify

import (
	"math/big"
	"strings"
)

// primary reads what no sign divides.
func (p *parser) primary() (*node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	switch c := p.peek(); {
	case digit(c) || c == '.':
		return p.numeral()
	case c == '(' || c == '[':
		return p.bracket(c)
	case c == '{':
		return p.group()
	case c == '|':
		return p.absolute("|")
	case c == '\\':
		return p.command()
	case letter(c):
		return p.word()
	}
	return nil, errSyntax
}

// bracket reads ( or [ up to either closing bracket: a group, a tuple or an interval.
func (p *parser) bracket(opening byte) (*node, error) {
	p.at++
	p.nested++
	args, err := p.sequence()
	p.nested--
	if err != nil {
		return nil, err
	}
	closing := p.peek()
	if closing != ')' && closing != ']' {
		return nil, errSyntax
	}
	p.at++
	if len(args) == 1 {
		if (opening == '(') != (closing == ')') {
			return nil, errSyntax
		}
		return args[0], nil
	}
	return &node{op: opList, open: opening, close: closing, args: args}, nil
}

// group reads {…}: LaTeX's invisible bracket, or a set when it holds several elements.
func (p *parser) group() (*node, error) {
	p.at++
	p.nested++
	args, err := p.sequence()
	p.nested--
	if err != nil {
		return nil, err
	}
	if p.peek() != '}' {
		return nil, errSyntax
	}
	p.at++
	if len(args) == 1 {
		return args[0], nil
	}
	return &node{op: opList, open: '{', close: '}', args: args}, nil
}

func (p *parser) set() (*node, error) {
	n := &node{op: opList, open: '{', close: '}'}
	if p.take(`\}`) {
		return n, nil
	}
	p.nested++
	args, err := p.sequence()
	p.nested--
	if err != nil || !p.take(`\}`) {
		return nil, errSyntax
	}
	n.args = args
	return n, nil
}

// absolute reads |…| and \lvert…\rvert.
func (p *parser) absolute(closing string) (*node, error) {
	if closing == "|" {
		p.at++
	}
	p.bars++
	n, err := p.sum()
	p.bars--
	if err != nil || !p.take(closing) {
		return nil, errSyntax
	}
	return call("abs", n), nil
}

// argument reads what a command takes: a group, or a single digit, letter or command.
func (p *parser) argument() (*node, error) {
	c := p.peek()
	switch {
	case c == '{':
		return p.group()
	case p.strict:
		return nil, errSyntax
	case digit(c):
		p.at++
		return number(big.NewRat(int64(c-'0'), 1)), nil
	case letter(c):
		p.at++
		return symbol(string(c)), nil
	case c == '\\':
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer func() { p.depth-- }()
		return p.command()
	}
	return nil, errSyntax
}

// command reads what begins with a backslash.
func (p *parser) command() (*node, error) {
	if p.take(`\{`) {
		return p.set()
	}
	name := p.text[p.at+1:]
	end := 0
	for end < len(name) && letter(name[end]) {
		end++
	}
	name = name[:end]
	p.at += 1 + end
	switch name {
	case "frac":
		return p.pair(opDivide)
	case "sqrt":
		return p.root()
	case "text", "mathrm", "textbf", "mathbf", "textrm", "mbox", "operatorname", "textit", "mathit":
		return p.words()
	case "pi":
		return symbol("pi"), nil
	case "infty":
		return symbol("oo"), nil
	case "emptyset", "varnothing":
		return &node{op: opList, open: '{', close: '}'}, nil
	case "lvert":
		return p.absolute(`\rvert`)
	case "boxed", "fbox":
		return p.argument()
	case "binom":
		n, err := p.pair(opCall)
		if err == nil {
			n.name = "binomial"
		}
		return n, err
	case "begin":
		return p.matrix()
	case "":
		return nil, errSyntax
	}
	if function(name) {
		return p.apply(name)
	}
	if greek(name) {
		return p.subscript(symbol(`\` + name))
	}
	return nil, errSyntax
}

func (p *parser) pair(o op) (*node, error) {
	a, err := p.argument()
	if err != nil {
		return nil, err
	}
	b, err := p.argument()
	return combine(o, a, b), err
}

func (p *parser) root() (*node, error) {
	degree := number(big.NewRat(2, 1))
	if p.peek() == '[' {
		p.at++
		n, err := p.sum()
		if err != nil || !p.take("]") {
			return nil, errSyntax
		}
		degree = n
	}
	var n *node
	var err error
	if p.peek() == '(' && !p.strict {
		n, err = p.bracket('(')
	} else {
		n, err = p.argument()
	}
	return call("root", n, degree), err
}

func greek(name string) bool {
	switch name {
	case "alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "phi", "varphi", "omega", "sigma", "tau", "rho":
		return true
	}
	return false
}

func function(name string) bool {
	switch name {
	case "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "log", "ln", "lg", "exp":
		return true
	}
	return false
}

// apply reads the argument of a function: \sin x, \sin(x), \sin^2 x, \sin 2x, \log_2 8.
func (p *parser) apply(name string) (*node, error) {
	var base, exponent *node
	var err error
	if name == "lg" {
		name, base = "log", number(big.NewRat(10, 1))
	}
	if p.take("_") {
		if base, err = p.argument(); err != nil {
			return nil, err
		}
	}
	if p.take("^") {
		if exponent, err = p.argument(); err != nil {
			return nil, err
		}
	}
	var n *node
	switch c := p.peek(); {
	case c == '(':
		n, err = p.bracket(c)
	case c == '-':
		n, err = p.signed()
	default:
		n, err = p.power()
		for err == nil && p.begins() && p.peek() != '(' && p.peek() != '\\' {
			n, err = p.beside(n)
		}
	}
	if err != nil {
		return nil, err
	}
	result := call(name, n)
	if base != nil {
		result.args = append(result.args, base)
	}
	if exponent != nil {
		result = combine(opPower, result, exponent)
	}
	return result, nil
}

// words reads the group of \text{…}.
func (p *parser) words() (*node, error) {
	if p.peek() != '{' {
		return nil, errSyntax
	}
	end := strings.IndexByte(p.text[p.at:], '}')
	if end < 0 {
		return nil, errSyntax
	}
	text := p.text[p.at+1 : p.at+end]
	p.at += end + 1
	if name := strings.TrimSpace(text); function(name) {
		return p.apply(name)
	}
	return &node{op: opText, name: plainWord(text)}, nil
}

// word reads letters: a function or constant by its name, else a variable of one letter.
func (p *parser) word() (*node, error) {
	rest := p.text[p.at:]
	end := 0
	for end < len(rest) && letter(rest[end]) {
		end++
	}
	name := rest[:end]
	switch {
	case name == "sqrt":
		p.at += end
		return p.root()
	case name == "abs" && strings.HasPrefix(rest[end:], "("):
		p.at += end
		n, err := p.bracket('(')
		return call("abs", n), err
	case function(name):
		p.at += end
		return p.apply(name)
	case name == "pi":
		p.at += end
		return symbol("pi"), nil
	case name == "inf" || name == "infinity" || name == "oo":
		p.at += end
		return symbol("oo"), nil
	case end > 3 || end > 1 && p.amongWords(end): // prose, not a product of variables
		return nil, errSyntax
	}
	p.at++
	return p.subscript(symbol(name[:1]))
}

// amongWords reports whether only a space parts the next size letters from a letter or digit.
func (p *parser) amongWords(size int) bool {
	joins := func(c byte) bool { return letter(c) || digit(c) }
	before, after := p.text[:p.at], p.text[p.at+size:]
	left, right := strings.TrimRight(before, " \n"), strings.TrimLeft(after, " \n")
	return len(left) < len(before) && left != "" && joins(left[len(left)-1]) ||
		len(right) < len(after) && right != "" && joins(right[0])
}

// subscript makes x_1 or x_{12} one variable.
func (p *parser) subscript(n *node) (*node, error) {
	if !strings.HasPrefix(p.text[p.at:], "_") {
		return n, nil
	}
	p.at++
	rest := p.text[p.at:]
	switch {
	case strings.HasPrefix(rest, "{") && strings.IndexByte(rest, '}') > 1:
		end := strings.IndexByte(rest, '}')
		p.at += end + 1
		return symbol(n.name + "_" + strings.TrimSpace(rest[1:end])), nil
	case rest != "" && (digit(rest[0]) || letter(rest[0])):
		p.at++
		return symbol(n.name + "_" + rest[:1]), nil
	}
	return nil, errSyntax
}

// matrix reads \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} and its relatives.
func (p *parser) matrix() (*node, error) {
	rest := p.text[p.at:]
	end := strings.IndexByte(rest, '}')
	if end < 2 || rest[0] != '{' || !strings.HasSuffix(rest[1:end], "matrix") {
		return nil, errSyntax
	}
	name := rest[1:end]
	p.at += end + 1
	p.nested++
	defer func() { p.nested-- }()
	n := &node{op: opMatrix, args: []*node{{op: opList}}}
	for {
		cell, err := p.sum()
		if err != nil {
			return nil, err
		}
		row := n.args[len(n.args)-1]
		row.args = append(row.args, cell)
		switch {
		case p.take("&"):
		case p.take(`\\`):
			if p.take(`\end{` + name + `}`) {
				return n, nil
			}
			n.args = append(n.args, &node{op: opList})
		case p.take(`\end{` + name + `}`):
			return n, nil
		default:
			return nil, errSyntax
		}
	}
}
