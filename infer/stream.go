package infer

import (
	"context"
	"sync"
	"sync/atomic"

	"graft/kernels"
)

// FinishReason is why a sequence ended; "" while it has not.
type FinishReason string

// The reasons.
const (
	FinishStop   FinishReason = "stop"   // a stop token or string
	FinishLength FinishReason = "length" // MaxTokens
	FinishAbort  FinishReason = "abort"  // closed by the caller
	FinishError  FinishReason = "error"  // see Event.Err
)

// Usage counts the tokens of a sequence.
type Usage struct {
	PromptTokens     int
	CachedTokens     int // of the prompt, found in the prefix cache or computed by a sibling
	CompletionTokens int
}

// Event is one sampled token of one sibling, or its end, or both.
type Event struct {
	Index    int // which sibling
	Token    int32
	HasToken bool // false: only text or the end
	LogP     float32
	Entropy  float32
	Top      []kernels.TokenLogP // TopLogProbs entries, most probable first
	Text     string              // text that became certain; stop strings are held back and never shown
	Finish   FinishReason
	Stopped  string // the stop string that ended it, if one did
	Err      error
	Usage    Usage         // with Finish
	Version  uint64        // of the adapter (or the base) that computed it
	Prompt   *PromptScores // on the request's first event, if PromptLogProbs asked for them
}

// Stream is what a request produces. One goroutine reads it; a slow reader delays nobody.
type Stream struct {
	engine *Engine
	req    *request
	detach func() bool // from the context
	closed atomic.Bool

	mu     sync.Mutex
	events []Event
	head   int
	ended  bool
	told   bool // the prompt's scores were sent
	ready  chan struct{}
}

// Next waits for the next event. It returns false when all siblings have finished, or when ctx ends.
func (s *Stream) Next(ctx context.Context) (Event, bool) {
	for {
		s.mu.Lock()
		if s.head < len(s.events) {
			ev := s.events[s.head]
			s.events[s.head] = Event{}
			if s.head++; s.head == len(s.events) {
				s.events, s.head = s.events[:0], 0
			}
			s.mu.Unlock()
			return ev, true
		}
		ended := s.ended
		s.mu.Unlock()
		if ended {
			return Event{}, false
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return Event{}, false
		}
	}
}

// Close ends the request, wherever it is; its pages are free after the step under way. Events already
// produced can still be read. Close may be called from anywhere, also twice.
func (s *Stream) Close() {
	if s.closed.Swap(true) {
		return
	}
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.mail.cancel = append(e.mail.cancel, s.req)
		e.ring()
	}
}

// push adds an event for the reader.
func (s *Stream) push(ev Event, ended bool) {
	s.mu.Lock()
	if q := s.req; !s.told && q.scores != nil && q.scored == len(q.prompt) {
		ev.Prompt, s.told = q.scores, true
	}
	s.events = append(s.events, ev)
	s.ended = ended
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}
