package template

import (
	"strings"
	"unicode/utf8"
)

// conversion is one directive of %-formatting or one format spec.
type conversion struct {
	fill      string
	align     byte // 0, '<', '>', '=' or '^'
	sign      byte // 0, '+', ' ' or '-'
	alternate bool // #
	width     int64
	grouping  byte  // 0, ',' or '_'
	precision int64 // -1: none
	verb      byte  // 0: none
}

// percent is text % args as Python does it.
func (r *render) percent(text string, args any, escaped bool) (string, error) {
	p := &percentFormat{r: r, s: text, escaped: escaped}
	p.mapping, _ = args.(*Map)
	if t, ok := args.(tuple); ok {
		p.args = t
	} else {
		p.args = []any{args}
		switch args.(type) {
		case *Map, []any, *undefined, rangeValue:
			p.surplus = true // Python does not complain about these
		}
	}
	var b strings.Builder
	for p.pos < len(p.s) {
		i := strings.IndexByte(p.s[p.pos:], '%')
		if i < 0 {
			i = len(p.s) - p.pos
		}
		b.WriteString(p.s[p.pos : p.pos+i])
		p.pos += i
		if p.pos == len(p.s) {
			break
		}
		piece, err := p.directive()
		if err != nil {
			return "", err
		}
		b.WriteString(piece)
		if err := r.checkString(b.Len()); err != nil {
			return "", err
		}
	}
	if p.next < len(p.args) && !p.surplus {
		return "", typeErrorf("not all arguments converted during string formatting")
	}
	return b.String(), r.makeString(b.Len())
}

type percentFormat struct {
	r       *render
	s       string
	pos     int
	args    []any
	next    int // argument
	mapping *Map
	surplus bool
	escaped bool // the format is Markup: arguments are escaped
}

func (p *percentFormat) arg() (any, error) {
	if p.next >= len(p.args) {
		return nil, typeErrorf("not enough arguments for format string")
	}
	p.next++
	return p.args[p.next-1], nil
}

// number reads digits or a `*` argument.
func (p *percentFormat) number() (int64, error) {
	if p.pos < len(p.s) && p.s[p.pos] == '*' {
		p.pos++
		v, err := p.arg()
		if err != nil {
			return 0, err
		}
		n, ok := asInt(v)
		if !ok {
			return 0, typeErrorf("* wants int")
		}
		return n, nil
	}
	n, size := leadingInt(p.s[p.pos:])
	p.pos += size
	return n, nil
}

// leadingInt reads decimal digits; numbers too large for any use are clipped.
func leadingInt(s string) (n int64, size int) {
	for size < len(s) && isDigit(s[size]) {
		n = min(n*10+int64(s[size]-'0'), 1<<40)
		size++
	}
	return n, size
}

// directive formats the directive at the current percent sign.
func (p *percentFormat) directive() (string, error) {
	p.pos++
	c := conversion{fill: " ", align: '>', precision: -1}
	var value any
	keyed := false
	if p.pos < len(p.s) && p.s[p.pos] == '(' {
		end := strings.IndexByte(p.s[p.pos:], ')')
		if end < 0 {
			return "", valueErrorf("incomplete format key")
		}
		if p.mapping == nil {
			return "", typeErrorf("format requires a mapping")
		}
		key := p.s[p.pos+1 : p.pos+end]
		p.pos += end + 1
		v, ok := p.mapping.Get(key)
		if !ok {
			return "", valueErrorf("format key '%s' is missing", key)
		}
		value, keyed = v, true
		p.next = len(p.args)
	}
	left := false
	for ; p.pos < len(p.s) && strings.IndexByte("-+ #0", p.s[p.pos]) >= 0; p.pos++ {
		switch f := p.s[p.pos]; f {
		case '-':
			left = true
		case '+':
			c.sign = '+'
		case ' ':
			if c.sign == 0 {
				c.sign = ' '
			}
		case '#':
			c.alternate = true
		case '0':
			c.fill, c.align = "0", '='
		}
	}
	var err error
	if c.width, err = p.number(); err != nil {
		return "", err
	}
	if c.width < 0 {
		left, c.width = true, -c.width
	}
	if left {
		c.fill, c.align = " ", '<'
	}
	if p.pos < len(p.s) && p.s[p.pos] == '.' {
		p.pos++
		if c.precision, err = p.number(); err != nil {
			return "", err
		}
		c.precision = max(c.precision, 0)
	}
	for p.pos < len(p.s) && strings.IndexByte("hlL", p.s[p.pos]) >= 0 {
		p.pos++
	}
	if p.pos >= len(p.s) {
		return "", valueErrorf("incomplete format")
	}
	c.verb = p.s[p.pos]
	p.pos++
	if c.verb == '%' {
		return "%", nil
	}
	if !keyed {
		if value, err = p.arg(); err != nil {
			return "", err
		}
	}
	return p.convert(c, value)
}

