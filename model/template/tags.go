package template

// ifTag parses from behind `if` or `elif` to behind `endif`.
func (p *parser) ifTag(line int) (stmt, error) {
	mark := len(p.unknown)
	head := &ifStmt{line: line}
	for s := head; ; {
		var err error
		if s.cond, err = p.tuple(false); err != nil {
			return nil, err
		}
		if s.yes, err = p.body("elif", "else", "endif"); err != nil {
			return nil, err
		}
		end, line := p.tok.text, p.tok.line
		if err := p.next(); err != nil {
			return nil, err
		}
		if end == "elif" {
			if err := p.enter(); err != nil {
				return nil, err
			}
			defer func() { p.depth-- }()
			inner := &ifStmt{line: line}
			s.no = []stmt{inner}
			s = inner
			continue
		}
		if end == "else" {
			if s.no, err = p.body("endif"); err != nil {
				return nil, err
			}
			if err := p.next(); err != nil {
				return nil, err
			}
		}
		p.unknown = p.unknown[:mark]
		return head, nil
	}
}

func (p *parser) forTag(line int) (stmt, error) {
	s := &forStmt{line: line}
	var err error
	if s.target, err = p.assignTarget("in", false); err != nil {
		return nil, err
	}
	if s.target.sets(idLoop) {
		return nil, p.fail(line, "the loop target may not be called \"loop\"")
	}
	if err := p.expect(tokName, "in"); err != nil {
		return nil, err
	}
	if s.iter, err = p.tuple(false, "recursive"); err != nil {
		return nil, err
	}
	mark := len(p.unknown)
	if ok, err := p.accept(tokName, "if"); err != nil {
		return nil, err
	} else if ok {
		if s.filter, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if s.recursive, err = p.accept(tokName, "recursive"); err != nil {
		return nil, err
	}
	p.loops++
	s.body, err = p.body("endfor", "else")
	p.loops--
	if err != nil {
		return nil, err
	}
	end := p.tok.text
	if err := p.next(); err != nil {
		return nil, err
	}
	if end == "else" {
		if s.otherwise, err = p.body("endfor"); err != nil {
			return nil, err
		}
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	if len(p.unknown) > mark {
		return nil, p.unknown[mark]
	}
	return s, nil
}

// sets says whether assigning to t sets the variable.
func (t *target) sets(id int) bool {
	for i := range t.tuple {
		if t.tuple[i].sets(id) {
			return true
		}
	}
	return t.tuple == nil && t.nsAttr == "" && t.id == id
}

func (p *parser) setTag(line int) (stmt, error) {
	t, err := p.assignTarget("", true)
	if err != nil {
		return nil, err
	}
	if ok, err := p.accept(tokOperator, "="); err != nil {
		return nil, err
	} else if ok {
		value, err := p.tuple(true)
		return &setStmt{line, t, value}, err
	}
	s := &setBlockStmt{line: line, target: t}
	if p.tok.op("|") {
		if s.filters, err = p.filterChain(); err != nil {
			return nil, err
		}
	}
	s.body, err = p.closed("endset")
	return s, err
}

// filterChain parses `| f | g(...)` over the text of a block.
func (p *parser) filterChain() (*filterExpr, error) {
	var x expr
	for n := 0; p.tok.op("|"); n++ {
		if err := p.chained(n); err != nil {
			return nil, err
		}
		if err := p.next(); err != nil {
			return nil, err
		}
		f, err := p.filter(x)
		if err != nil {
			return nil, err
		}
		x = f
	}
	return x.(*filterExpr), nil
}

func (p *parser) filterTag(line int) (stmt, error) {
	f, err := p.filter(nil)
	if err != nil {
		return nil, err
	}
	for n := 0; p.tok.op("|"); n++ {
		if err := p.chained(n); err != nil {
			return nil, err
		}
		if err := p.next(); err != nil {
			return nil, err
		}
		if f, err = p.filter(f); err != nil {
			return nil, err
		}
	}
	body, err := p.closed("endfilter")
	return &filterStmt{line, f, body}, err
}

func (p *parser) withTag(line int) (stmt, error) {
	s := &withStmt{line: line}
	for p.tok.kind != tokBlockEnd {
		if len(s.targets) > 0 {
			if err := p.expect(tokOperator, ","); err != nil {
				return nil, err
			}
		}
		t, err := p.assignTarget("", false)
		if err != nil {
			return nil, err
		}
		if err := p.expect(tokOperator, "="); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets = append(s.targets, t)
		s.values = append(s.values, v)
	}
	var err error
	s.body, err = p.closed("endwith")
	return s, err
}

func (p *parser) macroTag(line int) (stmt, error) {
	name, err := p.variable()
	if err != nil {
		return nil, err
	}
	def := &macroDef{name: name}
	if err := p.signature(def); err != nil {
		return nil, err
	}
	if err := p.macroBody(def, "endmacro"); err != nil {
		return nil, err
	}
	return &macroStmt{line, p.id(name), def}, nil
}

func (p *parser) callTag(line int) (stmt, error) {
	def := &macroDef{}
	if p.tok.op("(") {
		if err := p.signature(def); err != nil {
			return nil, err
		}
	}
	x, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := x.(*callExpr)
	if !ok {
		return nil, p.fail(line, "{%% call %%} needs a call such as name(...)")
	}
	return &callStmt{line, call, def}, p.macroBody(def, "endcall")
}

// macroBody parses the body and notes which special variables it names.
func (p *parser) macroBody(def *macroDef, end string) error {
	used, loops := p.used, p.loops
	p.used, p.loops = [4]bool{}, 0
	var err error
	def.body, err = p.closed(end)
	def.varargs, def.kwargs, def.caller = p.used[idVarargs], p.used[idKwargs], p.used[idCaller]
	for _, id := range def.params {
		switch id {
		case idVarargs:
			def.varargs = false
		case idKwargs:
			def.kwargs = false
		case idCaller:
			def.caller = false
		}
	}
	p.used, p.loops = used, loops
	return err
}

func (p *parser) signature(def *macroDef) error {
	if err := p.expect(tokOperator, "("); err != nil {
		return err
	}
	for !p.tok.op(")") {
		if len(def.params) > 0 {
			if err := p.expect(tokOperator, ","); err != nil {
				return err
			}
		}
		line := p.tok.line
		name, err := p.variable()
		if err != nil {
			return err
		}
		id := p.id(name)
		for _, other := range def.params {
			if other == id {
				return p.fail(line, "duplicate parameter %q", name)
			}
		}
		hasDefault, err := p.accept(tokOperator, "=")
		if err != nil {
			return err
		}
		if hasDefault {
			x, err := p.expression()
			if err != nil {
				return err
			}
			def.defaults = append(def.defaults, x)
		} else if id == idCaller {
			return p.fail(line, "parameter \"caller\" needs a default")
		} else if len(def.defaults) > 0 {
			return p.fail(line, "parameter %q without default follows one with a default", name)
		}
		def.params = append(def.params, id)
		def.names = append(def.names, name)
	}
	return p.next()
}

// variable parses a name that can be assigned to.
func (p *parser) variable() (string, error) {
	line := p.tok.line
	name, err := p.expectName()
	if err == nil && isConstantName(name) {
		err = p.fail(line, "cannot assign to %q", name)
	}
	return name, err
}

func isConstantName(name string) bool {
	switch name {
	case "true", "false", "none", "True", "False", "None":
		return true
	}
	return false
}

// assignTarget parses what stands left of `=` or `in`: a name, an attribute of
// a namespace where withNamespace, or several with commas. end is the name
// that ends the list.
func (p *parser) assignTarget(end string, withNamespace bool) (target, error) {
	var list []target
	isTuple := false
	for {
		if p.tok.op(")") || p.tok.kind == tokBlockEnd || end != "" && p.tok.name(end) || isTuple && p.tok.op("=") {
			break
		}
		t, err := p.oneTarget(withNamespace)
		if err != nil {
			return target{}, err
		}
		list = append(list, t)
		ok, err := p.accept(tokOperator, ",")
		if err != nil {
			return target{}, err
		}
		if !ok {
			break
		}
		isTuple = true
	}
	if len(list) == 0 {
		return target{}, p.fail(p.tok.line, "expected a variable to assign to, got %s", p.tok.describe())
	}
	if !isTuple {
		return list[0], nil
	}
	return target{tuple: list}, nil
}

func (p *parser) oneTarget(withNamespace bool) (target, error) {
	if p.tok.op("(") {
		if err := p.enter(); err != nil {
			return target{}, err
		}
		defer func() { p.depth-- }()
		if err := p.next(); err != nil {
			return target{}, err
		}
		t, err := p.assignTarget("", false)
		if err != nil {
			return target{}, err
		}
		return t, p.expect(tokOperator, ")")
	}
	name, err := p.variable()
	if err != nil {
		return target{}, err
	}
	t := target{id: p.id(name)}
	if withNamespace && p.tok.op(".") {
		if err := p.next(); err != nil {
			return target{}, err
		}
		t.nsAttr, err = p.expectName()
	}
	return t, err
}
