package openai

import (
	"bufio"
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"graft/infer"
)

// job is the computing of one request: one stream of the engine per prompt. Whoever begins it ends it.
type job struct {
	server  *Server
	call    *call
	ctx     context.Context
	release func()
	model   *entry
	prompts []prompt
	want    *sampling
	streams []*infer.Stream
	first   time.Time // when the first token came
	usage   usage
}

// begin submits every prompt, or nothing.
func (s *Server) begin(c *call, model *entry, prompts []prompt, want *sampling) (*job, *Fault) {
	j := &job{server: s, call: c, model: model, prompts: prompts, want: want}
	j.ctx, j.release = s.watch(c)
	for i, p := range prompts {
		params := want.Params
		params.Adapter = model.adapter
		if !want.seeded {
			params.Draw[1] = uint32(i)
		}
		stream, err := s.engine.Submit(j.ctx, infer.Request{Prompt: p.ids, Params: params})
		if err != nil {
			j.end()
			return nil, faultOf(cause(j.ctx, err))
		}
		j.streams = append(j.streams, stream)
		j.usage.Prompt += len(p.ids)
	}
	s.metrics.began(len(prompts), want)
	return j, nil
}

// end cancels what still runs and lets go of the model.
func (j *job) end() {
	j.release()
	for _, stream := range j.streams {
		stream.Close()
	}
	j.server.models.drop(j.model)
}

// event is one of the engine's events and the prompt it belongs to.
type event struct {
	prompt int
	infer.Event
}

// choice is the number of an event's choice in the answer: prompt-major.
func (j *job) choice(ev *event) int { return ev.prompt*j.want.N + ev.Index }

// each calls take with every event until all choices have finished. It returns the first error: of
// take, of a choice, or of the context. take may say otherwise how a choice has finished.
func (j *job) each(take func(*event) error) error {
	next, stop := j.merge()
	defer stop()
	for {
		ev, ok := next()
		if !ok {
			return j.stopped()
		}
		switch {
		case ev.Finish == infer.FinishAbort:
			return j.stopped()
		case ev.Finish == infer.FinishError:
			return ev.Err
		}
		j.count(&ev)
		if err := take(&ev); err != nil {
			return err
		}
		if ev.Finish != "" {
			j.call.ends[ev.Finish]++
		}
	}
}

// stopped is why a job ended early: the server was halted, or the client left, whichever came first.
// nil: it did not.
func (j *job) stopped() error { return context.Cause(j.ctx) }

// merge reads all streams as one. stop waits for the readers.
func (j *job) merge() (next func() (event, bool), stop func()) {
	if len(j.streams) == 1 {
		return func() (event, bool) {
			ev, ok := j.streams[0].Next(j.ctx)
			return event{0, ev}, ok
		}, func() {}
	}
	ctx, cancel := context.WithCancel(j.ctx)
	events := make(chan event)
	var readers sync.WaitGroup
	for i, stream := range j.streams {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				ev, ok := stream.Next(ctx)
				if !ok {
					return
				}
				select {
				case events <- event{i, ev}:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	go func() {
		readers.Wait()
		close(events)
	}()
	return func() (event, bool) {
			ev, ok := <-events
			return ev, ok
		}, func() {
			cancel()
			for range events { // until the readers have left
			}
		}
}

// count adds an event to usage and metrics.
func (j *job) count(ev *event) {
	m := &j.server.metrics
	if ev.HasToken {
		if j.first.IsZero() {
			j.first = time.Now()
			m.firstToken(j.first.Sub(j.call.began))
		}
		j.usage.Completion++
	}
	j.usage.Total = j.usage.Prompt + j.usage.Completion
	if ev.Finish == "" {
		return
	}
	if ev.Index == 0 {
		j.usage.Details.Cached += ev.Usage.CachedTokens
	}
	m.finished(&ev.Event, time.Since(j.call.began))
}

// events is a stream of server-sent events to one client.
type events struct {
	w   *bufio.Writer
	job *job
}

// send writes one event at once.
func (e *events) send(v any) error {
	raw, err := encodeJSON(v)
	if err != nil {
		return err
	}
	return e.line(raw)
}

func (e *events) line(raw []byte) error {
	e.job.server.allow(e.job.call)
	e.w.WriteString("data: ")
	e.w.Write(raw)
	e.w.WriteString("\n\n")
	if e.w.Flush() == nil {
		return nil
	}
	if err := e.job.stopped(); err != nil {
		return err
	}
	return errLeft
}

// stream answers with server-sent events: what tell sends, then [DONE], or an error in their midst.
// The job ends with the stream.
func (j *job) stream(tell func(*events) error) {
	s, c := j.server, j.call
	h := &c.http.Response.Header
	h.SetContentType("text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // proxies pass events on as they come
	c.http.Response.ImmediateHeaderFlush = true
	c.streams = true
	c.http.SetBodyStreamWriter(func(w *bufio.Writer) {
		defer s.gate.leave(c)
		e := &events{w: w, job: j}
		err := j.tell(e, tell)
		j.end()
		status := 200
		if err != nil {
			fault := faultOf(err)
			status, c.reason = fault.Status, fault.reason()
			_ = e.send(fault.body())
		}
		_ = e.line([]byte("[DONE]"))
		s.done(c, status)
	})
}

// tell runs a teller; a panic in it ends this stream, not the process.
func (j *job) tell(e *events, tell func(*events) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			j.server.log.Printf("%s %s %s panic: %v\n%s", j.call.id, j.call.method, j.call.path, p, debug.Stack())
			err = errors.New("internal error; the server's log has it under request " + j.call.id)
		}
	}()
	return tell(e)
}
