package template

import (
	"strings"
	"unicode/utf8"
)

// searchMethod returns the methods of str that search, cut and pad.
func searchMethod(name string) (textMethod, bool) {
	m := func(min, max int, names string, fn func(r *render, s string, args []any) (any, error)) (textMethod, bool) {
		return textMethod{signature{min, max, names}, fn}, true
	}
	switch name {
	case "strip", "lstrip", "rstrip":
		return m(0, 1, "", func(_ *render, s string, args []any) (any, error) {
			return strip(s, args, name != "rstrip", name != "lstrip")
		})
	case "split", "rsplit":
		return m(0, 2, "sep maxsplit", func(r *render, s string, args []any) (any, error) {
			return r.split(s, args, name == "rsplit")
		})
	case "splitlines":
		return m(0, 1, "keepends", func(r *render, s string, args []any) (any, error) {
			if err := r.makeList(2 * strings.Count(s, "\n")); err != nil {
				return nil, err
			}
			return r.stringList(splitLines(s, truth(arg(args, 0, false))))
		})
	case "partition", "rpartition":
		return m(1, 1, "", func(_ *render, s string, args []any) (any, error) {
			return partition(s, args, name == "rpartition")
		})
	case "startswith", "endswith":
		return m(1, 3, "", func(_ *render, s string, args []any) (any, error) {
			return hasAffix(s, args, name == "endswith")
		})
	case "find", "rfind", "index", "rindex":
		return m(1, 3, "", func(_ *render, s string, args []any) (any, error) { return find(name, s, args) })
	case "count":
		return m(1, 3, "", func(_ *render, s string, args []any) (any, error) {
			sub, part, _, err := window(s, args)
			return int64(strings.Count(part, sub)), err
		})
	case "replace":
		return m(2, 3, "", func(r *render, s string, args []any) (any, error) {
			old, err := strArg(args, 0, "")
			if err != nil {
				return nil, err
			}
			new, err := strArg(args, 1, "")
			if err != nil {
				return nil, err
			}
			count, err := intArg(args, 2, -1)
			if err != nil {
				return nil, err
			}
			return r.replace(s, old, new, count)
		})
	case "removeprefix", "removesuffix":
		return m(1, 1, "", func(_ *render, s string, args []any) (any, error) {
			affix, err := strArg(args, 0, "")
			if name == "removeprefix" {
				return strings.TrimPrefix(s, affix), err
			}
			return strings.TrimSuffix(s, affix), err
		})
	case "center", "ljust", "rjust":
		return m(1, 2, "", func(r *render, s string, args []any) (any, error) {
			width, err := intArg(args, 0, 0)
			if err != nil {
				return nil, err
			}
			fill, err := strArg(args, 1, " ")
			if err != nil {
				return nil, err
			}
			if runeLen(fill) != 1 {
				return nil, typeErrorf("the fill character must be exactly one character long")
			}
			return r.pad(s, width, fill, map[string]byte{"center": '^', "ljust": '<', "rjust": '>'}[name])
		})
	case "zfill":
		return m(1, 1, "", func(r *render, s string, args []any) (any, error) {
			width, err := intArg(args, 0, 0)
			if err != nil {
				return nil, err
			}
			sign := ""
			if s != "" && (s[0] == '-' || s[0] == '+') {
				sign, s = s[:1], s[1:]
			}
			s, err = r.pad(s, width-int64(len(sign)), "0", '>')
			return sign + s, err
		})
	case "expandtabs":
		return m(0, 1, "tabsize", expandTabs)
	}
	return textMethod{}, false
}

// strip removes white space, or the characters of args[0], from the ends.
func strip(s string, args []any, left, right bool) (string, error) {
	drop := isSpace
	if arg(args, 0, nil) != nil {
		chars, err := strArg(args, 0, "")
		if err != nil {
			return "", err
		}
		drop = func(r rune) bool { return strings.ContainsRune(chars, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, drop)
	}
	if right {
		s = strings.TrimRightFunc(s, drop)
	}
	return s, nil
}

func (r *render) stringList(parts []string) (any, error) {
	if err := r.makeList(2 * len(parts)); err != nil {
		return nil, err
	}
	list := make([]any, len(parts))
	for i, p := range parts {
		list[i] = p
	}
	return list, nil
}

// split is s.split(sep, maxsplit), from the right when fromRight.
func (r *render) split(s string, args []any, fromRight bool) (any, error) {
	limit, err := intArg(args, 1, -1)
	if err != nil {
		return nil, err
	}
	if limit < 0 || limit > int64(len(s)) {
		limit = int64(len(s)) + 1
	}
	if arg(args, 0, nil) == nil {
		if err := r.checkLen(int(min(countWords(s), limit))); err != nil {
			return nil, err
		}
		return r.stringList(splitSpace(s, int(limit), fromRight))
	}
	sep, err := strArg(args, 0, "")
	if err != nil {
		return nil, err
	}
	if sep == "" {
		return nil, valueErrorf("empty separator")
	}
	if err := r.checkLen(int(min(int64(strings.Count(s, sep)), limit))); err != nil {
		return nil, err
	}
	if !fromRight {
		return r.stringList(strings.SplitN(s, sep, int(limit)+1))
	}
	var parts []string
	for ; limit > 0; limit-- {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
	}
	return r.stringList(backwards(append(parts, s)))
}

func countWords(s string) int64 {
	n, inside := int64(0), false
	for _, r := range s {
		space := isSpace(r)
		n += boolInt(!space && !inside)
		inside = !space
	}
	return n
}

func backwards(parts []string) []string {
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return parts
}

// splitSpace splits at runs of white space, at most limit times.
func splitSpace(s string, limit int, fromRight bool) []string {
	var parts []string
	if fromRight {
		for s = strings.TrimRightFunc(s, isSpace); s != ""; s = strings.TrimRightFunc(s, isSpace) {
			i := strings.LastIndexFunc(s, isSpace)
			if len(parts) == limit || i < 0 {
				parts = append(parts, s)
				break
			}
			_, n := utf8.DecodeRuneInString(s[i:])
			parts = append(parts, s[i+n:])
			s = s[:i]
		}
		return backwards(parts)
	}
	for s = trimSpace(s); s != ""; s = trimSpace(s) {
		i := strings.IndexFunc(s, isSpace)
		if len(parts) == limit || i < 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:i])
		s = s[i:]
	}
	return parts
}

