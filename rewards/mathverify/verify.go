// Package mathverify decides whether the final answer in a text equals a gold answer as
// mathematics.
//
// [Verifier.Judge] is the policy of this project. The final answer is, in this order: what stands in the
// last \boxed{} or \fbox{}; what follows the last ####; the last <answer> element; what
// follows the last "answer is" or "answer:"; the whole text if it is one expression, number
// with a unit, or word; the last formula in $ $, $$ $$, \( \) or \[ \]; the last number. Text
// up to the last </think> is left out, and a <think> that never closes leaves no answer. The
// first of these that occurs decides: an answer cannot be hidden among several.
//
// Equal are: numbers of the same exact value, however written (42.0, 1,000, 1e3, 3 1/2,
// 6.02\times10^{23}, ½ as 1/2, a decimal comma); a decimal and an irrational or
// unending value that agree when rounded to six places; p% with p and with p/100; expressions that
// agree at sample points (x^2+2x+1 and (x+1)^2); x=5 with 5; equations that are multiples of
// each other; inequalities and the intervals they describe; sets in any order; tuples,
// intervals, unions, matrices by part; words and choice letters regardless of case, "(B)"
// with "B". A unit after a number is ignored unless both sides have different ones. \log
// without a base is the natural logarithm.
//
// [Verifier.Reference] reproduces the verdicts of the math-verify library with its default settings,
// which wants LaTeX in $ $ or \boxed{} and reads only numbers from plain text.
// [Verifier.Anchored] is TRL's accuracy_reward.
//
// The package knows texts only. Inputs are bounded: of a text its last 64 KiB are
// looked at; an expression of more than 4096 bytes,
// nested deeper than 60, or with numbers of thousands of digits is not parsed. It keeps no state.
package mathverify

import "strings"

// Judge reports whether the final answer in completion equals gold. lastNumber allows the
// last number of a text to count as its answer. ok is false if gold is empty.
func (v *Verifier) Judge(gold, completion string, lastNumber bool) (right, ok bool) {
	if strings.TrimSpace(gold) == "" {
		return false, false
	}
	want, found := v.extract(gold, true)
	if !found {
		want = strings.TrimSpace(gold)
	}
	got, found := v.extract(completion, lastNumber)
	if !found {
		return false, true
	}
	return v.same(want, got), true
}

// Equal reports whether two answers, each an expression or a word with nothing around it,
// are the same under the rules of Judge.
func (v *Verifier) Equal(a, b string) bool { return v.same(a, b) }

// same compares two extracted answers in every reading they have.
func (v *Verifier) same(want, got string) bool {
	if word, ok := v.wordOf(want); ok {
		if other, ok := v.wordOf(got); ok && word == other {
			return true
		}
	}
	if v.squeeze(want) == v.squeeze(got) {
		return true
	}
	for _, a := range v.readings(want) {
		for _, b := range v.readings(got) {
			if a.unit != "" && b.unit != "" && v.unitName(a.unit) != v.unitName(b.unit) {
				continue
			}
			if compare(a.root, b.root, false) {
				return true
			}
		}
	}
	return false
}

// squeeze drops what only spaces out a formula. Words stay apart: "4 2" is not 42.
func (v *Verifier) squeeze(text string) string {
	return strings.Join(strings.Fields(v.spacing.Replace(text)), " ")
}

// Reference reports what math-verify's verify(parse(gold), parse(answer)) does.
func (v *Verifier) Reference(gold, answer string) bool {
	want, ok := v.referenceParse(gold)
	if !ok {
		return false
	}
	got, ok := v.referenceParse(answer)
	return ok && compare(want, got, true)
}

// Anchored is TRL's accuracy_reward: the answer must stand in \boxed{} or in a formula after
// "answer is", \frac and \sqrt need braces, and different boxed answers are one set. ok is
// false if gold cannot be parsed: the sample is then skipped.
func (v *Verifier) Anchored(gold, completion string) (right, ok bool) {
	want, ok := v.referenceParse(gold)
	if !ok {
		return false, false
	}
	completion = ending(completion)
	got, found := v.boxedValue(completion, true)
	if !found {
		formula, anchored := v.anchoredFormula(completion)
		if !anchored {
			return false, true
		}
		if got, found = v.parseUnits(formula, true); !found {
			return false, true
		}
	}
	return got != nil && compare(want, got, true), true
}
