package openai

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"graft/infer"
)

// route is one endpoint.
type route struct {
	method string
	path   string
	open   bool // answers without a key
	answer func(*call)
}

// table lists what the server answers.
func (s *Server) table() []route {
	routes := []route{
		{"GET", "/health", true, s.health},
		{"GET", "/ping", true, s.health},
		{"GET", "/version", true, s.version},
		{"GET", "/metrics", false, s.writeMetrics},
		{"GET", "/v1/models", false, s.listModels},
		{"POST", "/v1/completions", false, s.completions},
		{"POST", "/v1/chat/completions", false, s.chatCompletions},
		{"POST", "/tokenize", false, s.tokenize},
		{"POST", "/v1/tokenize", false, s.tokenize},
		{"POST", "/detokenize", false, s.detokenize},
		{"POST", "/v1/detokenize", false, s.detokenize},
		{"GET", "/tokenizer_info", false, s.tokenizerInfo},
	}
	if s.opt.LoadAdapters {
		routes = append(routes, route{"POST", "/v1/load_lora_adapter", false, s.loadAdapter},
			route{"POST", "/v1/unload_lora_adapter", false, s.unloadAdapter})
	}
	return routes
}

// call is one request being answered.
type call struct {
	http  *fasthttp.RequestCtx
	conn  net.Conn
	id    string // of the request, for logs and the client
	path  string // of the route: the label in metrics
	began time.Time

	method string                     // one that HTTP knows, for the log
	reason string                     // of a failure, for the log: nothing of the request itself
	ends   map[infer.FinishReason]int // choices by how they ended

	streams bool // the answer is a stream, which ends after the handler
}

func newCall(ctx *fasthttp.RequestCtx, id, path, method string) *call {
	return &call{http: ctx, conn: ctx.Conn(), id: id, path: path, method: method, began: time.Now(), ends: map[infer.FinishReason]int{}}
}

// methodOf is the method of a request, unless it is a word of the client's own.
func methodOf(ctx *fasthttp.RequestCtx) string {
	method := string(ctx.Method())
	if slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}, method) {
		return method
	}
	return "OTHER"
}

// handle answers every request: one that panics included.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	c := newCall(ctx, requestID(ctx), "other", methodOf(ctx))
	if !s.gate.enter(c) {
		c.fail(shuttingDown())
		s.finish(c)
		return
	}
	defer func() {
		if p := recover(); p != nil {
			s.log.Printf("%s %s %s panic: %v\n%s", c.id, c.method, c.path, p, debug.Stack())
			c.fail(&Fault{Status: 500, Type: serverError, Message: "internal error; the server's log has it under request " + c.id})
		}
		s.finish(c)
		if !c.streams {
			s.gate.leave(c)
		}
	}()
	s.allowOrigin(c)
	if string(ctx.Method()) == "OPTIONS" {
		c.path = "preflight"
		ctx.SetStatusCode(fasthttp.StatusNoContent)
		return
	}
	r, fault := s.find(ctx)
	if fault == nil {
		c.path = r.path
		fault = s.check(c, r)
	}
	if fault != nil {
		c.fail(fault)
		return
	}
	r.answer(c)
}

// read reads the body of a request by f. Few large ones are read at a time.
func (s *Server) read(c *call, f func(*body)) *Fault {
	raw := c.http.PostBody()
	if len(raw) > heavyBody {
		s.heavy <- struct{}{}
		defer func() { <-s.heavy }()
	}
	b, fault := parseBody(raw)
	if fault != nil {
		return fault
	}
	f(b)
	return b.done()
}

// finish sets what every answer has. A slow client may not hold a worker for ever.
func (s *Server) finish(c *call) {
	c.http.Response.Header.Set("X-Request-Id", c.id)
	s.allow(c)
	if !c.streams {
		s.done(c, c.http.Response.StatusCode())
	}
}

// done counts and logs an answer that is complete.
func (s *Server) done(c *call, status int) {
	took := time.Since(c.began)
	s.metrics.answered(c.path, status, took)
	if s.opt.LogRequests || status >= 500 && status != 503 {
		s.log.Print(c.line(status, took))
	}
}

// line is what the log says of an answer: request id, method, path, status, time; how its choices
// ended; why it failed.
func (c *call) line(status int, took time.Duration) string {
	line := fmt.Sprintf("%s %s %s %d %s", c.id, c.method, c.path, status, took.Round(time.Millisecond))
	sep := " finish="
	for _, why := range slices.Sorted(maps.Keys(c.ends)) {
		line += sep + string(why)
		if n := c.ends[why]; n > 1 {
			line += "*" + strconv.Itoa(n)
		}
		sep = ","
	}
	if c.reason != "" {
		line += fmt.Sprintf(" reason=%q", c.reason)
	}
	return line
}

