package template

// list parses [a, b].
func (p *parser) list() (expr, error) {
	if err := p.next(); err != nil {
		return nil, err
	}
	x := &listExpr{}
	for !p.tok.op("]") {
		if len(x.items) > 0 {
			if err := p.expect(tokOperator, ","); err != nil {
				return nil, err
			}
			if p.tok.op("]") {
				break
			}
		}
		item, err := p.expression()
		if err != nil {
			return nil, err
		}
		x.items = append(x.items, item)
	}
	return x, p.expect(tokOperator, "]")
}

// dict parses {k: v}.
func (p *parser) dict() (expr, error) {
	if err := p.next(); err != nil {
		return nil, err
	}
	x := &dictExpr{}
	for !p.tok.op("}") {
		if len(x.keys) > 0 {
			if err := p.expect(tokOperator, ","); err != nil {
				return nil, err
			}
			if p.tok.op("}") {
				break
			}
		}
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expect(tokOperator, ":"); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		x.keys = append(x.keys, key)
		x.values = append(x.values, value)
	}
	return x, p.expect(tokOperator, "}")
}

func (p *parser) attribute(obj expr) (expr, error) {
	if err := p.next(); err != nil {
		return nil, err
	}
	t := p.tok
	if t.kind == tokName {
		return &attrExpr{obj, t.text}, p.next()
	}
	if t.kind == tokNumber {
		if _, ok := t.value.(float64); !ok {
			return &itemExpr{obj, &constExpr{t.value}}, p.next()
		}
	}
	return nil, p.fail(t.line, "expected a name or number behind the dot, got %s", t.describe())
}

func (p *parser) subscript(obj expr) (expr, error) {
	if err := p.next(); err != nil {
		return nil, err
	}
	s := &sliceExpr{obj: obj}
	var err error
	if !p.tok.op(":") {
		first, err := p.expression()
		if err != nil {
			return nil, err
		}
		if p.tok.op("]") {
			return &itemExpr{obj, first}, p.next()
		}
		if p.tok.op(",") {
			return p.tupleSubscript(obj, first)
		}
		s.lo = first
	}
	if err := p.expect(tokOperator, ":"); err != nil {
		return nil, err
	}
	if !p.tok.op(":") && !p.tok.op("]") {
		if s.hi, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if ok, err := p.accept(tokOperator, ":"); err != nil {
		return nil, err
	} else if ok && !p.tok.op("]") {
		if s.step, err = p.expression(); err != nil {
			return nil, err
		}
	}
	return s, p.expect(tokOperator, "]")
}

// tupleSubscript parses the rest of x[a, b], whose index is a tuple.
func (p *parser) tupleSubscript(obj, first expr) (expr, error) {
	index := &tupleExpr{items: []expr{first}}
	for !p.tok.op("]") {
		if err := p.expect(tokOperator, ","); err != nil {
			return nil, err
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		index.items = append(index.items, x)
	}
	return &itemExpr{obj, index}, p.next()
}

func (p *parser) arguments() (arguments, error) {
	var a arguments
	if err := p.expect(tokOperator, "("); err != nil {
		return a, err
	}
	for n := 0; !p.tok.op(")"); n++ {
		if n > 0 {
			if err := p.expect(tokOperator, ","); err != nil {
				return a, err
			}
			if p.tok.op(")") {
				break
			}
		}
		if err := p.argument(&a); err != nil {
			return a, err
		}
	}
	return a, p.next()
}

// argument parses one argument into a.
func (p *parser) argument(a *arguments) error {
	line := p.tok.line
	misplaced := func() error { return p.fail(line, "arguments out of order: positional, then *list, named, **dict") }
	var err error
	switch {
	case p.tok.op("*"):
		if a.star != nil || a.starStar != nil {
			return misplaced()
		}
		if err := p.next(); err != nil {
			return err
		}
		a.star, err = p.expression()
		return err
	case p.tok.op("**"):
		if a.starStar != nil {
			return misplaced()
		}
		if err := p.next(); err != nil {
			return err
		}
		a.starStar, err = p.expression()
		return err
	case p.tok.kind == tokName:
		t, err := p.peek()
		if err != nil {
			return err
		}
		if t.op("=") {
			if a.starStar != nil {
				return misplaced()
			}
			return p.namedArgument(a)
		}
	}
	if a.star != nil || a.starStar != nil || len(a.named) > 0 {
		return misplaced()
	}
	x, err := p.expression()
	a.pos = append(a.pos, x)
	return err
}

func (p *parser) namedArgument(a *arguments) error {
	name := p.tok.text
	for _, other := range a.names {
		if other == name {
			return p.fail(p.tok.line, "argument %q is given twice", name)
		}
	}
	if err := p.next(); err != nil { // the name
		return err
	}
	if err := p.next(); err != nil { // the =
		return err
	}
	x, err := p.expression()
	a.names = append(a.names, name)
	a.named = append(a.named, x)
	return err
}

// dottedName parses the name of a filter or test.
func (p *parser) dottedName() (string, error) {
	name, err := p.expectName()
	for err == nil && p.tok.op(".") {
		if err = p.next(); err != nil {
			break
		}
		var part string
		part, err = p.expectName()
		name += "." + part
	}
	return name, err
}

func (p *parser) filter(value expr) (*filterExpr, error) {
	line := p.tok.line
	name, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	x := &filterExpr{value: value, name: name, filter: filterNamed(name)}
	if x.filter == nil {
		p.unknown = append(p.unknown, &Error{Kind: SyntaxError, Line: line, Message: sprintf("no filter named %q", name)})
	}
	if p.tok.op("(") {
		x.args, err = p.arguments()
	}
	return x, err
}

func (p *parser) test(value expr) (expr, error) {
	if err := p.next(); err != nil {
		return nil, err
	}
	negated, err := p.accept(tokName, "not")
	if err != nil {
		return nil, err
	}
	line := p.tok.line
	name, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	x := &testExpr{value: value, name: name, test: testNamed(name)}
	if x.test == nil {
		p.unknown = append(p.unknown, &Error{Kind: SyntaxError, Line: line, Message: sprintf("no test named %q", name)})
	}
	if p.tok.op("(") {
		x.args, err = p.arguments()
	} else if p.startsArgument() {
		if p.tok.name("is") {
			return nil, p.fail(p.tok.line, "tests cannot be chained with `is`; join them with `and`")
		}
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg, false)
		}
		x.args.pos = []expr{arg}
	}
	if err != nil {
		return nil, err
	}
	if negated {
		return &notExpr{x}, nil
	}
	return x, nil
}

// startsArgument says whether the current token starts the argument of a test
// written without parentheses.
func (p *parser) startsArgument() bool {
	switch p.tok.kind {
	case tokName:
		return !p.tok.name("else") && !p.tok.name("or") && !p.tok.name("and")
	case tokString, tokNumber:
		return true
	case tokOperator:
		return p.tok.op("[") || p.tok.op("{")
	}
	return false
}
