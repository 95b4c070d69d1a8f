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
	return &Fault{Status: 503, Type: serverError, Code: "shutting_down", Message: "the server is shutting down"}
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
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Fault{Status: statusClosed, Type: serverError, Code: "aborted", Message: "the request was aborted"}
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
