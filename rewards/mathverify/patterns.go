package mathverify

import (
	"regexp"
	"strings"
)

// Verifier holds the compiled patterns. It is immutable: any number of goroutines may use one.
type Verifier struct {
	marker      *regexp.Regexp
	numeral     *regexp.Regexp
	unitPlain   *regexp.Regexp
	unitLaTeX   *regexp.Regexp
	unitShort   *regexp.Regexp
	anchor      *regexp.Regexp
	plainNumber *regexp.Regexp
	comma       *regexp.Regexp
	textCommand *regexp.Regexp
	words       *regexp.Regexp
	fraction    *regexp.Regexp
	spacing     *strings.Replacer // what only spaces out a formula
	signs       *strings.Replacer // Unicode and commands with a plainer form
	units       map[string]string // spellings to short names
}

// New compiles the patterns.
func New() *Verifier {
	return &Verifier{
		marker:      regexp.MustCompile(`(?i)\banswer(?:\s+is\s*:?|\*{0,2}\s*:|\s*=)\*{0,2}`),
		numeral:     regexp.MustCompile(`(?:^|[^\w.,])([-−]?\$?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3}\b)?(?:\s*/\s*\d+)?\s?(?:\\?%)?)`),
		unitPlain:   regexp.MustCompile(`^(.*[\d})!\]])\s*([A-Za-z]{2,}[A-Za-z/. ]*(?:\^?\{?[23]?\}?)?)$`),
		unitLaTeX:   regexp.MustCompile(`^(.*[\d})!\]])\s*(?:\\[,;:! ]|~|\\quad)*\s*\\(?:text|mathrm|mbox|textrm|textbf|operatorname)\s*\{([^{}]*)\}(?:\^\{?[23]\}?)?$`),
		unitShort:   regexp.MustCompile(`^(-?[\d.,]+)\s+([A-Za-z])$`),
		anchor:      regexp.MustCompile(`(?i)answer(?:\s+is|:)\s*:?\s*`),
		plainNumber: regexp.MustCompile(`(?:^|[\s=]|(?:^|[^\\])\$)(-?(?:\d{1,3}(?:[ ,]\d{3})+(?:\.\d+)?|\d+[.,]\d+|\d*\.\d+|\d+)(?:\s*/\s*\d+|\^\d+)?%?)`),
		comma:       regexp.MustCompile(`^(-?\d+),(\d{1,2}|\d{4,})$`),
		textCommand: regexp.MustCompile(`^\\(?:text|mathrm|textbf|mathbf|mbox|textrm)\s*\{(.*)\}$`),
		words:       regexp.MustCompile(`^\pL[\pL '’-]*$`),
		fraction:    regexp.MustCompile(`-?\\[dt]?frac\{-?\d+\}\{-?\d+\}`),
		spacing:     strings.NewReplacer("\\,", "", "\\!", "", "\\;", "", "\\left", "", "\\right", "", "$", ""),
		signs: strings.NewReplacer(
			"−", "-", "–", "-", "×", "*", "·", "*", "⋅", "*", "÷", "/", "√", `\sqrt `, "π", `\pi `, "∞", `\infty `,
			"≤", `\le `, "≥", `\ge `, "≠", `\ne `, "∪", `\cup `, "∈", `\in `, "±", `\pm `, "°", "",
			"²", "^2", "³", "^3", "½", `\frac{1}{2}`, "¼", `\frac{1}{4}`, "¾", `\frac{3}{4}`, "\u00a0", " ", "\u202f", " ",
			`\left`, "", `\right`, "", `\dfrac`, `\frac`, `\tfrac`, `\frac`, `\cfrac`, `\frac`,
			`\displaystyle`, "", `^{\circ}`, "", `^\circ`, "", `\degree`, "", `\$`, "", "$", "", "{,}", "\x01", `\!`, "", `\,`, " ",
			`\;`, " ", `\:`, " ", `\ `, " ", "~", " ", `\quad`, " ", `\%`, "%", `\lbrace`, `\{`, `\rbrace`, `\}`,
			`\bigl`, "", `\bigr`, "", `\big`, "", `\Big`, "",
		),
		units: map[string]string{
			"centimeter": "cm", "centimetre": "cm", "centimeters": "cm", "centimetres": "cm",
			"meter": "m", "metre": "m", "meters": "m", "metres": "m",
			"kilometer": "km", "kilometre": "km", "kilometers": "km", "kilometres": "km",
			"millimeter": "mm", "millimetre": "mm", "millimeters": "mm", "millimetres": "mm",
			"gram": "g", "grams": "g", "kilogram": "kg", "kilograms": "kg", "kilos": "kg",
			"second": "s", "seconds": "s", "sec": "s", "minute": "min", "minutes": "min", "mins": "min",
			"hour": "h", "hours": "h", "hr": "h", "hrs": "h", "inch": "in", "inches": "in",
			"foot": "ft", "feet": "ft", "pound": "lb", "pounds": "lb", "lbs": "lb",
			"liter": "l", "litre": "l", "liters": "l", "litres": "l", "usd": "dollar", "degrees": "degree", "deg": "degree",
		},
	}
}
