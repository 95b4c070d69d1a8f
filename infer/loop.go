package infer

import "context"

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
