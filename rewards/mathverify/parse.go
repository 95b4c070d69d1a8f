package mathverify

import (
	"errors"
	"strings"
)

const (
	maxBytes = 4096
	maxDepth = 60
	maxDigit = 400
)

var errSyntax = errors.New("not an expression")

// parser reads LaTeX and plain notation by recursive descent over the text itself: how
// much of "12" \frac takes depends on who reads it.
type parser struct {
	text   string
	at     int
	depth  int
	nested int  // brackets open around the position: there a comma always separates
	strict bool // \frac and \sqrt need braces
	bars   int  // |…| open around the position

	plusMinus bool // a \pm has been read
}

// parse reads the whole of text.
func (v *Verifier) parse(text string, strict bool) (*node, bool) {
	if len(text) > maxBytes {
		return nil, false
	}
	p := &parser{text: v.plainSymbols(text), strict: strict}
	if len(p.text) > maxBytes {
		return nil, false
	}
	n, err := p.statements()
	p.space()
	if err != nil || p.at != len(p.text) {
		return nil, false
	}
	return n, true
}

// plainSymbols writes Unicode signs and spacing commands in the few ways the parser knows.
func (v *Verifier) plainSymbols(text string) string {
	return v.signs.Replace(text)
}

func (p *parser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// peek is the next byte that is no space, 0 at the end.
func (p *parser) peek() byte {
	p.space()
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

// take moves past s if it comes next. A command or word must not go on with a letter.
func (p *parser) take(s string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.text[p.at:], s)
	if !ok || letter(s[len(s)-1]) && rest != "" && letter(rest[0]) {
		return false
	}
	p.at += len(s)
	return true
}

func (p *parser) takeAny(all ...string) bool {
	for _, s := range all {
		if p.take(s) {
			return true
		}
	}
	return false
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

func (p *parser) enter() error {
	if p.depth++; p.depth > maxDepth {
		return errSyntax
	}
	return nil
}

// statements reads relations between commas: a list without brackets if there are several.
func (p *parser) statements() (*node, error) {
	args, err := p.sequence()
	if err != nil {
		return nil, err
	}
	return bare(args), nil
}

func (p *parser) sequence() ([]*node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	var args []*node
	for {
		n, err := p.relation()
		if err != nil {
			return nil, err
		}
		args = append(args, n)
		comma := p.takeAny(",", ";")
		if word := p.takeAny(`\text{ and }`, `\text{and}`, `\text{ or }`, `\text{or}`, "and", "or"); !comma && !word {
			return args, nil
		}
	}
}

func (p *parser) union() (*node, error) {
	n, err := p.sum()
	if err != nil {
		return nil, err
	}
	parts := []*node{n}
	for p.takeAny(`\cup`, "U") {
		if n, err = p.sum(); err != nil {
			return nil, err
		}
		parts = append(parts, n)
	}
	if len(parts) == 1 {
		return n, nil
	}
	return combine(opUnion, parts...), nil
}

// sum reads terms. a ± b is the list a+b, a-b.
func (p *parser) sum() (*node, error) {
	var terms []*node
	for first := true; ; first = false {
		sign := byte(0)
		switch {
		case p.take(`\pm`):
			sign = 'p'
		case p.peek() == '+' || p.peek() == '-':
			sign = p.text[p.at]
			p.at++
		case !first:
			return total(terms), nil
		}
		n, err := p.product()
		if err != nil {
			return nil, err
		}
		switch sign {
		case '-':
			n = combine(opNegate, n)
		case 'p':
			// The terms become part of both values: one ± an expression, at its end.
			if next := p.peek(); next == '+' || next == '-' || p.plusMinus {
				return nil, errSyntax
			}
			p.plusMinus = true
			plus, minus := n, combine(opNegate, n)
			return bare([]*node{total(append(terms[:len(terms):len(terms)], plus)), total(append(terms[:len(terms):len(terms)], minus))}), nil
		}
		terms = append(terms, n)
	}
}

func total(terms []*node) *node {
	if len(terms) == 1 {
		return terms[0]
	}
	return combine(opSum, terms...)
}

// product reads factors, joined by signs or standing side by side.
func (p *parser) product() (*node, error) {
	n, err := p.signed()
	if err != nil {
		return nil, err
	}
	for {
		switch {
		case p.takeAny(`\cdot`, `\times`, "**"):
			if p.text[p.at-1] == '*' { // ** is a power
				exponent, err := p.signed()
				if err != nil {
					return nil, err
				}
				n = combine(opPower, n, exponent)
				continue
			}
			fallthrough
		case p.take("*"):
			f, err := p.signed()
			if err != nil {
				return nil, err
			}
			n = combine(opProduct, n, f)
		case p.takeAny("/", `\div`) || p.nested == 0 && p.take(":"):
			f, err := p.signed()
			if err != nil {
				return nil, err
			}
			n = combine(opDivide, n, f)
		case p.begins():
			if n, err = p.beside(n); err != nil {
				return nil, err
			}
		default:
			return n, nil
		}
	}
}

// beside multiplies n with a factor that follows without a sign. 3\frac12 and 3 1/2 are sums,
// 6 x 10^2 is scientific notation, and two numbers side by side are nothing.
func (p *parser) beside(n *node) (*node, error) {
	whole := n.op == opNumber && !n.decimal
	start := p.at
	if n.op == opNumber && p.take("x") {
		if p.space(); strings.HasPrefix(p.text[p.at:], "10^") {
			f, err := p.power()
			return combine(opProduct, n, f), err
		}
		p.at = start
	}
	numeral := digit(p.peek())
	mixed := whole && strings.HasPrefix(p.text[p.at:], `\frac`)
	f, err := p.power()
	if err != nil {
		return nil, err
	}
	switch {
	case mixed && f.op == opDivide && f.args[0].op == opNumber && f.args[1].op == opNumber:
		return combine(opSum, n, f), nil
	case numeral && n.op == opNumber:
		if !whole || f.op != opNumber || f.decimal || !p.take("/") || !digit(p.peek()) {
			return nil, errSyntax
		}
		d, err := p.power()
		if err != nil {
			return nil, err
		}
		return combine(opSum, n, combine(opDivide, f, d)), nil
	case numeral && n.op == opSymbol:
		return nil, errSyntax // x2 is a name we do not know
	}
	return combine(opProduct, n, f), nil
}

// begins reports whether a factor can begin here.
func (p *parser) begins() bool {
	c := p.peek()
	switch {
	case digit(c) || c == '(' || c == '{':
		return true
	case c == '.':
		return p.at+1 < len(p.text) && digit(p.text[p.at+1])
	case letter(c):
		return !p.ahead("and") && !p.ahead("or") && !p.ahead("U")
	case c == '|':
		return p.bars == 0
	case c != '\\':
		return false
	}
	for _, command := range []string{`\frac`, `\sqrt`, `\pi`, `\infty`, `\sin`, `\cos`, `\tan`, `\cot`, `\sec`, `\csc`, `\log`, `\ln`, `\exp`,
		`\arcsin`, `\arccos`, `\arctan`, `\alpha`, `\beta`, `\gamma`, `\theta`, `\lambda`, `\mu`, `\phi`, `\omega`, `\binom`, `\lvert`} {
		if strings.HasPrefix(p.text[p.at:], command) {
			return true
		}
	}
	return false
}

// ahead reports whether the word stands here, without moving.
func (p *parser) ahead(word string) bool {
	at := p.at
	ok := p.take(word)
	p.at = at
	return ok
}

func (p *parser) signed() (*node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	switch {
	case p.take("-"):
		n, err := p.signed()
		return combine(opNegate, n), err
	case p.take("+"):
		return p.signed()
	}
	return p.power()
}

func (p *parser) power() (*node, error) {
	n, err := p.postfix()
	if err != nil {
		return nil, err
	}
	if p.take("^") {
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer func() { p.depth-- }()
		exponent, err := p.signed()
		if err != nil {
			return nil, err
		}
		return combine(opPower, n, exponent), nil
	}
	return n, nil
}

func (p *parser) postfix() (*node, error) {
	n, err := p.primary()
	if err != nil {
		return nil, err
	}
	for {
		switch {
		case p.peek() == '!' && !strings.HasPrefix(p.text[p.at:], "!="):
			p.at++
			n = call("factorial", n)
		case p.take("%"):
			n = combine(opPercent, n)
		default:
			return n, nil
		}
		if p.depth++; p.depth > maxDepth { // each level also deepens the tree
			return nil, errSyntax
		}
	}
}
