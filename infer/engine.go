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
	if b, ok := m.Backend().(interface{ Threads() int }); ok && b.Threads() != opt.Threads {
		return nil, fmt.Errorf("infer: %d threads were planned, but the backend (%s) has %d", opt.Threads, m.Backend().Name(), b.Threads())
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

// Exclusive runs f in the caller's goroutine between two steps, while nothing else uses the device:
// that is where training happens. ctx bounds the wait only. f must not call Submit's streams,
// Generate, Score or Exclusive and wait for them: they need the loop.
func (e *Engine) Exclusive(ctx context.Context, f func() error) error {
	t := &turn{granted: make(chan struct{}), over: make(chan struct{})}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return ErrClosed
	}
	e.mail.turns = append(e.mail.turns, t)
	e.ring()
	e.mu.Unlock()
	defer close(t.over)
	select {
	case <-t.granted:
	case <-e.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return f()
}

// Close ends every request with ErrClosed, stops the loop and returns the engine's memory.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.ring()
	e.mu.Unlock()
	<-e.done
	return nil
}

// loop is the engine: it serves the mail, then computes a step, for as long as there is either.
func (e *Engine) loop() {
	defer close(e.done)
	var inbox mail
	for e.collect(&inbox) {
		e.serve(&inbox)
		e.step()
		e.publish()
	}
	for q := range e.requests {
		e.end(q, FinishError, ErrClosed)
	}
	e.free()
	e.publish()
}

// collect takes the mail, waiting for some if there is nothing to compute. It returns false when
// the engine is closed; requests still in the mail have been ended then.
func (e *Engine) collect(inbox *mail) bool {
	for {
		e.mu.Lock()
		if e.closed {
			late := e.mail
			e.mail = mail{}
			e.mu.Unlock()
			for _, q := range late.add {
				e.begin(q)
			}
			return false
		}
		if !e.mail.empty() {
			e.mail, *inbox = *inbox, e.mail
			e.mu.Unlock()
			return true
		}
		e.mu.Unlock()
		if !e.idle() {
			return true
		}
		<-e.wake
	}
}

func (e *Engine) idle() bool { return len(e.sched.Waiting())+len(e.sched.Running()) == 0 }

// serve does what the mail asks and empties it.
func (e *Engine) serve(inbox *mail) {
	for _, q := range inbox.add {
		e.begin(q)
	}
	for _, q := range inbox.cancel {
		e.end(q, FinishAbort, nil)
	}
	e.publish()
	for _, t := range inbox.turns {
		close(t.granted)
		<-t.over
		e.changed()
	}
	clear(inbox.add)
	clear(inbox.cancel)
	inbox.add, inbox.cancel, inbox.turns = inbox.add[:0], inbox.cancel[:0], inbox.turns[:0]
}

// step advances every running sequence by one scheduled chunk or token.
func (e *Engine) step() {
	if e.idle() {
		return
	}
	plan := e.sched.Next()
	if len(plan.Items) == 0 {
		e.stuck()
		return
	}
	e.totals.Steps++
	e.sampler.reset()
	for _, ad := range e.split(plan) {
		if err := e.compute(plan, ad); err != nil {
			e.fail(err)
			return
		}
	}
	e.sched.Commit(plan)
	e.settle(plan)
	for i := range e.sampler.drawn {
		e.accept(&e.sampler.drawn[i])
	}
}

// split lists the adapters of a plan: rows of different adapters can not share a product.
func (e *Engine) split(plan *paged.Plan) []*weights.Adapter {
	e.adapters = e.adapters[:0]
next:
	for i := range plan.Items {
		ad := owner(plan.Items[i].Seq).req.adapter
		for _, known := range e.adapters {
			if known == ad {
				continue next
			}
		}
		e.adapters = append(e.adapters, ad)
	}
	return e.adapters
}

