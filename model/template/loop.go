package template

// loop is the variable `loop` of a running for statement.
type loop struct {
	r       *render
	stmt    *forStmt
	outer   *scope // around the for statement
	it      *iterator
	filter  expr // nil: none, or nothing left to filter
	index0  int
	depth0  int
	before  any // previous item
	current any
	after   any // next item if it has been looked at, else absent
	length  int // -1: not known yet
	changed []any
}

func newScope(outer *scope) *scope {
	s := &scope{outer: outer}
	s.ids, s.vals = s.idRoom[:0], s.valRoom[:0]
	return s
}

func (s *forStmt) exec(r *render) (flow, error) {
	r.line = s.line
	v, err := r.eval(s.iter)
	if err != nil {
		return flowNext, err
	}
	return flowNext, s.over(r, r.scope, v, 0)
}

// over runs the loop over the elements of v.
func (s *forStmt) over(r *render, outer *scope, v any, depth0 int) error {
	it, err := r.iterate(v)
	if err != nil {
		return err
	}
	l := &loop{r: r, stmt: s, outer: outer, it: it, filter: s.filter, index0: -1, depth0: depth0, after: absent, length: -1}
	old := r.scope
	defer func() { r.scope = old }()
	for {
		v, ok, err := l.advance()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		r.scope = newScope(outer)
		r.scope.set(idLoop, l)
		if err := r.assign(&s.target, v); err != nil {
			return err
		}
		f, err := r.run(s.body)
		if err != nil {
			return err
		}
		if f == flowBreak {
			break
		}
	}
	if l.index0 < 0 && len(s.otherwise) > 0 {
		_, err := r.within(newScope(outer), s.otherwise)
		return err
	}
	return nil
}

// pull takes the next item that passes the filter off the source.
func (l *loop) pull() (any, bool, error) {
	for {
		if err := l.r.step(); err != nil {
			return nil, false, err
		}
		v, ok, err := l.it.next()
		if err != nil || !ok || l.filter == nil {
			return v, ok, err
		}
		if ok, err = l.passes(v); err != nil || ok {
			return v, ok, err
		}
	}
}

func (l *loop) passes(v any) (bool, error) {
	r := l.r
	old := r.scope
	r.scope = newScope(l.outer)
	defer func() { r.scope = old }()
	if err := r.assign(&l.stmt.target, v); err != nil {
		return false, err
	}
	ok, err := r.eval(l.filter)
	return truth(ok), err
}

// advance moves to the next item.
func (l *loop) advance() (any, bool, error) {
	v, err := l.peek()
	if err != nil || isAbsent(v) {
		return nil, false, err
	}
	l.after = absent
	l.before, l.current = l.current, v
	l.index0++
	return v, true, nil
}

// peek returns the next item without moving, absent behind the last.
func (l *loop) peek() (any, error) {
	if isAbsent(l.after) {
		v, ok, err := l.pull()
		if err != nil || !ok {
			return absent, err
		}
		l.after = v
	}
	return l.after, nil
}

// size is the number of all items. It reads the source to its end.
func (l *loop) size() (int, error) {
	if l.length >= 0 {
		return l.length, nil
	}
	if l.filter != nil || l.it.more != nil {
		var rest []any
		for {
			v, ok, err := l.pull()
			if err != nil {
				return 0, err
			}
			if !ok {
				break
			}
			if err := l.r.makeList(1); err != nil {
				return 0, err
			}
			rest = append(rest, v)
		}
		l.it, l.filter = &iterator{items: rest, kind: "iterator"}, nil
	}
	l.length = l.index0 + 1 + len(l.it.items)
	if !isAbsent(l.after) {
		l.length++
	}
	return l.length, nil
}

func (l *loop) member(name string) (any, bool, error) {
	switch name {
	case "index":
		return int64(l.index0 + 1), true, nil
	case "index0":
		return int64(l.index0), true, nil
	case "first":
		return l.index0 == 0, true, nil
	case "depth":
		return int64(l.depth0 + 1), true, nil
	case "depth0":
		return int64(l.depth0), true, nil
	case "last":
		v, err := l.peek()
		return isAbsent(v), true, err
	case "length", "revindex", "revindex0":
		n, err := l.size()
		switch name {
		case "revindex":
			n -= l.index0
		case "revindex0":
			n -= l.index0 + 1
		}
		return int64(n), true, err
	case "previtem":
		if l.index0 == 0 {
			return undefinedHint("there is no previous item"), true, nil
		}
		return l.before, true, nil
	case "nextitem":
		v, err := l.peek()
		if isAbsent(v) {
			v = undefinedHint("there is no next item")
		}
		return v, true, err
	case "cycle":
		return &method{l, name, loopCycle}, true, nil
	case "changed":
		return &method{l, name, loopChanged}, true, nil
	}
	return nil, false, nil
}

func loopCycle(_ *render, self any, a callArgs) (any, error) {
	if len(a.pos) == 0 {
		return nil, typeErrorf("no items for cycling given")
	}
	return a.pos[self.(*loop).index0%len(a.pos)], nil
}

func loopChanged(r *render, self any, a callArgs) (any, error) {
	l := self.(*loop)
	same := false
	if l.changed != nil {
		var err error
		if same, err = r.equalLists(l.changed, a.pos, 0); err != nil {
			return nil, err
		}
	}
	if !same {
		l.changed = append([]any{}, a.pos...)
	}
	return !same, nil
}

// recurse runs a recursive loop over other items and returns its text.
func (l *loop) recurse(a callArgs) (any, error) {
	if !l.stmt.recursive {
		return nil, typeErrorf("the loop must have the 'recursive' marker to be called")
	}
	args, err := signature{1, 1, "iterable"}.bind("loop()", a)
	if err != nil {
		return nil, err
	}
	r := l.r
	if err := r.nest(); err != nil {
		return nil, err
	}
	line := r.line
	text, err := r.capture(func() error { return l.stmt.over(r, l.outer, args[0], l.depth0+1) })
	if err != nil {
		return nil, err
	}
	r.line = line
	r.calls--
	return text, nil
}
