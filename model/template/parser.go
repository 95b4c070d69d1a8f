package template

import "slices"

// parser is a recursive descent parser with one token of look-ahead.
type parser struct {
	lex   *lexer
	tok   token // current
	ahead *token
	names []string
	ids   map[string]int
	depth int // nesting of statements and expressions
	loops int // loops around this point, within the macro
	used  [4]bool
	// unknown are the filters and tests that do not exist, met since the last
	// place where Jinja2 would have forgiven them (see softly).
	unknown []*Error
}

// maxDepth bounds nesting and the length of operator chains. Renders recurse
// over the tree, so it also bounds the stack.
const maxDepth = 400

func parse(source string) (*Template, error) {
	p := &parser{lex: newLexer(source), ids: map[string]int{}}
	for _, name := range []string{"loop", "caller", "varargs", "kwargs"} {
		p.id(name)
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	body, err := p.strictly(func() ([]stmt, error) { return p.block() })
	if err != nil {
		return nil, err
	}
	return &Template{body: body, names: p.names, ids: p.ids}, nil
}

func (p *parser) id(name string) int {
	id, ok := p.ids[name]
	if !ok {
		id = len(p.names)
		p.ids[name] = id
		p.names = append(p.names, name)
	}
	if id < len(p.used) {
		p.used[id] = true
	}
	return id
}

func (p *parser) fail(line int, format string, args ...any) error {
	return &Error{Kind: SyntaxError, Line: line, Message: sprintf(format, args...)}
}

func (p *parser) next() error {
	if p.ahead != nil {
		p.tok, p.ahead = *p.ahead, nil
		return nil
	}
	var err error
	p.tok, err = p.lex.next()
	return err
}

// peek returns the token after the current one.
func (p *parser) peek() (token, error) {
	if p.ahead == nil {
		t, err := p.lex.next()
		if err != nil {
			return token{}, err
		}
		p.ahead = &t
	}
	return *p.ahead, nil
}

// accept moves past the current token if it is the given one.
func (p *parser) accept(kind tokenKind, text string) (bool, error) {
	if !p.tok.is(kind, text) {
		return false, nil
	}
	return true, p.next()
}

func (p *parser) expect(kind tokenKind, text string) error {
	if !p.tok.is(kind, text) {
		want := token{kind: kind, text: text}
		return p.fail(p.tok.line, "expected %s, got %s", want.describe(), p.tok.describe())
	}
	return p.next()
}

func (p *parser) expectName() (string, error) {
	if p.tok.kind != tokName {
		return "", p.fail(p.tok.line, "expected a name, got %s", p.tok.describe())
	}
	name := p.tok.text
	return name, p.next()
}

// enter counts one level of nesting; its caller leaves with p.depth--.
func (p *parser) enter() error {
	p.depth++
	if p.depth > maxDepth {
		return p.fail(p.tok.line, "nested more than %d deep; simplify the expression or split it with {%% set %%}", maxDepth)
	}
	return nil
}

// strictly parses with f, and fails on a filter or test that does not exist.
// Jinja2 forgives those inside `if` until they are reached, but not inside a
// loop, macro or block within the `if`.
func (p *parser) strictly(f func() ([]stmt, error)) ([]stmt, error) {
	mark := len(p.unknown)
	body, err := f()
	if err == nil && len(p.unknown) > mark {
		err = p.unknown[mark]
	}
	return body, err
}

// block parses statements up to one of the end tags, which stays the current
// token; without end tags up to the end of the template.
func (p *parser) block(ends ...string) ([]stmt, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	var body []stmt
	for {
		switch p.tok.kind {
		case tokEOF:
			if len(ends) > 0 {
				return nil, p.fail(p.tok.line, "unexpected end of template, expected {%% %s %%}", ends[len(ends)-1])
			}
			return body, nil
		case tokData:
			body = append(body, &dataStmt{p.tok.text})
			if err := p.next(); err != nil {
				return nil, err
			}
		case tokPrintBegin:
			s, err := p.output()
			if err != nil {
				return nil, err
			}
			body = append(body, s)
		case tokBlockBegin:
			if err := p.next(); err != nil {
				return nil, err
			}
			if p.tok.kind == tokName && slices.Contains(ends, p.tok.text) {
				return body, nil
			}
			ss, err := p.statement(ends)
			if err != nil {
				return nil, err
			}
			body = append(body, ss...)
			if err := p.expect(tokBlockEnd, ""); err != nil {
				return nil, err
			}
		default:
			return nil, p.fail(p.tok.line, "unexpected %s", p.tok.describe())
		}
	}
}

// body parses `%} ... {% end`, leaving one of the end tags as current token.
func (p *parser) body(ends ...string) ([]stmt, error) {
	if _, err := p.accept(tokOperator, ":"); err != nil {
		return nil, err
	}
	if err := p.expect(tokBlockEnd, ""); err != nil {
		return nil, err
	}
	return p.block(ends...)
}

// closed parses the body of a tag with one end tag, and moves past it. The
// body has a scope of its own.
func (p *parser) closed(end string) ([]stmt, error) {
	return p.strictly(func() ([]stmt, error) {
		body, err := p.body(end)
		if err != nil {
			return nil, err
		}
		return body, p.next()
	})
}

func (p *parser) output() (stmt, error) {
	line := p.tok.line
	if err := p.next(); err != nil {
		return nil, err
	}
	x, err := p.tuple(true)
	if err != nil {
		return nil, err
	}
	return &outputStmt{line, x}, p.expect(tokPrintEnd, "")
}

func (p *parser) statement(ends []string) ([]stmt, error) {
	line := p.tok.line
	tag, err := p.expectName()
	if err != nil {
		return nil, p.fail(line, "expected a tag name, got %s", p.tok.describe())
	}
	var s stmt
	switch tag {
	case "if":
		s, err = p.ifTag(line)
	case "for":
		s, err = p.forTag(line)
	case "set":
		s, err = p.setTag(line)
	case "print":
		return p.printTag(line)
	case "with":
		s, err = p.withTag(line)
	case "macro":
		s, err = p.macroTag(line)
	case "call":
		s, err = p.callTag(line)
	case "filter":
		s, err = p.filterTag(line)
	case "generation":
		s, err = p.generationTag()
	case "break", "continue":
		s, err = p.flowTag(line, tag)
	case "include", "import", "from", "extends", "block", "autoescape":
		err = p.fail(line, "{%% %s %%} is not supported in chat templates: a template is one file without escaping; put the text in place", tag)
	default:
		if len(ends) > 0 {
			err = p.fail(line, "unknown tag %q; the innermost open block ends with {%% %s %%}", tag, ends[len(ends)-1])
		} else {
			err = p.fail(line, "unknown tag %q", tag)
		}
	}
	if err != nil {
		return nil, err
	}
	return []stmt{s}, nil
}

func (p *parser) flowTag(line int, tag string) (stmt, error) {
	if p.loops == 0 {
		return nil, p.fail(line, "{%% %s %%} outside a loop", tag)
	}
	if tag == "break" {
		return &flowStmt{flowBreak}, nil
	}
	return &flowStmt{flowContinue}, nil
}

func (p *parser) generationTag() (stmt, error) {
	loops := p.loops
	p.loops = 0
	body, err := p.closed("endgeneration")
	p.loops = loops
	return &generationStmt{body}, err
}

func (p *parser) printTag(int) ([]stmt, error) {
	var out []stmt
	for p.tok.kind != tokBlockEnd {
		if len(out) > 0 {
			if err := p.expect(tokOperator, ","); err != nil {
				return nil, err
			}
		}
		line := p.tok.line
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		out = append(out, &outputStmt{line, x})
	}
	return out, nil
}