// compute runs the forward of the plan's rows under one adapter, scores prompts and draws tokens.
func (e *Engine) compute(plan *paged.Plan, ad *weights.Adapter) error {
	be := e.model.Backend()
	e.load(plan, ad)
	var err error
	if e.batch, err = e.buffer.Batch(be, ad); err != nil {
		return err
	}
	hidden := e.model.Forward(&e.batch, e.pages, e.acts)
	if err := be.Sync(); err != nil {
		return fmt.Errorf("infer: the step failed: %w", err)
	}
	row := 0
	for i := range plan.Items {
		it := &plan.Items[i]
		s := owner(it.Seq)
		if s.req.adapter != ad {
			continue
		}
		s.req.started = true // from here on it keeps this adapter version
		if s.req.params.PromptLogProbs {
			if err := e.scorePrompt(s.req, hidden.Slice(row, row+it.N), it.From); err != nil {
				return err
			}
		}
		row += it.N
		if it.Sample && s.req.params.MaxTokens > 0 {
			e.sampler.want(int32(row-1), s)
			for _, m := range it.Forks {
				e.sampler.want(int32(row-1), owner(m))
			}
		}
	}
	e.sampler.draw(e.model, hidden)
	return nil
}

// load lays the rows of one adapter out. The last page of a shared prompt is written once for every
// sibling.
func (e *Engine) load(plan *paged.Plan, ad *weights.Adapter) {
	width := 0
	for i := range plan.Items {
		width = max(width, len(plan.Items[i].Seq.Table), paged.PagesFor(plan.Items[i].From+plan.Items[i].N))
	}
	e.buffer.Reset(width)
	for i := range plan.Items {
		it := &plan.Items[i]
		if owner(it.Seq).req.adapter != ad {
			continue
		}
		seq, first := e.buffer.Sequence(it.Seq.Table), int32(e.buffer.N()-it.From)
		for pos := it.From; pos < it.From+it.N; pos++ {
			e.buffer.Row(it.Seq.Tokens[pos], int32(pos), seq)
		}
		for _, m := range it.Forks {
			if it.Tail == it.From+it.N {
				continue // only full pages, and those are shared
			}
			sibling := e.buffer.Sequence(m.Table)
			for pos := it.Tail; pos < it.From+it.N; pos++ {
				e.buffer.Write(first+int32(pos), int32(pos), sibling)
			}
		}
	}
}

// settle ends requests that only wanted their prompt scored, and those whose scores are no numbers.
func (e *Engine) settle(plan *paged.Plan) {
	for i := range plan.Items {
		it := &plan.Items[i]
		e.totals.PromptTokens += uint64(max(0, min(it.From+it.N, it.Seq.PromptLen)-it.From))
		q := owner(it.Seq).req
		if q.broken != nil {
			e.end(q, FinishError, q.broken)
		}
		if q.params.MaxTokens > 0 || !it.Sample || owner(it.Seq).over {
			continue
		}
		e.finish(owner(it.Seq), Event{Finish: FinishLength})
		for _, m := range it.Forks {
			e.finish(owner(m), Event{Finish: FinishLength})
		}
	}
}

// stuck ends the first request in the queue, which needs pages that no sequence holds.
func (e *Engine) stuck() {
	q := owner(e.sched.Waiting()[0]).req
	e.end(q, FinishError, fmt.Errorf("infer: a request of %d tokens needs pages of keys and values, but %d of %d are taken by training, which must give them back before it leaves Exclusive",
		len(e.sched.Waiting()[0].Tokens), e.pool.Taken(), e.pool.Total()))
}

// fail ends the requests in flight with a device's error.
func (e *Engine) fail(err error) {
	for len(e.sched.Running()) > 0 {
		e.end(owner(e.sched.Running()[0]).req, FinishError, err)
	}
}

// Drain waits until nothing runs or waits, or ctx ends.
func (e *Engine) Drain(ctx context.Context) error {
	for {
		busy := false
		err := e.Exclusive(ctx, func() error {
			busy = len(e.requests) > 0
			return nil
		})
		if err != nil || !busy {
			return err
		}
	}
}
