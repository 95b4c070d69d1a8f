// Package openai answers HTTP in the words of the OpenAI API over an infer.Engine: models,
// completions, chat completions with server-sent events, and vLLM's tokenizer, adapter, health and
// metrics endpoints.
//
// It may not know weights, kernels or schedules: the engine computes, this room reads requests
// strictly (a field that would change the result and is not supported is an error that names it),
// renders chat templates, frames answers, and cancels what nobody waits for any more, be it queued,
// in its prompt, or under way.
//
// A Server owns its connections, the adapters it serves and the goroutine that watches for clients
// that leave. The engine stays the caller's.
package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"graft/infer"
	"graft/model/template"
	"graft/model/tokenizer"
)

// Options say what a Server serves and to whom. The zero value serves the engine's model under its
// own name to everybody who can connect.
type Options struct {
	Names        []string  // what requests may call the base model; nil: the name in its file
	Root         string    // where the base was read from, for /v1/models
	Adapters     []Adapter // served from the start; the server frees them
	ChatTemplate string    // instead of the tokenizer's

	APIKeys        []string // nil: no key is asked for
	AllowedOrigins []string // of web pages that may read answers; "*" for all
	AnyPrecision   bool     // adapters may have been trained under another precision contract than the model's
	LoadAdapters   bool     // answer /v1/load_lora_adapter and /v1/unload_lora_adapter

	MaxBody        int           // bytes of a request; 0: 8 MiB
	MaxConnections int           // at once; 0: 1024
	StallTimeout   time.Duration // for a client to take what is written to it, or to send its request; 0: 2 minutes

	Log         io.Writer // failures, never keys or texts; nil: nothing
	LogRequests bool      // and one line per request
}

const (
	defaultMaxBody        = 8 << 20
	defaultMaxConnections = 1024
	defaultStallTimeout   = 2 * time.Minute
	maxHeaderBytes        = 16 << 10
	heavyBody             = 256 << 10 // a larger body waits for a place before it is read
	maxHeavy              = 2         // since what is read from it takes many times its size
)

// Server answers requests. New makes it, Serve runs it, Shutdown ends it.
type Server struct {
	engine   *infer.Engine
	tok      *tokenizer.Tokenizer
	vocab    int
	longest  int                // bytes of a token
	template *template.Template // nil: the model has none
	source   string             // of the template
	form     callForm           // of calls, as the template has it
	hidden   map[int32]string   // markers of that form that text does not show
	opt      Options
	models   *models
	routes   []route
	http     *fasthttp.Server
	watcher  *watcher
	metrics  metrics
	log      *log.Logger

	base  context.Context         // ends every request
	halt  context.CancelCauseFunc // with what those who are cut are told
	grace time.Duration           // see lastWords
	gate  gate                    // requests and streams under way
	heavy chan struct{}           // places for reading large bodies
}

// New makes a server on an engine with a tokenizer.
func New(e *infer.Engine, opt Options) (*Server, error) {
	s := &Server{engine: e, tok: e.Tokenizer(), vocab: e.Model().Config.Vocab, opt: opt.withDefaults(e)}
	if s.tok == nil {
		return nil, errors.New("openai: the model has no tokenizer, and requests speak in text; use a model file that holds one")
	}
	s.longest = longestToken(s.tok)
	s.heavy, s.grace = make(chan struct{}, maxHeavy), lastWords
	s.source = opt.ChatTemplate
	if s.source == "" {
		s.source = s.tok.ChatTemplate()
	}
	if s.source != "" {
		var err error
		if s.template, err = template.Parse(s.source); err != nil {
			return nil, fmt.Errorf("openai: the chat template: %w", err)
		}
	}
	s.form = formOf(s.source)
	s.hidden = s.form.hiddenMarkers(s.tok)
	var err error
	if s.models, err = newModels(e, &s.opt); err != nil {
		return nil, fmt.Errorf("openai: %w", err)
	}
	out := s.opt.Log
	if out == nil {
		out = io.Discard
	}
	s.log = log.New(out, "", log.LstdFlags)
	s.base, s.halt = context.WithCancelCause(context.Background())
	s.metrics.init(e.Options().MaxModelLen)
	s.routes = s.table()
	s.watcher = newWatcher()
	s.http = s.transport()
	return s, nil
}

func (o Options) withDefaults(e *infer.Engine) Options {
	if len(o.Names) == 0 {
		name := e.Model().Config.Name
		if name == "" {
			name = e.Model().Config.Family
		}
		o.Names = []string{name}
	}
	if o.MaxBody <= 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.MaxConnections <= 0 {
		o.MaxConnections = defaultMaxConnections
	}
	if o.StallTimeout <= 0 {
		o.StallTimeout = defaultStallTimeout
	}
	return o
}

// transport bounds what a connection may do before a handler sees it.
func (s *Server) transport() *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.handleBroken,
		HeaderReceived:               s.admit,
		Name:                         "graft",
		Concurrency:                  s.opt.MaxConnections,
		ReadBufferSize:               maxHeaderBytes,
		MaxRequestBodySize:           s.opt.MaxBody,
		ReadTimeout:                  s.opt.StallTimeout,
		IdleTimeout:                  s.opt.StallTimeout / 2,
		DisablePreParseMultipartForm: true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
		SecureErrorLogMessage:        true,
		Logger:                       &transportLog{s},
	}
}

// Models lists the names that requests may ask for.
func (s *Server) Models() []string {
	var names []string
	for _, c := range s.models.cards() {
		names = append(names, c.ID)
	}
	return names
}

// Serve answers the connections of a listener until Shutdown.
func (s *Server) Serve(ln net.Listener) error { return s.http.Serve(ln) }
