package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"graft/cmd/internal/launch"
	"graft/infer"
	"graft/infer/openai"
	"graft/infer/paged"
	"graft/kernels/cpu"
	"graft/model"
	"graft/weights"
)

// house is everything that a server stands on, closed in the opposite order.
type house struct {
	source   *launch.Source
	backend  *cpu.Backend
	plan     launch.Plan
	budget   launch.Budget
	adapters []named
	options  infer.Options
	loaded   *launch.Loaded
	served   []openai.Adapter
	engine   *infer.Engine
}

func (h *house) close() {
	if h.engine != nil {
		h.engine.Close()
	}
	if h.loaded != nil {
		h.loaded.Close()
	}
	if h.backend != nil {
		h.backend.Close()
	}
	if h.source != nil {
		h.source.Files.Close()
	}
}

// serve plans, loads, listens, and serves until a signal comes.
func serve(ctx context.Context, f *flags, out, errs io.Writer, signals <-chan os.Signal) error {
	if err := f.free(); err != nil {
		return err
	}
	chat, err := f.template()
	if err != nil {
		return err
	}
	h := &house{}
	defer h.close()
	if err := h.open(f); err != nil {
		return err
	}
	for _, w := range h.source.Warnings {
		fmt.Fprintf(errs, "warning: %s\n", w)
	}
	if err := h.plan.Write(errs, h.budget); err != nil {
		return err
	}
	if err := h.plan.Fit(h.budget); err != nil {
		return err
	}
	if err := h.load(); err != nil {
		return err
	}
	server, err := openai.New(h.engine, openai.Options{
		Names: f.names(h.source, h.adapters), Root: h.source.Model, Adapters: h.served, ChatTemplate: chat,
		APIKeys: f.APIKey, AllowedOrigins: f.AllowedOrigins, LoadAdapters: f.AllowRuntimeLoraUpdating, AnyPrecision: f.Precision == "f32" || f.Precision == "int8",
		MaxBody: int(f.MaxBodySize), MaxConnections: f.MaxConnections, StallTimeout: f.StallTimeout,
		Log: errs, LogRequests: f.LogRequests,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.address())
	if err != nil {
		return errors.Join(err, server.Shutdown(ctx))
	}
	h.announce(f, server, listener.Addr(), out, errs)
	return f.runUntil(ctx, server, listener, errs, signals)
}

// free finds out before the model is loaded whether the address can be had.
func (f *flags) free() error {
	listener, err := net.Listen("tcp", f.address())
	if err != nil {
		return fmt.Errorf("%w; choose another with --host and --port", err)
	}
	return listener.Close()
}

// open describes the model and its adapters and plans their memory: nothing large is allocated yet.
func (h *house) open(f *flags) (err error) {
	h.budget = launch.BudgetOf(f.MemoryLimit)
	opt := model.Options{}
	if f.MaxModelLen > 8192 {
		opt.Context = f.MaxModelLen
	}
	request := launch.Request{Model: f.Model, Runs: f.Runs, Precision: f.Precision, Use: launch.Answering, Options: opt}
	if len(f.Adapter) > 0 {
		request.Adapter = launch.NoAdapter
	}
	if h.source, err = launch.Open(request); err != nil {
		return asUsage(err)
	}
	if h.source.Files.Tokenizer == nil {
		return fmt.Errorf("%s holds no tokenizer, and requests speak in text", h.source.Model)
	}
	if h.adapters, err = f.adapters(h.source); err != nil {
		return err
	}
	if len(f.Adapter) > 0 {
		var paths []string
		for _, a := range h.adapters {
			paths = append(paths, a.path)
		}
		if err := h.source.Settle(f.Precision, launch.Answering, paths...); err != nil {
			return asUsage(err)
		}
	}
	h.options = f.engine(0)
	h.backend = launch.NewBackend(h.options.Threads)
	if err := h.plan.AddWeights(h.source, h.backend, opt); err != nil {
		return err
	}
	return h.planRest(f)
}

// asUsage tells a --precision that cannot be had from what failed.
func asUsage(err error) error {
	if refused := (*launch.PrecisionError)(nil); errors.As(err, &refused) {
		return errUsage{err}
	}
	return err
}

// What a request under way keeps in Go's heap: connection, text and JSON; and for each token that it
// may have its ids, log-probs and text.
const requestBytes, requestToken = 64 << 10, 64

// planRest adds adapters, pages and the engine to the plan.
func (h *house) planRest(f *flags) error {
	config, rank := &h.source.Files.Config, 0
	for i := range h.adapters {
		a := &h.adapters[i]
		var err error
		if a.shape, err = launch.AdapterFileShape(a.path, h.backend); err != nil {
			return err
		}
		h.plan.Add("adapter "+a.name, a.shape.Params, fmt.Sprintf("%d pairs, %s", a.shape.Pairs, a.path), "serve fewer adapters")
		rank = max(rank, a.shape.Cols)
	}
	if f.AllowRuntimeLoraUpdating {
		shape, err := launch.AdapterShape(config, h.backend, weights.AdapterConfig{R: f.MaxLoraRank, TargetModules: []string{"all-linear"}})
		if err != nil {
			return err
		}
		h.plan.Add("adapters to come", int64(f.MaxLoras)*shape.Params, fmt.Sprintf("%d of rank %d", f.MaxLoras, f.MaxLoraRank), "lower --max-loras or --max-lora-rank")
		rank = max(rank, shape.Cols)
	}
	length, err := f.length(config)
	if err != nil {
		return err
	}
	h.options.MaxModelLen, h.options.RankCols, h.options.Pages = length, rank, 1
	size := model.PageBytes(config)
	engine := infer.PlanBytes(config, h.options, rank) - size
	h.plan.Add("engine", engine, fmt.Sprintf("%d rows a step, logits", h.options.MaxBatchedTokens), "lower --max-num-batched-tokens or --max-num-seqs")
	h.plan.AddProgram(h.source, h.backend.Threads(), launch.Held(), launch.Working{
		Bytes: int64(f.MaxNumSeqs) * (requestBytes + int64(length)*requestToken), What: fmt.Sprintf("%d requests", f.MaxNumSeqs), Less: "lower --max-num-seqs"})
	left := int64(0)
	if h.budget.Bytes > 0 {
		left = max(1, h.budget.Bytes-h.plan.Needed())
	}
	if h.options.Pages, err = f.pages(length, size, left); err != nil {
		return err
	}
	h.plan.Add("pages", int64(h.options.Pages)*size, fmt.Sprintf("keys and values of %d tokens", h.options.Pages*paged.PageSize), "lower --kv-cache-memory or --max-model-len")
	return nil
}

// load reads the model and its adapters and starts the engine, within the plan.
func (h *house) load() (err error) {
	base := *h.source
	base.Adapter = "" // adapters are served beside the base, each under its name
	if h.loaded, err = base.Load(h.backend, h.plan.Arena(), false); err != nil {
		return err
	}
	for i, a := range h.adapters {
		ad, err := h.loaded.Model.LoadAdapter(a.path, uint64(launch.AdapterID+i), false)
		if err != nil {
			return err
		}
		h.served = append(h.served, openai.Adapter{Name: a.name, Path: a.path, Adapter: ad})
	}
	h.engine, err = infer.New(h.loaded.Model, h.source.Files.Tokenizer, h.options)
	return err
}

// announce says what is served and where.
func (h *house) announce(f *flags, server *openai.Server, at net.Addr, out, errs io.Writer) {
	fmt.Fprintf(errs, "serving %s on http://%s/v1 (%s, precision %s)\n", strings.Join(server.Models(), ", "), at, h.backend.Name(), h.loaded.Model.Precision)
	if len(f.APIKey) == 0 && !f.local() {
		fmt.Fprintf(errs, "warning: everybody who can reach %s can use this server; set GRAFT_API_KEY\n", f.Host)
	}
	fmt.Fprintf(out, "http://%s/v1\n", at)
}

// runUntil serves until a signal or a failure, then lets the requests under way end.
func (f *flags) runUntil(ctx context.Context, server *openai.Server, listener net.Listener, errs io.Writer, signals <-chan os.Signal) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	var cause error
	select {
	case cause = <-failed:
	case s := <-signals:
		fmt.Fprintf(errs, "%s: requests under way may end within %s; the same signal again ends them now\n", s, f.DrainTimeout)
	}
	drain, cancel := context.WithTimeout(ctx, f.DrainTimeout)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-signals:
			cancel()
		case <-stop:
		}
	}()
	return errors.Join(cause, server.Shutdown(drain))
}
