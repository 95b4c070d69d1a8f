// Package infer samples from a model: continuous batching over paged keys and values, prefix cache,
// siblings that share a prompt, preemption, streams with stop strings, log-probs that equal the
// trainer's bit for bit. One loop in one goroutine owns the device, the queues and the step counter;
// training runs between two of its steps, see Engine.Exclusive.
//
// What a request samples is a function of its tokens, parameters and adapter version alone: never of
// batch-mates, chunks, cache hits, preemption or the order of requests.
//
// The package may not know HTTP, chat templates, losses or rewards. Pages are counted by
// infer/paged and lie in the model's arena; the engine owns the buffers that PlanBytes counts and
// the spare adapters of PrepareUpdate.
package infer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"graft/infer/paged"
	"graft/model"
	"graft/model/tokenizer"
	"graft/weights"
)

// Errors that callers branch on.
var (
	// ErrClosed: the engine is closed.
	ErrClosed = errors.New("infer: the engine is closed")
	// ErrBusy: as many sequences wait as Options.MaxWaiting allows; try again later.
	ErrBusy = errors.New("infer: the queue is full")
)

// Engine samples and scores. All methods but PrepareUpdate, Pool and Pages are for any goroutine.
type Engine struct {
	model *model.Model
	tok   *tokenizer.Tokenizer // nil: ids only
	opt   Options
	eos   []int32

	// Owned by the loop, or by whoever Exclusive let in.
	pages    *model.Pages
	pool     *paged.Pool
	sched    *paged.Scheduler
	acts     *model.Acts
	head     *model.HeadActs
	sampler  sampler
	buffer   model.BatchBuffer
	batch    model.Batch
	adapters []*weights.Adapter // of the plan
	requests map[*request]struct{}
	pins     pins
	totals   Stats

	mu     sync.Mutex
	mail   mail
	closed bool
	stats  Stats
	gone   map[*weights.Adapter]struct{} // retired, still in use
	wake   chan struct{}
	done   chan struct{} // closed when the loop has ended
}

// mail is what other goroutines leave for the loop.
type mail struct {
	add    []*request
	cancel []*request
	turns  []*turn
}

func (m *mail) empty() bool { return len(m.add)+len(m.cancel)+len(m.turns) == 0 }

// turn is a wish to have the device.
type turn struct {
	granted chan struct{}
	over    chan struct{}
}

// New makes an engine on a loaded model and starts its loop. tok may be nil: then events carry no
// text and stop strings are refused. What it takes from the model's arena is PlanBytes.
func New(m *model.Model, tok *tokenizer.Tokenizer, opt Options) (*Engine, error) {
	e, err := newEngine(m, tok, opt)
	if err != nil {
		return nil, err
	}
	go e.loop()
	return e, nil
}

func newEngine(m *model.Model, tok *tokenizer.Tokenizer, opt Options) (*Engine, error) {
	given := opt.MaxModelLen
	backend, ok := m.Backend().(interface{ Threads() int })
	if ok && opt.Threads == 0 {
		opt.Threads = backend.Threads()
	}
	opt = opt.withDefaults(&m.Config)
	if err := opt.check(&m.Config); err != nil {
		return nil, err
	}
	for _, r := range m.Ropes {
		if given > r.Table.Rows {
			return nil, fmt.Errorf("infer: max model length is %d, but the model was loaded for %d positions; load it with a longer context", given, r.Table.Rows)
		}
		opt.MaxModelLen = min(opt.MaxModelLen, r.Table.Rows)
	}
	if ok && backend.Threads() != opt.Threads {
		return nil, fmt.Errorf("infer: %d threads were planned, but the backend (%s) has %d", opt.Threads, m.Backend().Name(), backend.Threads())
	}
	e := &Engine{model: m, tok: tok, opt: opt, requests: map[*request]struct{}{}, gone: map[*weights.Adapter]struct{}{}, pins: newPins(),
		wake: make(chan struct{}, 1), done: make(chan struct{})}
	if tok != nil {
		e.eos = tok.StopIDs()
	}
	if err := e.allocate(); err != nil {
		e.free()
		return nil, err
	}
	e.pool = paged.NewPool(opt.Pages)
	e.sched = paged.NewScheduler(e.pool, paged.Limits{Tokens: opt.MaxBatchedTokens, Sequences: opt.MaxSeqs, PrefixCache: !opt.NoPrefixCache})
	e.publish()
	return e, nil
}

func (e *Engine) allocate() (err error) {
	arena, c := e.model.Arena, &e.model.Config
	if e.pages, err = model.NewPages(arena, c, e.opt.Pages); err != nil {
		return err
	}
	if e.acts, err = model.NewActs(arena, c, e.opt.acts()); err != nil {
		return err
	}
	if e.head, err = model.NewHeadActs(arena, c, e.opt.head()); err != nil {
		return err
	}
	return e.sampler.allocate(arena, c, e.opt)
}

func (e *Engine) free() {
	arena := e.model.Arena
	if e.pages != nil {
		e.pages.Free(arena)
	}
	if e.acts != nil {
		e.acts.Free()
	}
	if e.head != nil {
		e.head.Free()
	}
	e.sampler.free(arena)
	e.buffer.Free(arena.Backend())
	e.pins.free()
}

// Model is the model that the engine samples from, Options what it was made with, defaults filled.
func (e *Engine) Model() *model.Model { return e.model }

// Options are the engine's, with defaults filled in.
func (e *Engine) Options() Options { return e.opt }

// Tokenizer may be nil.
func (e *Engine) Tokenizer() *tokenizer.Tokenizer { return e.tok }

// Pool is the pool of pages, for a policy that trains in the same pages: use it inside Exclusive
// only, and give everything back.
func (e *Engine) Pool() *paged.Pool { return e.pool }

// Pages is the memory behind Pool.
func (e *Engine) Pages() *model.Pages { return e.pages }

// Submit queues a request and returns its stream. A request that can never be computed is refused
// with a RequestError. When ctx ends, so does the request.
func (e *Engine) Submit(ctx context.Context, r Request) (*Stream, error) {
	return e.submit(ctx, r, true)
}

func (e *Engine) submit(ctx context.Context, r Request, polite bool) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.Params = r.Params.withDefaults()
	if err := e.check(&r); err != nil {
		return nil, err
	}
	q := e.newRequest(&r)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, ErrClosed
	case e.retired(q.asked):
		return nil, refuse("model", "the adapter has been unloaded")
	case polite && e.opt.MaxWaiting > 0 && e.stats.Waiting+e.queued() >= e.opt.MaxWaiting:
		return nil, ErrBusy
	}
	q.stream.detach = context.AfterFunc(ctx, q.stream.Close)
	e.mail.add = append(e.mail.add, q)
	e.ring()
	return q.stream, nil
}

// queued counts the sequences in the mail.
func (e *Engine) queued() int {
	n := 0
	for _, q := range e.mail.add {
		n += len(q.seqs)
	}
	return n
}

// ring wakes the loop.
func (e *Engine) ring() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}
