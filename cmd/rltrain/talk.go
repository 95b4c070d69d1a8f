package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

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

// prose prints text for people, broken between words where the terminal ends.
func (t *talk) prose(format string, args ...any) {
	t.say("%s", folded(fmt.Sprintf(format, args...), t.width))
}

// folded breaks lines of more than width columns between words; a word that is longer stays whole.
func folded(text string, width int) string {
	var out strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			out.WriteByte('\n')
		}
		at := 0
		for j, word := range strings.Split(line, " ") {
			n := utf8.RuneCountInString(word)
			switch {
			case j == 0:
			case at+1+n >= width:
				out.WriteByte('\n')
				at = 0
			default:
				out.WriteByte(' ')
				at++
			}
			out.WriteString(word)
			at += n
		}
	}
	return out.String()
}

// every keeps the status line at what line says, until the function it returns is called.
func (t *talk) every(line func() string) func() {
	if !t.screen {
		return func() {}
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				t.now("%s", line())
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
		t.end()
	}
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
	told    atomic.Value                       // string: what the first signal will do
	answer  atomic.Pointer[context.CancelFunc] // ends an answer: an interrupt ends only that
}

// patience is how long the signal that ends a command at once waits for what is under way to notice.
const patience = 5 * time.Second

func listen(t *talk) *stopper {
	s := &stopper{talk: t, signals: make(chan os.Signal, 2), asked: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM)
	s.done.Go(func() {
		for {
			sig, ok := <-s.signals
			if !ok {
				return
			}
			end := s.answer.Swap(nil)
			if end == nil || sig != os.Interrupt {
				break
			}
			(*end)()
		}
		close(s.asked)
		if text, ok := s.told.Load().(string); ok {
			t.say("%s", text)
		}
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

// promise sets what the first signal says from now on; it is said when the signal comes.
func (s *stopper) promise(text string) { s.told.Store(text) }

// answering is a context for one answer: an interrupt ends it and nothing else.
func (s *stopper) answering(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	s.answer.Store(&cancel)
	return ctx, func() { s.answer.Store(nil); cancel() }
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
