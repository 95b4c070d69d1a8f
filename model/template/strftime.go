package template

import (
	"strconv"
	"strings"
	"time"
)

// strftime formats t as C's strftime does in the C locale. GNU's `-`, `_`, `0`
// and `^` flags are known; an unknown directive stays as it is.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		from := i
		i++
		flag := byte(0)
		if strings.IndexByte("-_0^", format[i]) >= 0 && i+1 < len(format) {
			flag = format[i]
			i++
		}
		text, ok := directive(t, format[i], flag)
		if !ok {
			text = format[from : i+1]
		}
		b.WriteString(text)
	}
	return b.String()
}

// directive returns the text of one strftime directive.
func directive(t time.Time, c, flag byte) (string, bool) {
	pad := func(n, width int, fill byte) string {
		switch flag {
		case '-':
			width = 0
		case '_':
			fill = ' '
		case '0':
			fill = '0'
		}
		s := strconv.Itoa(n)
		return strings.Repeat(string(fill), max(0, width-len(s))) + s
	}
	word := func(s string) string {
		if flag == '^' {
			return strings.ToUpper(s)
		}
		return s
	}
	hour12 := (t.Hour()+11)%12 + 1
	isoYear, isoWeek := t.ISOWeek()
	switch c {
	case 'Y':
		return pad(t.Year(), 0, '0'), true
	case 'C':
		return pad(t.Year()/100, 2, '0'), true
	case 'y':
		return pad(t.Year()%100, 2, '0'), true
	case 'm':
		return pad(int(t.Month()), 2, '0'), true
	case 'd':
		return pad(t.Day(), 2, '0'), true
	case 'e':
		return pad(t.Day(), 2, ' '), true
	case 'j':
		return pad(t.YearDay(), 3, '0'), true
	case 'H':
		return pad(t.Hour(), 2, '0'), true
	case 'k':
		return pad(t.Hour(), 2, ' '), true
	case 'I':
		return pad(hour12, 2, '0'), true
	case 'l':
		return pad(hour12, 2, ' '), true
	case 'M':
		return pad(t.Minute(), 2, '0'), true
	case 'S':
		return pad(t.Second(), 2, '0'), true
	case 'f':
		return sprintf("%06d", t.Nanosecond()/1000), true
	case 's':
		return strconv.FormatInt(t.Unix(), 10), true
	case 'w':
		return strconv.Itoa(int(t.Weekday())), true
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1), true
	case 'U':
		return pad((t.YearDay()+6-int(t.Weekday()))/7, 2, '0'), true
	case 'W':
		return pad((t.YearDay()+6-(int(t.Weekday())+6)%7)/7, 2, '0'), true
	case 'V':
		return pad(isoWeek, 2, '0'), true
	case 'G':
		return pad(isoYear, 0, '0'), true
	case 'g':
		return pad(isoYear%100, 2, '0'), true
	case 'B':
		return word(t.Month().String()), true
	case 'b', 'h':
		return word(t.Month().String()[:3]), true
	case 'A':
		return word(t.Weekday().String()), true
	case 'a':
		return word(t.Weekday().String()[:3]), true
	case 'p':
		return t.Format("PM"), true
	case 'P':
		return t.Format("pm"), true
	case 'z', 'Z':
		return "", true // datetime.now() knows no zone
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case '%':
		return "%", true
	}
	if compound, ok := map[byte]string{
		'c': "%a %b %e %H:%M:%S %Y", 'x': "%m/%d/%y", 'D': "%m/%d/%y", 'F': "%Y-%m-%d",
		'X': "%H:%M:%S", 'T': "%H:%M:%S", 'R': "%H:%M", 'r': "%I:%M:%S %p",
	}[c]; ok {
		return strftime(t, compound), true
	}
	return "", false
}
