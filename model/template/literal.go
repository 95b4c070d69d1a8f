package template

import (
	"math/big"
	"strconv"
	"strings"
)

func (l *lexer) number(rest string) (token, error) {
	line := l.line
	if n := scanFloat(rest); n > 0 && (l.pos == 0 || l.src[l.pos-1] != '.') {
		f, err := strconv.ParseFloat(strings.ReplaceAll(rest[:n], "_", ""), 64)
		if err != nil && !isRange(err) {
			return token{}, l.fail("malformed number %s", rest[:n])
		}
		l.advance(n)
		return token{kind: tokNumber, line: line, value: f}, nil
	}
	n := scanInteger(rest)
	digits := rest[:n]
	if digits[0] == '0' && len(digits) > 1 && strings.Trim(digits, "0_") == "" {
		digits = "0"
	}
	if len(digits) > 4300 { // Python's own bound on converting digits
		return token{}, l.fail("a number of %d digits; at most 4300 are accepted", len(digits))
	}
	i, ok := new(big.Int).SetString(digits, 0)
	if !ok {
		return token{}, l.fail("malformed number %s", digits)
	}
	l.advance(n)
	return token{kind: tokNumber, line: line, value: normInt(i)}, nil
}

func isRange(err error) bool {
	e, ok := err.(*strconv.NumError)
	return ok && e.Err == strconv.ErrRange
}

// scanDigits returns the end of (_?digit)* that starts at s[i], where valid
// says which bytes are digits.
func scanDigits(s string, i int, valid string) int {
	for i < len(s) {
		j := i
		if s[j] == '_' {
			j++
		}
		if j >= len(s) || strings.IndexByte(valid, s[j]) < 0 {
			return i
		}
		i = j + 1
	}
	return i
}

const decimals = "0123456789"

// scanFloat returns the length of the float literal at the start of s, 0 when
// there is none. s starts with a digit.
func scanFloat(s string) int {
	i := scanDigits(s, 0, decimals)
	isFloat := false
	if i+1 < len(s) && s[i] == '.' && s[i+1] >= '0' && s[i+1] <= '9' {
		i = scanDigits(s, i+1, decimals)
		isFloat = true
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		j := i + 1
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		if j < len(s) && s[j] >= '0' && s[j] <= '9' {
			return scanDigits(s, j, decimals)
		}
	}
	if isFloat {
		return i
	}
	return 0
}

func scanInteger(s string) int {
	if s[0] != '0' {
		return scanDigits(s, 0, decimals)
	}
	if len(s) > 1 {
		valid := ""
		switch s[1] {
		case 'b', 'B':
			valid = "01"
		case 'o', 'O':
			valid = "01234567"
		case 'x', 'X':
			valid = "0123456789abcdefABCDEF"
		}
		if valid != "" {
			if n := scanDigits(s, 2, valid); n > 2 {
				return n
			}
		}
	}
	return scanDigits(s, 0, "0")
}
