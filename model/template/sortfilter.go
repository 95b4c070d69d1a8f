package template

import "sort"

// sortBy sorts items, stably, by keys.
func (r *render) sortBy(items, keys []any, reverse bool) ([]any, error) {
	if err := r.makeList(2 * len(items)); err != nil {
		return nil, err
	}
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	var failed error
	sort.SliceStable(order, func(i, j int) bool {
		if failed != nil {
			return false
		}
		if failed = r.step(); failed != nil {
			return false
		}
		a, b := keys[order[i]], keys[order[j]]
		if reverse {
			a, b = b, a
		}
		less, err := r.compare("<", a, b)
		failed = err
		return less
	})
	if failed != nil {
		return nil, failed
	}
	out := make([]any, len(items))
	for i, j := range order {
		out[i] = items[j]
	}
	return out, nil
}

func filterDictSort(r *render, v any, args []any) (any, error) {
	m, ok := v.(*Map)
	if u, isUndef := v.(*undefined); isUndef {
		return nil, u.fail()
	}
	if !ok {
		return nil, typeErrorf("dictsort needs a mapping, not '%s'", typeName(v))
	}
	by, err := strArg(args, 1, "key")
	if err != nil {
		return nil, err
	}
	source := m.keys
	switch by {
	case "key":
	case "value":
		source = m.vals
	default:
		return nil, valueErrorf(`dictsort: by must be "key" or "value"`)
	}
	items, err := r.viewItems(view{m, "items"})
	if err != nil {
		return nil, err
	}
	keys := source
	if !truth(arg(args, 0, false)) {
		keys = make([]any, len(source))
		for i, k := range source {
			if keys[i], err = r.ignoreCase(k); err != nil {
				return nil, err
			}
		}
	}
	return r.sortBy(items, keys, truth(arg(args, 2, false)))
}

func filterSort(r *render, v any, args []any) (any, error) {
	items, err := r.listOf(v)
	if err != nil {
		return nil, err
	}
	get, err := r.multiGetter(arg(args, 2, nil), !truth(arg(args, 1, false)))
	if err != nil {
		return nil, err
	}
	keys := make([]any, len(items))
	for i, x := range items {
		if keys[i], err = get(x); err != nil {
			return nil, err
		}
	}
	return r.sortBy(items, keys, truth(arg(args, 0, false)))
}

func filterUnique(r *render, v any, args []any) (any, error) {
	get, err := r.getter(arg(args, 1, nil), !truth(arg(args, 0, false)))
	if err != nil {
		return nil, err
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	seen := &Map{}
	return it.over(func() (any, bool, error) {
		for {
			x, ok, err := it.next()
			if err != nil || !ok {
				return nil, false, err
			}
			key, err := get(x)
			if err != nil {
				return nil, false, err
			}
			if err := r.makeList(3); err != nil {
				return nil, false, err
			}
			if i, err := seen.find(key); err != nil {
				return nil, false, err
			} else if i < 0 {
				return x, true, seen.put(key, nil)
			}
		}
	})
}

// extreme is min or max.
func (r *render) extreme(op string, v any, args []any) (any, error) {
	get, err := r.getter(arg(args, 1, nil), !truth(arg(args, 0, false)))
	if err != nil {
		return nil, err
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	var best, bestKey any
	for n := 0; ; n++ {
		x, ok, err := it.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			if n == 0 {
				return undefinedHint("no aggregated item, sequence was empty"), nil
			}
			return best, nil
		}
		key, err := get(x)
		if err != nil {
			return nil, err
		}
		better := n == 0
		if !better {
			if better, err = r.compare(op, key, bestKey); err != nil {
				return nil, err
			}
		}
		if better {
			best, bestKey = x, key
		}
	}
}
