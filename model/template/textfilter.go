package template

import (
	"strings"
	"unicode"
)

// textFilter returns a filter on text, nil when there is none of that name.
func textFilter(name string) *filter {
	// onText wraps a filter that takes str(v).
	onText := func(min, max int, names string, fn func(r *render, s string, args []any) (string, error)) *filter {
		return &filter{sig: signature{min, max, names}, fn: func(r *render, v any, args []any) (any, error) {
			s, err := r.str(v)
			if err != nil {
				return nil, err
			}
			if err := r.work(len(s)); err != nil {
				return nil, err
			}
			out, err := fn(r, s, args)
			if err != nil {
				return nil, err
			}
			return like(v, out), r.makeString(len(out))
		}}
	}
	simple := func(fn func(string) string) *filter {
		return onText(0, 0, "", func(_ *render, s string, _ []any) (string, error) { return fn(s), nil })
	}
	switch name {
	case "upper":
		return simple(upper)
	case "lower":
		return simple(lower)
	case "capitalize":
		return simple(capitalize)
	case "title":
		return simple(titleFilter)
	case "string":
		return simple(func(s string) string { return s })
	case "trim":
		return onText(0, 1, "chars", func(_ *render, s string, args []any) (string, error) {
			return strip(s, args, true, true)
		})
	case "center":
		return onText(0, 1, "width", func(r *render, s string, args []any) (string, error) {
			width, err := intArg(args, 0, 80)
			if err != nil {
				return "", err
			}
			return r.pad(s, width, " ", '^')
		})
	case "replace":
		return &filter{sig: signature{2, 3, "old new count"}, fn: filterReplace}
	case "indent":
		return &filter{sig: signature{0, 3, "width first blank"}, fn: filterIndent}
	case "truncate":
		return &filter{sig: signature{0, 4, "length killwords end leeway"}, fn: filterTruncate}
	case "wordcount":
		return &filter{fn: filterWordCount}
	case "urlencode":
		return &filter{fn: filterURLEncode}
	case "format":
		return &filter{raw: filterFormat}
	case "safe":
		return &filter{fn: func(r *render, v any, _ []any) (any, error) {
			s, err := r.str(v)
			return markup(s), err
		}}
	case "escape", "e":
		return &filter{fn: func(r *render, v any, _ []any) (any, error) {
			if isMarkup(v) {
				return v, nil
			}
			return r.escape(v)
		}}
	case "forceescape":
		return &filter{fn: func(r *render, v any, _ []any) (any, error) { return r.escape(v) }}
	}
	return nil
}

func (r *render) escape(v any) (any, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if err := r.makeString(5 * len(s)); err != nil { // the longest escape
		return nil, err
	}
	return markup(escapeHTML(s)), nil
}

// titleFilter is the filter title, which knows other word boundaries than the
// method.
func titleFilter(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		n := strings.IndexFunc(s, func(r rune) bool { return strings.ContainsRune("-({[<", r) || isSpace(r) })
		if n < 0 {
			n = len(s)
		}
		if n > 0 {
			first := runeOffset(s, 1)
			b.WriteString(upper(s[:first]))
			b.WriteString(lower(s[first:n]))
		} else {
			n = runeOffset(s, 1)
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func filterReplace(r *render, v any, args []any) (any, error) {
	var text [3]string
	for i, x := range [3]any{v, args[0], args[1]} {
		var err error
		if text[i], err = r.str(x); err != nil {
			return nil, err
		}
	}
	count := int64(-1)
	if arg(args, 2, nil) != nil {
		var err error
		if count, err = intArg(args, 2, -1); err != nil {
			return nil, err
		}
	}
	return r.replace(text[0], text[1], text[2], count)
}

// replace is s.replace(old, new, count).
func (r *render) replace(s, old, new string, count int64) (string, error) {
	if err := r.work(len(s)); err != nil {
		return "", err
	}
	n := int64(strings.Count(s, old))
	if count >= 0 {
		n = min(n, count)
	}
	if grow := int64(len(new) - len(old)); grow > 0 && n > int64(r.lim.StringSize)/grow {
		return "", r.checkString(r.lim.StringSize + 1)
	}
	if err := r.makeString(len(s) + int(n)*(len(new)-len(old))); err != nil {
		return "", err
	}
	return strings.Replace(s, old, new, int(n)), nil
}

func filterIndent(r *render, v any, args []any) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	s, ok := asStr(v)
	if !ok {
		return nil, typeErrorf("indent needs a str, not %s", typeName(v))
	}
	indention, ok := asStr(arg(args, 0, int64(4)))
	if !ok {
		width, err := intArg(args, 0, 4)
		if err != nil {
			return nil, err
		}
		spaces, _, err := r.repeat(" ", width)
		if err != nil {
			return nil, err
		}
		indention = spaces.(string)
	}
	blank := truth(arg(args, 2, false))
	lines := splitLines(s+"\n", false)
	if err := r.makeString(len(s) + len(lines)*(len(indention)+1)); err != nil {
		return nil, err
	}
	var b strings.Builder
	if truth(arg(args, 1, false)) {
		b.WriteString(indention)
	}
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
			if blank || line != "" {
				b.WriteString(indention)
			}
		}
		b.WriteString(line)
	}
	return like(v, b.String()), nil
}

