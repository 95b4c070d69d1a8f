package mathverify

import (
	"math/big"
	"strings"
)

// numeral reads a number. Groups of three digits may be separated by a comma outside of
// brackets, by {,} or by a space.
func (p *parser) numeral() (*node, error) {
	var digits strings.Builder
	start := p.at
	for p.at < len(p.text) && digit(p.text[p.at]) {
		digits.WriteByte(p.text[p.at])
		p.at++
	}
	if lead := p.at - start; lead >= 1 && lead <= 3 {
		for p.groupFollows() {
			digits.WriteString(p.text[p.at+1 : p.at+4])
			p.at += 4
		}
	}
	decimal := false
	if p.at < len(p.text) && p.text[p.at] == '.' && (digits.Len() > 0 || p.at+1 < len(p.text) && digit(p.text[p.at+1])) {
		p.at++
		from := p.at
		digits.WriteByte('.')
		for p.at < len(p.text) && digit(p.text[p.at]) {
			digits.WriteByte(p.text[p.at])
			p.at++
		}
		decimal = p.at > from
	}
	text := strings.TrimSuffix(digits.String(), ".")
	if exponent := p.exponent(); exponent != "" {
		text += exponent
	}
	if text == "" || len(text) > maxDigit {
		return nil, errSyntax
	}
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, errSyntax
	}
	return &node{op: opNumber, value: value, decimal: decimal}, nil
}

// groupFollows reports whether a separator and exactly three digits come next.
func (p *parser) groupFollows() bool {
	rest := p.text[p.at:]
	if len(rest) < 4 || !digit(rest[1]) || !digit(rest[2]) || !digit(rest[3]) || len(rest) > 4 && digit(rest[4]) {
		return false
	}
	switch rest[0] {
	case '\x01', ' ':
		return true
	case ',':
		return p.nested == 0
	}
	return false
}

// exponent reads the e23 of 6.02e23, at most three digits.
func (p *parser) exponent() string {
	rest := p.text[p.at:]
	if rest == "" || rest[0] != 'e' && rest[0] != 'E' {
		return ""
	}
	end := 1
	if end < len(rest) && (rest[end] == '-' || rest[end] == '+') {
		end++
	}
	from := end
	for end < len(rest) && digit(rest[end]) {
		end++
	}
	if end == from || end-from > 3 || end < len(rest) && letter(rest[end]) {
		return ""
	}
	p.at += end
	return rest[:end]
}
