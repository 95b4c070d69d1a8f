package template

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

func methodFormat(r *render, self any, a callArgs) (any, error) {
	s, _ := asStr(self)
	named := &Map{}
	for i, name := range a.names {
		named.Set(name, a.named[i])
	}
	f := &braceFormat{r: r, args: a.pos, named: named, escaped: isMarkup(self)}
	out, err := f.format(s, 0)
	if err != nil {
		return nil, err
	}
	return like(self, out), r.makeString(len(out))
}

func methodFormatMap(r *render, self any, a callArgs) (any, error) {
	args, err := signature{1, 1, ""}.bind("format_map()", a)
	if err != nil {
		return nil, err
	}
	m, ok := args[0].(*Map)
	if !ok {
		return nil, typeErrorf("format_map() needs a mapping, not %s", typeName(args[0]))
	}
	s, _ := asStr(self)
	f := &braceFormat{r: r, named: m, escaped: isMarkup(self)}
	out, err := f.format(s, 0)
	if err != nil {
		return nil, err
	}
	return like(self, out), r.makeString(len(out))
}

// braceFormat is one call of str.format.
type braceFormat struct {
	r       *render
	args    []any
	named   *Map
	auto    int // next automatic number; -1 once a number was given
	escaped bool
}

// format fills in the fields of s. depth is 1 inside a format spec and 2 inside
// the spec of a field there, where Python stops.
func (f *braceFormat) format(s string, depth int) (string, error) {
	if depth > 2 {
		return "", valueErrorf("max string recursion exceeded")
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		n := strings.IndexAny(s[i:], "{}")
		if n < 0 {
			b.WriteString(s[i:])
			break
		}
		b.WriteString(s[i : i+n])
		i += n
		if i+1 < len(s) && s[i+1] == s[i] {
			b.WriteByte(s[i])
			i += 2
			continue
		}
		if s[i] == '}' {
			return "", valueErrorf("single '}' encountered in format string")
		}
		end := fieldEnd(s, i)
		if end < 0 {
			return "", valueErrorf("single '{' encountered in format string")
		}
		piece, err := f.field(s[i+1:end], depth)
		if err != nil {
			return "", err
		}
		b.WriteString(piece)
		if err := f.r.checkString(b.Len()); err != nil {
			return "", err
		}
		i = end + 1
	}
	return b.String(), f.r.work(len(s))
}

