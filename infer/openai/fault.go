package openai

import (
	"context"
	"errors"
	"fmt"

	"graft/infer"
)

// Fault is an answer that is not a completion: a status and the OpenAI error object.
type Fault struct {
	Status  int
	Type    string
	Param   string // the field that is to blame, "" for none
	Code    string // "" for none
	Message string

	foreign bool // Param is a word of the client's
}

func (f *Fault) Error() string { return f.Message }

// The error types of the OpenAI API.
const (
	invalidRequest = "invalid_request_error"
	authentication = "authentication_error"
	notFound       = "not_found_error"
	overloaded     = "rate_limit_error"
	serverError    = "server_error"
)

// codeShutdown tells those whom the end of the server turns away or cuts.
const codeShutdown = "shutting_down"

// errLeft: what was written to a client did not reach it.
var errLeft = errors.New("openai: the client takes no more")

// codeLeft says of a request that its client went away.
const codeLeft = "aborted"

// statusClosed is what logs and metrics call a request whose client went away; nobody reads it.
const statusClosed = 499

func invalid(param, format string, args ...any) *Fault {
	return &Fault{Status: 400, Type: invalidRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

func unknownModel(name string) *Fault {
	return &Fault{Status: 404, Type: notFound, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("The model %q does not exist. GET /v1/models lists those that do.", clip(name))}
}

func busy(format string, args ...any) *Fault {
	return &Fault{Status: 503, Type: overloaded, Code: "server_overloaded", Message: fmt.Sprintf(format, args...)}
}

func shuttingDown() *Fault {
	return &Fault{Status: 503, Type: serverError, Code: codeShutdown, Message: "the server is shutting down"}
}

// cause is why work under ctx ended with err: what ended ctx, if that was it. A client that leaves and
// a server that is halted look the same without it.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// reason is what the log says of a fault. Messages to clients quote what they sent, so only those about
// our own failures are told, and of the others the words that are ours.
func (f *Fault) reason() string {
	text := f.Type
	if f.Code != "" {
		text += " " + f.Code
	}
	switch {
	case f.Status == 500:
		text += ": " + f.Message
	case f.foreign:
		text += ": unknown field"
	case f.Param != "":
		text += ": " + f.Param
	}
	return text
}

// faultOf says how an error of the engine is told to the client.
func faultOf(err error) *Fault {
	var fault *Fault
	var refused *infer.RequestError
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.As(err, &refused):
		return invalid(refused.Param, "%s", refused.Message)
	case errors.Is(err, infer.ErrBusy):
		return busy("the queue is full; try again later")
	case errors.Is(err, infer.ErrClosed):
		return shuttingDown()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errLeft):
		return &Fault{Status: statusClosed, Type: serverError, Code: codeLeft, Message: "the request was aborted"}
	}
	return &Fault{Status: 500, Type: serverError, Message: err.Error()}
}

// errorBody is the JSON of a fault.
type errorBody struct {
	Error errorFields `json:"error"`
}

type errorFields struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (f *Fault) body() errorBody {
	return errorBody{Error: errorFields{Message: f.Message, Type: f.Type, Param: orNull(f.Param), Code: orNull(f.Code)}}
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// clip shortens what a client sent before it is quoted in a message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return s[:cut] + "…"
}
