package mathverify

// relation reads a chain. a = b = c says what a = c says, as far as an answer goes;
// a < b < c is the intersection of two, a list.
func (p *parser) relation() (*node, error) {
	if p.peek() == '=' { // "= 42"
		p.at++
	}
	first, err := p.union()
	if err != nil {
		return nil, err
	}
	left, names, operands := first, []string(nil), []*node{first}
	for {
		name, flip := p.relationSign()
		if name == "" {
			break
		}
		right, err := p.union()
		if err != nil {
			return nil, err
		}
		if flip {
			name = ">" + name[1:]
		}
		names, operands = append(names, name), append(operands, right)
		left = right
	}
	switch len(names) {
	case 0:
		return first, nil
	case 1:
		return related(names[0], operands[0], operands[1]), nil
	}
	for _, name := range names {
		if name != names[0] || name != "=" {
			if len(names) == 2 {
				return between(names, operands)
			}
			return nil, errSyntax
		}
	}
	return related("=", first, left), nil
}

func (p *parser) relationSign() (name string, flip bool) {
	switch {
	case p.takeAny("<=", `\leqslant`, `\leq`, `\le`):
		return "<=", false
	case p.takeAny(">=", `\geqslant`, `\geq`, `\ge`):
		return "<=", true
	case p.takeAny("<", `\lt`):
		return "<", false
	case p.takeAny(">", `\gt`):
		return "<", true
	case p.takeAny("!=", `\neq`, `\ne`):
		return "!=", false
	case p.takeAny(`\in`):
		return "in", false
	case p.takeAny("==", "=", `\approx`, `\equiv`):
		return "=", false
	}
	return "", false
}

// related makes a relation; > and >= turn round.
func related(name string, left, right *node) *node {
	if name[0] == '>' {
		left, right, name = right, left, "<"+name[1:]
	}
	return &node{op: opRelation, name: name, args: []*node{left, right}}
}

// between is a chain such as 1 <= x < 2 with the two in the same direction.
func between(names []string, operands []*node) (*node, error) {
	// The middle becomes part of both relations; were it more than a quantity, nesting would
	// double the work at each level.
	if names[0][0] != names[1][0] || names[0][0] != '<' && names[0][0] != '>' || !operands[1].scalar() {
		return nil, errSyntax
	}
	return &node{op: opRelation, name: "chain", args: []*node{
		related(names[0], operands[0], operands[1]), related(names[1], operands[1], operands[2])}}, nil
}
