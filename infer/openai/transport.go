package openai

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// transportLog takes what fasthttp has to say. Its messages may quote what a client sent, and most are
// about connections whose request has been answered and logged already: they are counted by cause, for
// /metrics. What an operator can act on is told in the words of our log.
type transportLog struct{ server *Server }

// Printf implements fasthttp.Logger.
func (l *transportLog) Printf(format string, args ...any) {
	s := l.server
	switch {
	case strings.Contains(format, "concurrent connections are served"): // at most once a minute
		s.metrics.broke("limit")
		s.log.Printf("- connections: %d are open, no more are taken; raise the limit on connections if these are clients of yours", s.opt.MaxConnections)
		return
	case strings.Contains(format, "when accepting"):
		s.metrics.broke("accept")
		s.log.Printf("- connections: the system gives no more: %s", causeOf(args))
		return
	}
	s.metrics.broke(causeOf(args))
}

// causeOf names the kind of the error that a message ends with, and nothing of its text.
func causeOf(args []any) string {
	if len(args) == 0 {
		return "other"
	}
	err, _ := args[len(args)-1].(error)
	var network net.Error
	switch {
	case err == nil:
		return "other"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return "closed"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "files"
	case errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.As(err, &network):
		return "network"
	}
	return "request" // fasthttp's own errors: what was read is not HTTP, or too large
}
