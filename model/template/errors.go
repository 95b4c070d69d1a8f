package template

import "fmt"

// Kind says what sort of failure an Error is. The names are those of the
// Python exceptions that Jinja2 raises in the same place.
type Kind string

// The kinds of failure.
const (
	SyntaxError    Kind = "TemplateSyntaxError"  // the template does not parse
	RuntimeError   Kind = "TemplateRuntimeError" // a construct that this language does not have
	UndefinedError Kind = "UndefinedError"       // an undefined value was used
	SecurityError  Kind = "SecurityError"        // the sandbox forbids it
	TypeError      Kind = "TypeError"            // an operation on values of the wrong type
	ValueError     Kind = "ValueError"           // a value out of range or malformed
	Raised         Kind = "TemplateError"        // the template called raise_exception
	LimitError     Kind = "LimitError"           // a bound of Limits was reached
)

// Error is what Parse and the renderers return. Message of a Raised error is
// the template's own text, meant for whoever wrote the messages.
type Error struct {
	Kind    Kind
	Line    int // line in the template, from 1; 0 when no line is to blame
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("chat template: %s: %s", e.Kind, e.Message)
	}
	return fmt.Sprintf("chat template line %d: %s: %s", e.Line, e.Kind, e.Message)
}

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func fail(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

func typeErrorf(format string, args ...any) error  { return fail(TypeError, format, args...) }
func valueErrorf(format string, args ...any) error { return fail(ValueError, format, args...) }
