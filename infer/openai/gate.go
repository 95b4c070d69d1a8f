package openai

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// lastWords is how long a client has to take its answer once the server no longer waits for it.
const lastWords = 5 * time.Second

// gate knows the requests under way and, once shut, tells when the last has left.
type gate struct {
	mu     sync.Mutex
	inside map[*call]struct{}
	shut   bool
	empty  chan struct{} // closed when shut and nobody is inside
}

// enter lets a request in, unless the gate is shut.
func (g *gate) enter(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	if g.inside == nil {
		g.inside = map[*call]struct{}{}
	}
	g.inside[c] = struct{}{}
	return true
}

func (g *gate) leave(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.inside, c); len(g.inside) == 0 && g.shut {
		close(g.empty)
	}
}

// close shuts the gate; the channel is closed when everybody has left.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.shut, g.empty = true, make(chan struct{})
		if len(g.inside) == 0 {
			close(g.empty)
		}
	}
	return g.empty
}

// hurry bounds how long the clients inside may hold up their writers, and counts them.
func (g *gate) hurry(until time.Time) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.inside {
		_ = c.conn.SetWriteDeadline(until)
	}
	return len(g.inside)
}

// Shutdown stops accepting, lets the requests under way end, and returns when their answers are
// written. When ctx ends first, those that still run are cancelled and answered 503, an event in
// streams that have begun, and Shutdown returns an error that counts them. The adapters are freed;
// the engine stays open.
func (s *Server) Shutdown(ctx context.Context) error {
	empty := s.gate.close()
	patience, stop := context.WithCancel(context.Background())
	defer stop()
	closed := make(chan error, 1)
	go func() { closed <- s.http.ShutdownWithContext(patience) }()

	err := s.drain(ctx, empty)
	// fasthttp writes an answer after its handler has returned: the connections end last.
	select {
	case failed := <-closed:
		err = errors.Join(err, failed)
	case <-ctx.Done():
		timer := time.AfterFunc(s.grace, stop)
		failed := <-closed
		timer.Stop()
		if !errors.Is(failed, context.Canceled) { // connections that nobody has asked anything on do not matter
			err = errors.Join(err, failed)
		}
	}
	s.halt(shuttingDown())
	s.watcher.close()
	for _, e := range s.models.loaded() {
		s.models.remove(e)
	}
	return err
}

// drain waits for the requests under way until ctx ends, then cuts them.
func (s *Server) drain(ctx context.Context, empty <-chan struct{}) error {
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	s.halt(&Fault{Status: 503, Type: serverError, Code: codeShutdown, Message: "the server is shutting down and has cancelled this request"})
	cut := s.gate.hurry(time.Now().Add(s.grace))
	<-empty
	if cut == 0 {
		return nil // only idle connections were left
	}
	return fmt.Errorf("openai: %d requests were still under way and have been cancelled: %w", cut, ctx.Err())
}

// allow gives a client time to take what is written to it next. The time is short when the server was
// halted, also when that happens right now: then hurry either comes later or has been seen.
func (s *Server) allow(c *call) {
	_ = c.conn.SetWriteDeadline(time.Now().Add(s.opt.StallTimeout))
	if s.base.Err() != nil {
		_ = c.conn.SetWriteDeadline(time.Now().Add(s.grace))
	}
}
