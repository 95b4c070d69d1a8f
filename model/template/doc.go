// Package template renders chat templates: the Jinja dialect that Hugging Face
// model folders carry in chat_template.jinja or tokenizer_config.json.
//
// The language is Jinja2 3.1 as an immutable sandbox with trim_blocks,
// lstrip_blocks and loop controls, plus the `generation` block and the
// raise_exception, strftime_now and tojson of the transformers library. Jinja2
// is the oracle: the same text, or an error where Jinja2 gives an error.
//
// What it may not know: tokenizers, models, HTTP. It opens no file and reads
// no environment; the only clock is Chat.Now. Templates come from strangers, so
// parsing bounds source size and nesting, and rendering bounds steps, depth,
// output and the bytes that one render may make.
//
// Not in the language, each a clear error: include, import, from, extends,
// block, autoescape, and the filters pprint, random, urlize, wordwrap,
// filesizeformat, striptags and xmlattr. lipsum is not defined.
//
// State: a Template is immutable after Parse and safe for concurrent renders.
// All state of a render lives in that render. Values handed in are never
// changed, and must not change while a render reads them.
package template

// Template is a parsed chat template. It is immutable; any number of
// goroutines may render it at once.
type Template struct {
	body  []stmt
	names []string // variable names by identifier number
	ids   map[string]int
}

// maxSource is the largest template accepted, in bytes. Published chat
// templates are below 32 KiB.
const maxSource = 1 << 20

// Parse reads a template. An error is an *Error of kind SyntaxError with the
// line and what is wrong there.
func Parse(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, &Error{Kind: SyntaxError, Line: 1,
			Message: sprintf("template is %d bytes long; at most %d are accepted", len(source), maxSource)}
	}
	return parse(source)
}

// Limits bound one render. A zero field takes its default.
type Limits struct {
	// Steps is the number of evaluation steps (default 5 million, about a
	// second). Work on long strings and lists counts in proportion.
	Steps int
	// Depth is how deep macros and recursive loops may call each other
	// (default 200).
	Depth int
	// Output is the length of the rendered text in bytes (default 64 MiB).
	Output int
	// StringSize is the length of one string made by the template in bytes
	// (default 8 MiB), and 1/16 of it the length of one list. All strings and
	// lists of a render together may take 64 times as much.
	StringSize int
}

func (l Limits) withDefaults() Limits {
	if l.Steps <= 0 {
		l.Steps = 5_000_000
	}
	if l.Depth <= 0 {
		l.Depth = 200
	}
	if l.Output <= 0 {
		l.Output = 64 << 20
	}
	if l.StringSize <= 0 {
		l.StringSize = 8 << 20
	}
	return l
}