// fieldEnd returns the position of the brace that closes the one at s[i].
func fieldEnd(s string, i int) int {
	depth := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// field formats `name!conversion:spec`.
func (f *braceFormat) field(field string, depth int) (string, error) {
	name, spec := field, ""
	inBrackets := false
	for i := 0; i < len(field); i++ {
		c := field[i]
		if c == '[' {
			inBrackets = true
		} else if c == ']' {
			inBrackets = false
		}
		if (c == ':' || c == '!') && !inBrackets {
			name, spec = field[:i], field[i:]
			break
		}
	}
	conv := byte(0)
	if strings.HasPrefix(spec, "!") {
		if len(spec) < 2 || len(spec) > 2 && spec[2] != ':' {
			return "", valueErrorf("expected ':' after conversion specifier")
		}
		conv, spec = spec[1], spec[2:]
	}
	spec = strings.TrimPrefix(spec, ":")
	v, err := f.value(name)
	if err != nil {
		return "", err
	}
	switch conv {
	case 0:
	case 's':
		v, err = f.r.str(v)
	case 'r', 'a':
		var text string
		if text, err = f.r.repr(v); conv == 'a' {
			text = asciiOnly(text)
		}
		v = text
	default:
		return "", valueErrorf("unknown conversion specifier %q", conv)
	}
	if err != nil {
		return "", err
	}
	if spec, err = f.format(spec, depth+1); err != nil {
		return "", err
	}
	text, err := f.r.formatValue(v, spec)
	if err == nil && f.escaped && !isMarkup(v) {
		text = escapeHTML(text)
	}
	return text, err
}

// value looks up `0.attr[key]`.
func (f *braceFormat) value(name string) (any, error) {
	n := strings.IndexAny(name, ".[")
	if n < 0 {
		n = len(name)
	}
	v, err := f.root(name[:n])
	for rest := name[n:]; err == nil && rest != ""; {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			v, err = f.r.attribute(v, rest[1:1+end])
			rest = rest[1+end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 0 {
			return nil, valueErrorf("only '.' or '[' may follow ']' in a format field")
		}
		var key any = rest[1:end]
		if i, perr := strconv.ParseInt(rest[1:end], 10, 64); perr == nil {
			key = i
		}
		v, err = f.r.item(v, key)
		rest = rest[end+1:]
	}
	return v, err
}

func (f *braceFormat) root(name string) (any, error) {
	index, err := strconv.Atoi(name)
	if name == "" {
		if f.auto < 0 {
			return nil, valueErrorf("cannot switch from manual field specification to automatic field numbering")
		}
		index, err = f.auto, nil
		f.auto++
	} else if err == nil {
		if f.auto > 0 {
			return nil, valueErrorf("cannot switch from automatic field numbering to manual field specification")
		}
		f.auto = -1
	}
	if err != nil {
		v, ok := f.named.Get(name)
		if !ok {
			return nil, valueErrorf("format argument '%s' is missing", name)
		}
		return v, nil
	}
	if index < 0 || index >= len(f.args) {
		return nil, valueErrorf("replacement index %d out of range for positional arguments", index)
	}
	return f.args[index], nil
}

// formatValue is Python's format(v, spec).
func (r *render) formatValue(v any, spec string) (string, error) {
	if spec == "" {
		return r.str(v)
	}
	c, ok := parseSpec(spec)
	if !ok {
		return "", valueErrorf("invalid format specifier '%s'", spec)
	}
	if text, ok := asStr(v); ok {
		if c.verb != 0 && c.verb != 's' || c.sign != 0 || c.alternate || c.grouping != 0 || c.align == '=' && c.fill != "0" {
			return "", valueErrorf("format specifier '%s' is not for str", spec)
		}
		if c.align == '=' {
			c.align = '<' // a leading 0 only fills
		}
		return r.formatText(c, text)
	}
	_, isFloat := v.(float64)
	_, isBool := v.(bool)
	if isBool && c.verb == 0 {
		v = boolInt(v.(bool))
	}
	switch {
	case !isNumber(v):
		return "", typeErrorf("unsupported format string passed to %s.__format__", typeName(v))
	case isFloat || strings.IndexByte("eEfFgG%", c.verb) >= 0:
		if c.verb != 0 && strings.IndexByte("eEfFgGn%", c.verb) < 0 {
			return "", valueErrorf("unknown format code %q for float", c.verb)
		}
		return r.formatFloat(c, v)
	case c.precision >= 0:
		return "", valueErrorf("precision not allowed in integer format specifier")
	case c.verb == 'c':
		i, ok := asInt(v)
		if !ok || i < 0 || i > utf8.MaxRune {
			return "", valueErrorf("%%c arg not in range of characters")
		}
		return r.formatText(c, string(rune(i)))
	case c.verb != 0 && strings.IndexByte("dnxXob", c.verb) < 0:
		return "", valueErrorf("unknown format code %q for int", c.verb)
	}
	return r.formatInt(c, v)
}

// parseSpec parses [[fill]align][sign][#][0][width][grouping][.precision][type].
func parseSpec(s string) (conversion, bool) {
	c := conversion{fill: " ", precision: -1}
	isAlign := func(i int) bool { return i < len(s) && strings.IndexByte("<>=^", s[i]) >= 0 }
	filled := false
	if n := runeOffset(s, 1); isAlign(n) {
		c.fill, c.align, s = s[:n], s[n], s[n+1:]
		filled = true
	} else if isAlign(0) {
		c.align, s = s[0], s[1:]
	}
	take := func(set string) byte {
		if s == "" || strings.IndexByte(set, s[0]) < 0 {
			return 0
		}
		b := s[0]
		s = s[1:]
		return b
	}
	c.sign = take("+- ")
	c.alternate = take("#") != 0
	if take("0") != 0 && !filled {
		c.fill = "0"
		if c.align == 0 {
			c.align = '='
		}
	}
	var n int
	c.width, n = leadingInt(s)
	s = s[n:]
	c.grouping = take(",_")
	if take(".") != 0 {
		if c.precision, n = leadingInt(s); n == 0 {
			return c, false
		}
		s = s[n:]
	}
	if s != "" {
		c.verb, s = s[0], s[1:]
	}
	return c, s == ""
}
