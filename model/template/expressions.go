package template

// expression parses one expression, inline if included.
func (p *parser) expression() (expr, error) { return p.conditional() }

// nested parses with f one level deeper.
func (p *parser) nested(f func() (expr, error)) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	x, err := f()
	p.depth--
	return x, err
}

func (p *parser) conditional() (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	mark := len(p.unknown)
	x, err := p.or()
	for chain := 0; err == nil && p.tok.name("if"); chain++ {
		if err := p.chained(chain); err != nil {
			return nil, err
		}
		if err := p.next(); err != nil {
			return nil, err
		}
		c := &condExpr{yes: x}
		if c.cond, err = p.or(); err != nil {
			return nil, err
		}
		ok, err := p.accept(tokName, "else")
		if err != nil {
			return nil, err
		}
		if ok {
			if c.no, err = p.conditional(); err != nil {
				return nil, err
			}
		}
		p.unknown = p.unknown[:mark]
		x = c
	}
	return x, err
}

// chained bounds a chain of operators, which makes a tree as deep as it is
// long.
func (p *parser) chained(n int) error {
	if n+p.depth > maxDepth {
		return p.fail(p.tok.line, "a chain of more than %d operators; split it with {%% set %%}", n)
	}
	return nil
}

// leftChain parses operand (op operand)*, where match says whether the current
// token is an operator of this level.
func (p *parser) leftChain(operand func() (expr, error), match func(token) bool, join func(op string, l, r expr) expr) (expr, error) {
	x, err := operand()
	for n := 0; err == nil && match(p.tok); n++ {
		if err := p.chained(n); err != nil {
			return nil, err
		}
		op := p.tok.text
		if err := p.next(); err != nil {
			return nil, err
		}
		right, err := operand()
		if err != nil {
			return nil, err
		}
		x = join(op, x, right)
	}
	return x, err
}

func (p *parser) or() (expr, error) {
	return p.leftChain(p.and, func(t token) bool { return t.name("or") },
		func(_ string, l, r expr) expr { return &orExpr{l, r} })
}

func (p *parser) and() (expr, error) {
	return p.leftChain(p.not, func(t token) bool { return t.name("and") },
		func(_ string, l, r expr) expr { return &andExpr{l, r} })
}