func (s *Server) find(ctx *fasthttp.RequestCtx) (*route, *Fault) {
	path, method := string(ctx.Path()), string(ctx.Method())
	if method == "HEAD" {
		method = "GET"
	}
	if name, ok := strings.CutPrefix(path, "/v1/models/"); ok && method == "GET" {
		return &route{"GET", "/v1/models/{model}", false, func(c *call) { s.getModel(c, name) }}, nil
	}
	var allowed []string
	for i := range s.routes {
		if s.routes[i].path != path {
			continue
		}
		if s.routes[i].method == method {
			return &s.routes[i], nil
		}
		allowed = append(allowed, s.routes[i].method)
	}
	if allowed != nil {
		ctx.Response.Header.Set("Allow", strings.Join(allowed, ", "))
		return nil, &Fault{Status: 405, Type: invalidRequest, Message: clip(method) + " is not allowed here; use " + strings.Join(allowed, ", ")}
	}
	return nil, &Fault{Status: 404, Type: notFound, Message: "there is no " + clip(path) + " here"}
}

// check refuses a request before its body is looked at.
func (s *Server) check(c *call, r *route) *Fault {
	if !r.open && !s.authorized(&c.http.Request.Header) {
		return unauthorized()
	}
	if r.method != "POST" {
		return nil
	}
	kind, _, _ := strings.Cut(string(c.http.Request.Header.ContentType()), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		// A web page can send other types to any address without asking first.
		return &Fault{Status: 415, Type: invalidRequest, Message: "send the header Content-Type: application/json"}
	}
	if encoding := c.http.Request.Header.ContentEncoding(); len(encoding) > 0 && string(encoding) != "identity" {
		return &Fault{Status: 415, Type: invalidRequest, Message: "compressed request bodies are not read"}
	}
	return nil
}

func unauthorized() *Fault {
	return &Fault{Status: 401, Type: authentication, Code: "invalid_api_key", Message: "give a valid API key: Authorization: Bearer KEY"}
}

// authorized compares the key in constant time: with every key, by hash, whatever the lengths.
func (s *Server) authorized(h *fasthttp.RequestHeader) bool {
	if len(s.opt.APIKeys) == 0 {
		return true
	}
	given := h.Peek("Authorization")
	if len(given) > 7 && strings.EqualFold(string(given[:7]), "Bearer ") {
		given = given[7:]
	} else {
		given = nil
	}
	hash, ok := sha256.Sum256(given), 0
	for _, key := range s.opt.APIKeys {
		want := sha256.Sum256([]byte(key))
		ok |= subtle.ConstantTimeCompare(hash[:], want[:])
	}
	return ok == 1
}

// admit keeps those without a key from making the server read large bodies.
func (s *Server) admit(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if !s.authorized(h) {
		return fasthttp.RequestConfig{MaxRequestBodySize: 1}
	}
	return fasthttp.RequestConfig{}
}

// handleBroken answers what could not be read as a request.
func (s *Server) handleBroken(ctx *fasthttp.RequestCtx, err error) {
	c := newCall(ctx, newID(), "unreadable", "-")
	var small *fasthttp.ErrSmallBuffer
	var network net.Error
	fault := &Fault{Status: 400, Type: invalidRequest, Code: "not_http", Message: "the request is not valid HTTP"}
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge) && !s.authorized(&ctx.Request.Header):
		fault = unauthorized()
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		fault.Status, fault.Code, fault.Message = 413, "body_too_large", "the request body is too large"
	case errors.As(err, &small):
		fault.Status, fault.Code, fault.Message = 431, "header_too_large", "the request header is too large"
	case errors.As(err, &network) && network.Timeout():
		fault.Status, fault.Code, fault.Message = 408, "request_timeout", "the request did not arrive in time"
	}
	c.fail(fault)
	ctx.SetConnectionClose()
	s.finish(c)
}

// allowOrigin lets the web pages that the operator named read answers.
func (s *Server) allowOrigin(c *call) {
	origin := string(c.http.Request.Header.Peek("Origin"))
	if origin == "" || !slices.Contains(s.opt.AllowedOrigins, origin) && !slices.Contains(s.opt.AllowedOrigins, "*") {
		return
	}
	h := &c.http.Response.Header
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
	if string(c.http.Method()) == "OPTIONS" {
		h.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id")
		h.Set("Access-Control-Max-Age", "600")
	}
}

// requestID takes the client's X-Request-Id if it is harmless.
func requestID(ctx *fasthttp.RequestCtx) string {
	id := string(ctx.Request.Header.Peek("X-Request-Id"))
	if isIdentifier(id) {
		return id
	}
	return newID()
}

// fail answers with a fault.
func (c *call) fail(f *Fault) {
	c.reason = f.reason()
	if f.Status == 503 {
		c.http.Response.Header.Set("Retry-After", "1")
	}
	if f.Status == 401 {
		c.http.Response.Header.Set("WWW-Authenticate", "Bearer")
	}
	if f.Status == statusClosed {
		c.http.SetConnectionClose()
	}
	c.send(f.Status, f.body())
}

// send answers with JSON.
func (c *call) send(status int, v any) {
	raw, err := encodeJSON(v)
	if err != nil {
		panic("openai: an answer that is not JSON: " + err.Error()) // all shapes are ours
	}
	c.http.SetStatusCode(status)
	c.http.SetContentType("application/json")
	c.http.SetBody(raw)
}

// watch returns a context that ends when the client leaves or the server is halted. The caller calls
// release when the answer is complete.
func (s *Server) watch(c *call) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(s.base)
	forget := s.watcher.watch(c.conn, cancel)
	return ctx, func() {
		forget()
		cancel()
	}
}
