package template

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// formatInt formats an int or bool by verb d, x, X, o, b or none.
func (r *render) formatInt(c conversion, v any) (string, error) {
	i, _ := asBig(v)
	base, prefix := 10, ""
	switch c.verb {
	case 'x', 'X':
		base, prefix = 16, "0"+string(c.verb)
	case 'o':
		base, prefix = 8, "0o"
	case 'b':
		base, prefix = 2, "0b"
	}
	digits := new(big.Int).Abs(i).Text(base)
	if c.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	if c.precision > 0 { // only %-formatting has one
		var err error
		if digits, err = r.pad(digits, c.precision, "0", '>'); err != nil {
			return "", err
		}
	}
	if !c.alternate {
		prefix = ""
	}
	return r.formatNumber(c, i.Sign() < 0, prefix, digits, "")
}

// formatFloat formats a number by verb f, F, e, E, g, G, % or none.
func (r *render) formatFloat(c conversion, v any) (string, error) {
	f, ok := asFloat(v)
	if !ok {
		return "", valueErrorf("int too large to convert to float")
	}
	negative := math.Signbit(f) && !math.IsNaN(f)
	f = math.Abs(f)
	suffix := ""
	if c.verb == '%' {
		f, suffix = f*100, "%"
	}
	if math.IsInf(f, 0) || math.IsNaN(f) {
		text := strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'f', -1, 64)), "+")
		if c.verb >= 'A' && c.verb <= 'Z' {
			text = strings.ToUpper(text)
		}
		c.grouping = 0
		return r.formatNumber(c, negative, "", text, suffix)
	}
	precision := c.precision
	if precision < 0 {
		precision = 6
	}
	if err := r.checkString(int(min(precision, 1<<40))); err != nil {
		return "", err
	}
	text := floatText(f, c.verb, int(precision), c)
	whole := text
	if i := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		whole, suffix = text[:i], text[i:]+suffix
	}
	return r.formatNumber(c, negative, "", whole, suffix)
}

// floatText writes a finite f >= 0.
func floatText(f float64, verb byte, precision int, c conversion) string {
	switch verb {
	case 'f', 'F', '%':
		return strconv.FormatFloat(f, 'f', precision, 64)
	case 'e', 'E':
		return strconv.FormatFloat(f, verb, precision, 64)
	}
	if verb == 0 && c.precision < 0 {
		return floatRepr(f)
	}
	// g: precision counts significant digits; trailing zeros go.
	precision = max(precision, 1)
	e := strconv.FormatFloat(f, 'e', precision-1, 64)
	exp, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:])
	limit := precision
	if verb == 0 {
		limit = max(precision-1, 1) // str-like: at least one digit behind the point
	}
	var text, tail string
	if exp < -4 || exp >= limit {
		i := strings.IndexByte(e, 'e')
		text, tail = e[:i], e[i:]
	} else {
		text = strconv.FormatFloat(f, 'f', max(precision-1-exp, 0), 64)
	}
	if strings.IndexByte(text, '.') >= 0 && !c.alternate {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	if verb == 0 && tail == "" && strings.IndexByte(text, '.') < 0 {
		text += ".0"
	}
	if verb == 'G' {
		tail = strings.ToUpper(tail)
	}
	return text + tail
}

// formatNumber puts sign, prefix, digits (grouped, if asked for) and suffix
// together and pads them.
func (r *render) formatNumber(c conversion, negative bool, prefix, digits, suffix string) (string, error) {
	sign := ""
	if negative {
		sign = "-"
	} else if c.sign == '+' || c.sign == ' ' {
		sign = string(c.sign)
	}
	head := sign + prefix
	align := c.align
	if align == 0 {
		align = '>'
	}
	room := int64(0) // that the digits must fill, zeros in front
	if align == '=' && c.fill == "0" {
		room = c.width - int64(len(head)+runeLen(suffix))
	}
	if c.grouping != 0 {
		size := 3
		if c.verb == 'x' || c.verb == 'X' || c.verb == 'o' || c.verb == 'b' {
			size = 4
		}
		if err := r.checkString(int(min(max(room, 0), 1<<40))); err != nil {
			return "", err
		}
		digits = group(digits, size, c.grouping, int(room))
	}
	if align == '=' {
		body, err := r.pad(digits+suffix, c.width-int64(len(head)), c.fill, '>')
		return head + body, err
	}
	if align == '^' {
		return r.padCenter(head+digits+suffix, c.width, c.fill)
	}
	return r.pad(head+digits+suffix, c.width, c.fill, align)
}

// group puts sep between groups of digits, with zeros in front until there are
// room characters.
func group(digits string, size int, sep byte, room int) string {
	var rev []byte
	for i, n := len(digits)-1, 0; i >= 0 || len(rev) < room; i, n = i-1, n+1 {
		if n > 0 && n%size == 0 {
			rev = append(rev, sep)
		}
		d := byte('0')
		if i >= 0 {
			d = digits[i]
		}
		rev = append(rev, d)
	}
	for i, j := 0, len(rev)-1; i < j; i, j = i+1, j-1 {
		rev[i], rev[j] = rev[j], rev[i]
	}
	return string(rev)
}
