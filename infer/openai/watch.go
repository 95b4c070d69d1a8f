package openai

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"
)

// watchEvery is how long a client may be gone before its request is cancelled.
const watchEvery = 10 * time.Millisecond

// watcher notices clients that close their connection while the server computes for them, also
// before the first byte of an answer: fasthttp itself tells a handler nothing. One goroutine looks
// at all connections that wait; it sleeps while there are none.
type watcher struct {
	mu    sync.Mutex
	seen  map[*watched]struct{}
	wake  chan struct{}
	stop  chan struct{}
	ended chan struct{}
}

type watched struct {
	conn   syscall.RawConn
	cancel context.CancelFunc
}

func newWatcher() *watcher {
	w := &watcher{seen: map[*watched]struct{}{}, wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	go w.run()
	return w
}

// watch cancels when the client of conn goes away. The caller calls the function it gets when it no
// longer cares. A connection without a file descriptor, such as one in memory, is not watched.
func (w *watcher) watch(conn net.Conn, cancel context.CancelFunc) (forget func()) {
	raw, ok := rawConn(conn)
	if !ok {
		return func() {}
	}
	c := &watched{conn: raw, cancel: cancel}
	w.mu.Lock()
	w.seen[c] = struct{}{}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return func() {
		w.mu.Lock()
		delete(w.seen, c)
		w.mu.Unlock()
	}
}

// rawConn finds the socket under wrappers such as tls.Conn.
func rawConn(conn net.Conn) (syscall.RawConn, bool) {
	for range 8 {
		if sys, ok := conn.(syscall.Conn); ok {
			raw, err := sys.SyscallConn()
			return raw, err == nil
		}
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil, false
		}
		conn = inner.NetConn()
	}
	return nil, false
}

func (w *watcher) run() {
	defer close(w.ended)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if w.look() == 0 {
			select {
			case <-w.wake:
			case <-w.stop:
				return
			}
			continue
		}
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
	}
}

// look probes every connection once and returns how many are left.
func (w *watcher) look() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.seen {
		gone := false
		if err := c.conn.Control(func(fd uintptr) { gone = hungUp(fd) }); err != nil || gone {
			delete(w.seen, c)
			c.cancel()
		}
	}
	return len(w.seen)
}

func (w *watcher) close() {
	close(w.stop)
	<-w.ended
}
