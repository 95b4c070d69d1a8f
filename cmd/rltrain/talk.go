package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
)

// talk is stderr: lines for people, and on a terminal one line at the bottom that is drawn over.
type talk struct {
	mu     sync.Mutex
	w      io.Writer
	screen bool
	width  int
	status string
}

func newTalk(w io.Writer) *talk {
	t := &talk{w: w, width: 80}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		t.screen = true
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 20 {
			t.width = width
		}
	}
	return t
}

// say prints a line above the status line.
func (t *talk) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	fmt.Fprintf(t.w, format+"\n", args...)
	t.draw()
}

// now replaces the status line; off a terminal it does nothing.
func (t *talk) now(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.screen {
		return
	}
	t.clear()
	t.status = fmt.Sprintf(format, args...)
	if r := []rune(t.status); len(r) >= t.width {
		t.status = string(r[:t.width-1])
	}
	t.draw()
}

// end removes the status line.
func (t *talk) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	t.status = ""
}

func (t *talk) clear() {
	if t.status != "" {
		fmt.Fprint(t.w, "\r\x1b[K")
	}
}

func (t *talk) draw() {
	if t.status != "" {
		fmt.Fprint(t.w, t.status)
	}
}

// Write prints tables and what libraries have to say.
func (t *talk) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	n, err := t.w.Write(p)
	t.draw()
	return n, err
}

// bar is a progress bar of n cells.
func bar(done, total, n int) string {
	full := 0
	if total > 0 {
		full = min(n, done*n/total)
	}
	return strings.Repeat("━", full) + strings.Repeat("╌", n-full)
}

// stopper turns signals into a wish to stop: the first one ends a run after its step, the second
// ends it at once.
type stopper struct {
	talk    *talk
	signals chan os.Signal
	asked   chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// patience is how long the signal that ends a command at once waits for what is under way to notice.
const patience = 5 * time.Second

func listen(t *talk) *stopper {
	s := &stopper{talk: t, signals: make(chan os.Signal, 2), asked: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM)
	s.done.Go(func() {
		if _, ok := <-s.signals; !ok {
			return
		}
		close(s.asked)
		if _, ok := <-s.signals; !ok {
			return
		}
		t.say("aborting")
		s.cancel()
		timer := time.AfterFunc(patience, func() { os.Exit(exitFailed) }) // every file is whole at any moment
		<-s.signals
		timer.Stop()
	})
	return s
}

// wanted tells whether a signal came.
func (s *stopper) wanted() bool {
	select {
	case <-s.asked:
		return true
	default:
		return false
	}
}

func (s *stopper) aborted() bool { return s.ctx.Err() != nil }

// immediate is a context that ends with the first signal: for commands that have nothing to save,
// and for what a run does before its first step. What does not look at its context, such as a long
// line in the tokenizer, ends with the process. The function it returns ends that time.
func (s *stopper) immediate() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(s.ctx)
	stop := make(chan struct{})
	s.done.Go(func() {
		select {
		case <-s.asked:
		case <-stop:
			return
		}
		cancel()
		select {
		case <-time.After(patience):
			s.talk.end()
			s.talk.say("rltrain: stopped in the middle of its work, which did not end by itself within %v", patience)
			os.Exit(exitFailed)
		case <-stop:
		}
	})
	return ctx, sync.OnceFunc(func() { close(stop); cancel() })
}

func (s *stopper) close() {
	signal.Stop(s.signals)
	close(s.signals)
	s.done.Wait()
	s.cancel()
}