func filterTruncate(r *render, v any, args []any) (any, error) {
	length, err := intArg(args, 0, 255)
	if err != nil {
		return nil, err
	}
	end, err := strArg(args, 2, "...")
	if err != nil {
		return nil, err
	}
	leeway := int64(5)
	if arg(args, 3, nil) != nil {
		if leeway, err = intArg(args, 3, 5); err != nil {
			return nil, err
		}
	}
	room := length - int64(runeLen(end))
	if room < 0 || leeway < 0 {
		return nil, valueErrorf("truncate: length %d must hold the end %q, and leeway %d be at least 0", length, end, leeway)
	}
	size, ok := sizeOf(v)
	if !ok {
		return nil, typeErrorf("object of type '%s' has no len()", typeName(v))
	}
	if int64(size) <= length || int64(size)-leeway <= length {
		return v, nil
	}
	s, ok := asStr(v)
	if !ok {
		return nil, typeErrorf("truncate needs a str, not %s", typeName(v))
	}
	s = s[:runeOffset(s, int(room))]
	if !truth(arg(args, 1, false)) {
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			s = s[:i]
		}
	}
	if err := r.makeString(len(s) + len(end)); err != nil {
		return nil, err
	}
	return like(v, s+end), nil
}

func filterWordCount(r *render, v any, _ []any) (any, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	n, inside := int64(0), false
	for _, c := range s {
		word := c == '_' || unicode.IsLetter(c) || unicode.IsNumber(c)
		if word && !inside {
			n++
		}
		inside = word
	}
	return n, r.work(len(s))
}

func filterURLEncode(r *render, v any, _ []any) (any, error) {
	_, isText := asStr(v)
	it, err := r.iterate(v)
	if isText || err != nil {
		s, err := r.str(v)
		if err != nil {
			return nil, err
		}
		return r.quoteURL(s, "/")
	}
	if m, ok := v.(*Map); ok {
		if it, err = r.iterate(view{m, "items"}); err != nil {
			return nil, err
		}
	}
	var parts []string
	for {
		pair, ok, err := it.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return r.joinText(parts, "&")
		}
		kv, err := r.listOf(pair)
		if err != nil {
			return nil, err
		}
		if len(kv) != 2 {
			return nil, valueErrorf("urlencode needs pairs, got %d values", len(kv))
		}
		var text [2]string
		for i := range kv {
			if text[i], err = r.str(kv[i]); err != nil {
				return nil, err
			}
			if text[i], err = r.quoteURL(text[i], ""); err != nil {
				return nil, err
			}
			text[i] = strings.ReplaceAll(text[i], "%20", "+")
		}
		parts = append(parts, text[0]+"="+text[1])
	}
}

func (r *render) quoteURL(s, safe string) (string, error) {
	if err := r.makeString(3 * len(s)); err != nil {
		return "", err
	}
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("_.-~"+safe, c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteString(sprintf("%%%02X", c))
		}
	}
	return b.String(), nil
}

func filterFormat(r *render, v any, a callArgs) (any, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if len(a.named) == 0 {
		out, err := r.percent(s, tuple(a.pos), isMarkup(v))
		return like(v, out), err
	}
	if len(a.pos) > 0 {
		return nil, typeErrorf("format: positional and keyword arguments exclude each other")
	}
	m := &Map{}
	for i, name := range a.names {
		m.Set(name, a.named[i])
	}
	out, err := r.percent(s, m, isMarkup(v))
	return like(v, out), err
}
