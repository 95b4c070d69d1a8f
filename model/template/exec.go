package template

func (s *dataStmt) exec(r *render) (flow, error) { return flowNext, r.emit(s.text) }

func (s *flowStmt) exec(r *render) (flow, error) { return s.flow, r.step() }

func (s *outputStmt) exec(r *render) (flow, error) {
	r.line = s.line
	v, err := r.eval(s.x)
	if err != nil {
		return flowNext, err
	}
	text, ok := v.(string)
	if !ok {
		if text, err = r.str(v); err != nil {
			return flowNext, err
		}
	}
	return flowNext, r.emit(text)
}

func (s *ifStmt) exec(r *render) (flow, error) {
	r.line = s.line
	v, err := r.eval(s.cond)
	if err != nil {
		return flowNext, err
	}
	if truth(v) {
		return r.run(s.yes)
	}
	return r.run(s.no)
}

func (s *setStmt) exec(r *render) (flow, error) {
	r.line = s.line
	v, err := r.eval(s.value)
	if err != nil {
		return flowNext, err
	}
	return flowNext, r.assign(&s.target, v)
}

// assign gives a target its value.
func (r *render) assign(t *target, v any) error {
	switch {
	case t.tuple != nil:
		return r.unpack(t.tuple, v)
	case t.nsAttr != "":
		name := r.t.names[t.id]
		ns, ok := r.lookup(t.id, name).(*namespace)
		if !ok {
			return fail(RuntimeError, "cannot assign attribute '%s': '%s' is not a namespace(...)", t.nsAttr, name)
		}
		ns.attrs.Set(t.nsAttr, v)
		return nil
	}
	r.set(t.id, v)
	return nil
}

func (r *render) unpack(ts []target, v any) error {
	list, err := r.listOf(v)
	if err != nil {
		return err
	}
	if len(list) != len(ts) {
		return valueErrorf("cannot unpack %d values into %d variables", len(list), len(ts))
	}
	for i := range ts {
		if err := r.assign(&ts[i], list[i]); err != nil {
			return err
		}
	}
	return nil
}

// captureBody captures the text of statements in a scope of their own.
func (r *render) captureBody(body []stmt) (text string, f flow, err error) {
	text, err = r.capture(func() error {
		var err error
		f, err = r.within(newScope(r.scope), body)
		return err
	})
	return text, f, err
}

func (s *setBlockStmt) exec(r *render) (flow, error) {
	text, f, err := r.captureBody(s.body)
	if err != nil || f != flowNext {
		return f, err
	}
	r.line = s.line
	var v any = text
	if s.filters != nil {
		if v, err = s.filters.apply(r, text); err != nil {
			return flowNext, err
		}
	}
	return flowNext, r.assign(&s.target, v)
}

func (s *filterStmt) exec(r *render) (flow, error) {
	text, f, err := r.captureBody(s.body)
	if err != nil || f != flowNext {
		return f, err
	}
	r.line = s.line
	v, err := s.filters.apply(r, text)
	if err != nil {
		return flowNext, err
	}
	if text, err = r.str(v); err != nil {
		return flowNext, err
	}
	return flowNext, r.emit(text)
}

func (s *withStmt) exec(r *render) (flow, error) {
	r.line = s.line
	values := make([]any, len(s.values))
	for i, x := range s.values {
		v, err := r.eval(x)
		if err != nil {
			return flowNext, err
		}
		values[i] = v
	}
	old := r.scope
	r.scope = newScope(old)
	defer func() { r.scope = old }()
	for i := range s.targets {
		if err := r.assign(&s.targets[i], values[i]); err != nil {
			return flowNext, err
		}
	}
	return r.run(s.body)
}

func (s *macroStmt) exec(r *render) (flow, error) {
	r.set(s.id, &macro{s.def, r.scope})
	return flowNext, r.step()
}

func (s *callStmt) exec(r *render) (flow, error) {
	r.line = s.line
	callee, err := r.eval(s.call.callee)
	if err != nil {
		return flowNext, err
	}
	args, err := r.arguments(&s.call.args)
	if err != nil {
		return flowNext, err
	}
	if args.find("caller") >= 0 {
		return flowNext, typeErrorf("{%% call %%} and the argument caller=... exclude each other")
	}
	args.names = append(args.names[:len(args.names):len(args.names)], "caller")
	args.named = append(args.named, &macro{s.caller, r.scope})
	v, err := r.call(callee, args)
	if err != nil {
		return flowNext, err
	}
	text, err := r.str(v)
	if err != nil {
		return flowNext, err
	}
	return flowNext, r.emit(text)
}

func (s *generationStmt) exec(r *render) (flow, error) {
	start := len(r.out)
	f, err := r.within(newScope(r.scope), s.body)
	r.spans = append(r.spans, [2]int{start, len(r.out)})
	return f, err
}