func (p *parser) not() (expr, error) {
	if !p.tok.name("not") {
		return p.compare()
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	x, err := p.nested(p.not)
	return &notExpr{x}, err
}

// comparison returns the comparison operator at the current token and moves
// past it; "" when there is none.
func (p *parser) comparison() (string, error) {
	if p.tok.kind == tokOperator {
		switch op := p.tok.text; op {
		case "==", "!=", "<", "<=", ">", ">=":
			return op, p.next()
		}
		return "", nil
	}
	if p.tok.name("in") {
		return "in", p.next()
	}
	if p.tok.name("not") {
		t, err := p.peek()
		if err != nil || !t.name("in") {
			return "", err
		}
		if err := p.next(); err != nil {
			return "", err
		}
		return "not in", p.next()
	}
	return "", nil
}

func (p *parser) compare() (expr, error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{first: first}
	for {
		op, err := p.comparison()
		if err != nil {
			return nil, err
		}
		if op == "" {
			break
		}
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops = append(c.ops, op)
		c.rest = append(c.rest, x)
	}
	if len(c.ops) == 0 {
		return first, nil
	}
	return c, nil
}

func joinBinary(op string, l, r expr) expr { return &binaryExpr{op, l, r} }

func (p *parser) sum() (expr, error) {
	return p.leftChain(p.concat, func(t token) bool { return t.op("+") || t.op("-") }, joinBinary)
}

func (p *parser) concat() (expr, error) {
	first, err := p.product()
	if err != nil || !p.tok.op("~") {
		return first, err
	}
	parts := []expr{first}
	for p.tok.op("~") {
		if err := p.next(); err != nil {
			return nil, err
		}
		x, err := p.product()
		if err != nil {
			return nil, err
		}
		parts = append(parts, x)
	}
	return &concatExpr{parts}, nil
}

func (p *parser) product() (expr, error) {
	return p.leftChain(p.power, func(t token) bool {
		return t.op("*") || t.op("/") || t.op("//") || t.op("%")
	}, joinBinary)
}

func (p *parser) power() (expr, error) {
	return p.leftChain(func() (expr, error) { return p.unary(true) },
		func(t token) bool { return t.op("**") }, joinBinary)
}

func (p *parser) unary(withFilter bool) (expr, error) {
	var x expr
	var err error
	if op := p.tok.text; p.tok.op("-") || p.tok.op("+") {
		if err := p.next(); err != nil {
			return nil, err
		}
		x, err = p.nested(func() (expr, error) { return p.unary(false) })
		x = &unaryExpr{op, x}
	} else {
		x, err = p.primary()
	}
	if err != nil {
		return nil, err
	}
	return p.postfix(x, withFilter)
}

// postfix parses attributes, items and calls; withFilter, then also filters
// and tests with calls between them.
func (p *parser) postfix(x expr, withFilter bool) (expr, error) {
	var err error
	filtered := false
	for n := 0; err == nil; n++ {
		if err := p.chained(n); err != nil {
			return nil, err
		}
		switch {
		case !filtered && p.tok.op("."):
			x, err = p.attribute(x)
		case !filtered && p.tok.op("["):
			x, err = p.subscript(x)
		case p.tok.op("("):
			var args arguments
			args, err = p.arguments()
			x = &callExpr{x, args}
		case withFilter && p.tok.op("|"):
			filtered = true
			if err = p.next(); err == nil {
				x, err = p.filter(x)
			}
		case withFilter && p.tok.name("is"):
			filtered = true
			x, err = p.test(x)
		default:
			return x, nil
		}
	}
	return nil, err
}

func (p *parser) primary() (expr, error) {
	t := p.tok
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{true}, p.next()
		case "false", "False":
			return &constExpr{false}, p.next()
		case "none", "None":
			return &constExpr{nil}, p.next()
		}
		return &nameExpr{p.id(t.text), t.text}, p.next()
	case tokString:
		return p.stringLiteral()
	case tokNumber:
		return &constExpr{t.value}, p.next()
	case tokOperator:
		switch t.text {
		case "(":
			return p.nested(p.parenthesis)
		case "[":
			return p.nested(p.list)
		case "{":
			return p.nested(p.dict)
		}
	}
	return nil, p.fail(t.line, "unexpected %s", t.describe())
}

// stringLiteral joins adjacent literals, as Python does.
func (p *parser) stringLiteral() (expr, error) {
	text := p.tok.text
	var more []byte
	for {
		if err := p.next(); err != nil {
			return nil, err
		}
		if p.tok.kind != tokString {
			break
		}
		if more == nil {
			more = []byte(text)
		}
		more = append(more, p.tok.text...)
	}
	if more != nil {
		text = string(more)
	}
	return &constExpr{text}, nil
}

func (p *parser) parenthesis() (expr, error) {
	if err := p.next(); err != nil {
		return nil, err
	}
	if p.tok.op(")") {
		return &tupleExpr{}, p.next()
	}
	x, err := p.tuple(true)
	if err != nil {
		return nil, err
	}
	return x, p.expect(tokOperator, ")")
}

// tuple parses expressions separated by commas; without a comma it is the
// expression itself. withCond says whether an inline if is part of it. ends
// are names that may follow a trailing comma.
func (p *parser) tuple(withCond bool, ends ...string) (expr, error) {
	var items []expr
	for {
		if p.tok.kind == tokPrintEnd || p.tok.kind == tokBlockEnd || p.tok.op(")") {
			break
		}
		if len(ends) > 0 && p.tok.name(ends[0]) {
			break
		}
		parse := p.or
		if withCond {
			parse = p.conditional
		}
		x, err := p.nested(parse)
		if err != nil {
			return nil, err
		}
		ok, err := p.accept(tokOperator, ",")
		if err != nil {
			return nil, err
		}
		if !ok && items == nil {
			return x, nil
		}
		items = append(items, x)
		if !ok {
			break
		}
	}
	if items == nil {
		return nil, p.fail(p.tok.line, "expected an expression, got %s", p.tok.describe())
	}
	return &tupleExpr{items}, nil
}