// splitLines is s.splitlines(keepends).
func splitLines(s string, keepEnds bool) []string {
	var lines []string
	for len(s) > 0 {
		i := strings.IndexFunc(s, func(r rune) bool {
			return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
		})
		if i < 0 {
			return append(lines, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		line := s[:i]
		if keepEnds {
			line = s[:i+n]
		}
		lines = append(lines, line)
		s = s[i+n:]
	}
	return lines
}

func partition(s string, args []any, fromRight bool) (any, error) {
	sep, err := strArg(args, 0, "")
	if err != nil {
		return nil, err
	}
	if sep == "" {
		return nil, valueErrorf("empty separator")
	}
	i := strings.Index(s, sep)
	if fromRight {
		i = strings.LastIndex(s, sep)
	}
	switch {
	case i >= 0:
		return tuple{s[:i], sep, s[i+len(sep):]}, nil
	case fromRight:
		return tuple{"", "", s}, nil
	}
	return tuple{s, "", ""}, nil
}

// window returns the argument sub, the part of s between the arguments start
// and end, which count characters, and the start.
func window(s string, args []any) (sub, part string, start int, err error) {
	if sub, err = strArg(args, 0, ""); err != nil {
		return "", "", 0, err
	}
	part, start, err = between(s, args)
	return sub, part, start, err
}

// between cuts s to the arguments start and end. An empty part that Python
// finds nothing in, not even "", is not told apart.
func between(s string, args []any) (part string, start int, err error) {
	if len(args) < 2 {
		return s, 0, nil
	}
	var b [3]int64
	given := [3]any{arg(args, 1, nil), arg(args, 2, nil)}
	for i := range 2 {
		if given[i] != nil {
			if b[i], err = intArg(args, i+1, 0); err != nil {
				return "", 0, err
			}
		}
	}
	b[2] = 1
	lo, hi := sliceBounds(given, b, int64(runeLen(s)))
	if hi <= lo {
		return "", int(lo), nil
	}
	from := runeOffset(s, int(lo))
	return s[from : from+runeOffset(s[from:], int(hi-lo))], int(lo), nil
}

func hasAffix(s string, args []any, atEnd bool) (any, error) {
	part, _, err := between(s, args)
	if err != nil {
		return nil, err
	}
	affixes, isTuple := args[0].(tuple)
	if !isTuple {
		affixes = tuple{args[0]}
	}
	for _, v := range affixes {
		affix, ok := asStr(v)
		if !ok {
			return nil, typeErrorf("startswith and endswith take a str or a tuple of str, not %s", typeName(v))
		}
		if atEnd && strings.HasSuffix(part, affix) || !atEnd && strings.HasPrefix(part, affix) {
			return true, nil
		}
	}
	return false, nil
}

func find(name, s string, args []any) (any, error) {
	sub, part, start, err := window(s, args)
	if err != nil {
		return nil, err
	}
	i := strings.Index(part, sub)
	if name[0] == 'r' {
		i = strings.LastIndex(part, sub)
	}
	if i < 0 {
		if strings.HasSuffix(name, "index") {
			return nil, valueErrorf("substring not found")
		}
		return int64(-1), nil
	}
	return int64(start + runeLen(part[:i])), nil
}

// pad fills s up to width characters; align is '<', '>' or '^' as in format.
// Python's center puts the odd character left of odd-sized text only.
func (r *render) pad(s string, width int64, fill string, align byte) (string, error) {
	missing := width - int64(runeLen(s))
	if missing <= 0 {
		return s, nil
	}
	if missing > int64(r.lim.StringSize) {
		return "", r.checkString(r.lim.StringSize + 1)
	}
	if err := r.makeString(len(s) + int(missing)*len(fill)); err != nil {
		return "", err
	}
	left := 0
	switch align {
	case '>':
		left = int(missing)
	case '^':
		left = int(missing/2 + missing&width&1)
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, int(missing)-left), nil
}

func expandTabs(r *render, s string, args []any) (any, error) {
	size, err := intArg(args, 0, 8)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	column := int64(0)
	for _, c := range s {
		switch {
		case c == '\t':
			if size > 0 {
				n := size - column%size
				if err := r.checkString(b.Len() + int(min(n, 1<<40))); err != nil {
					return nil, err
				}
				b.WriteString(strings.Repeat(" ", int(n)))
				column += n
			}
			continue
		case c == '\n' || c == '\r':
			column = -1
		}
		column++
		b.WriteRune(c)
	}
	return b.String(), r.makeString(b.Len())
}