// convert formats one value for %-formatting.
func (p *percentFormat) convert(c conversion, v any) (string, error) {
	r := p.r
	switch c.verb {
	case 's', 'r', 'a':
		text, err := r.str(v)
		if c.verb != 's' {
			text, err = r.repr(v)
		}
		if err != nil {
			return "", err
		}
		if p.escaped && !isMarkup(v) {
			text = escapeHTML(text)
		}
		if c.verb == 'a' {
			text = asciiOnly(text)
		}
		if c.align == '=' {
			c.fill, c.align = " ", '>' // zeros are for numbers
		}
		return r.formatText(c, text)
	case 'c':
		if s, ok := asStr(v); ok && runeLen(s) == 1 {
			return r.formatText(c, s)
		}
		i, ok := asInt(v)
		if !ok || i < 0 || i > utf8.MaxRune {
			return "", typeErrorf("%%c requires int or char")
		}
		return r.formatText(c, string(rune(i)))
	}
	if u, ok := v.(*undefined); ok {
		return "", u.fail()
	}
	if !isNumber(v) {
		return "", typeErrorf("%%%c format: a number is required, not %s", c.verb, typeName(v))
	}
	switch c.verb {
	case 'd', 'i', 'u':
		c.verb = 'd'
		if f, ok := v.(float64); ok {
			i, ok := floatToInt(f)
			if !ok {
				return "", valueErrorf("cannot convert float %s to integer", floatRepr(f))
			}
			v = i
		}
		return r.formatInt(c, v)
	case 'x', 'X', 'o':
		if _, ok := v.(float64); ok {
			return "", typeErrorf("%%%c format: an integer is required, not float", c.verb)
		}
		return r.formatInt(c, v)
	case 'f', 'F', 'e', 'E', 'g', 'G':
		return r.formatFloat(c, v)
	}
	return "", valueErrorf("unsupported format character %q", c.verb)
}

func asciiOnly(s string) string {
	var b strings.Builder
	for _, c := range s {
		if c < utf8.RuneSelf {
			b.WriteRune(c)
		} else {
			b.WriteString(asciiEscape(c))
		}
	}
	return b.String()
}

// formatText cuts text to the precision and pads it.
func (r *render) formatText(c conversion, text string) (string, error) {
	if c.precision >= 0 {
		text = text[:runeOffset(text, int(c.precision))]
	}
	align := c.align
	if align == 0 {
		align = '<'
	}
	if align == '^' {
		return r.padCenter(text, c.width, c.fill)
	}
	return r.pad(text, c.width, c.fill, align)
}

// padCenter centres as format does: the odd character goes right.
func (r *render) padCenter(s string, width int64, fill string) (string, error) {
	n := int64(runeLen(s))
	if width <= n {
		return s, nil
	}
	s, err := r.pad(s, n+(width-n)/2, fill, '>')
	if err != nil {
		return "", err
	}
	return r.pad(s, width, fill, '<')
}
