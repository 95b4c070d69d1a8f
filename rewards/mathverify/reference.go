package mathverify

import "strings"

// referenceParse finds and reads an answer as math-verify's parse does by default: boxed
// answers, else the last formula, else the last number with plain text around it.
func (v *Verifier) referenceParse(text string) (*node, bool) {
	text = ending(text)
	if n, found := v.boxedValue(text, false); found {
		return n, n != nil
	}
	if formula, ok := v.anchoredFormula(text); ok {
		return v.parseUnits(formula, false)
	}
	if all := formulas(text); len(all) > 0 {
		return v.parseUnits(all[len(all)-1], false)
	}
	if fraction := v.bareFraction(text); fraction != "" {
		return v.parse(fraction, false)
	}
	return v.referenceNumber(text)
}

// boxedValue reads the \boxed{} of a text: the set of them if they differ. The node is nil
// if one cannot be read.
func (v *Verifier) boxedValue(text string, strict bool) (n *node, found bool) {
	var args []*node
	seen := map[string]bool{}
	for _, inner := range boxed(text) {
		if seen[inner] {
			continue
		}
		seen[inner] = true
		arg, ok := v.parseUnits(inner, strict)
		if !ok {
			return nil, true
		}
		args = append(args, arg)
	}
	if len(args) == 0 {
		return nil, false
	}
	return bare(args), true
}

// anchoredFormula is the formula behind the last "answer is".
func (v *Verifier) anchoredFormula(text string) (string, bool) {
	for all := v.anchor.FindAllStringIndex(text, -1); len(all) > 0; all = all[:len(all)-1] {
		rest := text[all[len(all)-1][1]:]
		for _, d := range delimiters() {
			if inner, ok := strings.CutPrefix(rest, d[0]); ok {
				if end := unescaped(inner, d[1]); end > 0 {
					return inner[:end], true
				}
			}
		}
	}
	return "", false
}

// parseUnits reads a formula and drops a unit behind it.
func (v *Verifier) parseUnits(formula string, strict bool) (*node, bool) {
	if n, ok := v.parse(strings.TrimRight(strings.TrimSpace(formula), "."), strict); ok {
		if n.op == opText {
			n.name = strings.ToLower(n.name)
		}
		if n.op != opProduct || n.args[1].op != opText {
			return n, true
		}
	}
	quantity, unit := v.splitUnit(strings.TrimSpace(formula))
	if unit == "" {
		return nil, false
	}
	return v.parse(quantity, strict)
}

// bareFraction is the last \frac{a}{b} of whole numbers outside of any delimiters.
func (v *Verifier) bareFraction(text string) string {
	all := v.fraction.FindAllString(text, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// referenceNumber is the last number in plain text that a space, "=", "$", ":" and a space, or
// the beginning stands before.
func (v *Verifier) referenceNumber(text string) (*node, bool) {
	all := v.plainNumber.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return nil, false
	}
	last := all[len(all)-1][1]
	if decimal, ok := v.decimalComma(last); ok {
		last = decimal
	}
	return v.parse(last, false)
}
