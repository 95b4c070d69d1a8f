package infer

import (
	"slices"

	"graft/kernels"
)

// accept appends a drawn token to its sequence and tells the reader; the sequence ends if this was
// its last one.
func (e *Engine) accept(d *drawn) {
	s := d.seq
	if s.over {
		return
	}
	if d.err != nil {
		e.finish(s, Event{Finish: FinishError, Err: d.err, Text: s.flush()})
		return
	}
	s.Tokens = append(s.Tokens, d.ID)
	s.generated++
	e.totals.GeneratedTokens++
	ev := Event{Index: s.index, Token: d.ID, HasToken: true, LogP: d.LogP, Entropy: d.Entropy, Top: d.Top, Version: s.req.version}
	s.read(d.ID, &ev)
	if ev.Finish == "" && s.generated == s.req.params.MaxTokens {
		ev.Finish = FinishLength
		s.rest(&ev)
	}
	if ev.Finish != "" {
		e.finish(s, ev)
		return
	}
	s.req.stream.push(ev, false)
}

// read turns a token into text and decides whether it stops the sequence. The stop token stays in
// the tokens, not in the text.
func (s *sequence) read(id int32, ev *Event) {
	p := &s.req.params
	stop := slices.Contains(p.StopIDs, id) && s.generated > p.MinTokens
	if s.text != nil && (!stop || p.IncludeStop) {
		text := s.text.push(id)
		if s.generated <= p.MinTokens {
			ev.Text = s.stops.pass(text)
		} else {
			show, stopped := s.stops.push(text)
			s.show(show, stopped, ev)
		}
	}
	if stop && ev.Finish == "" {
		ev.Finish = FinishStop
		s.rest(ev)
	}
}

// show adds matched text to an event.
func (s *sequence) show(text string, stop string, ev *Event) {
	ev.Text += text
	if stop != "" {
		ev.Finish, ev.Stopped = FinishStop, stop
	}
}

// rest adds the text that decoder and matcher still hold.
func (s *sequence) rest(ev *Event) {
	if s.text == nil {
		return
	}
	text, stop := s.stops.push(s.text.flush())
	s.show(text, stop, ev)
	if stop == "" {
		ev.Text += s.stops.flush()
	}
}

// flush is the text that a sequence ended from outside still holds.
func (s *sequence) flush() string {
	var ev Event
	s.rest(&ev)
	return ev.Text
}

// finish ends a sequence with its last event; with the last sibling the request ends.
func (e *Engine) finish(s *sequence, ev Event) {
	q := s.req
	s.over = true
	e.sched.Finish(&s.Sequence)
	ev.Index, ev.Version = s.index, q.version
	ev.Usage = Usage{PromptTokens: s.PromptLen, CachedTokens: s.Hit, CompletionTokens: s.generated}
	e.totals.count(ev.Finish)
	q.live--
	if q.live == 0 {
		delete(e.requests, q)
		e.release(q)
		if q.stream.detach != nil {
			q.stream.detach()
		}
	}
	e.publish() // who has the answer finds it in the figures
	q.stream.push(ev, q.live == 0)
}

// drawn is what the sampler found for a sequence.
type drawn struct {
	kernels.Sampled
	seq *sequence
	err error
}
