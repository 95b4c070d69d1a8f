package openai

import (
	"time"
	"unicode/utf8"

	"graft/infer"
)

// completionRequest is POST /v1/completions, read and checked.
type completionRequest struct {
	sampling
	model    *entry
	prompts  []prompt
	echo     bool
	logProbs bool
}

// completions answers POST /v1/completions.
func (s *Server) completions(c *call) {
	r, fault := s.readCompletion(c)
	if fault != nil {
		c.fail(fault)
		return
	}
	j, fault := s.begin(c, r.model, r.prompts, &r.sampling)
	if fault != nil {
		c.fail(fault)
		return
	}
	a := &completionAnswer{job: j, request: r, head: completion{ID: "cmpl-" + newID(), Object: "text_completion",
		Created: time.Now().Unix(), Model: r.model.name}}
	a.offsets = make([]*offsets, len(r.prompts)*r.N)
	a.echoed = make([]bool, len(a.offsets))
	a.scores = make([]*infer.PromptScores, len(r.prompts))
	if r.stream {
		j.stream(a.stream)
		return
	}
	defer j.end()
	whole, err := a.whole()
	if err != nil {
		c.fail(faultOf(err))
		return
	}
	c.send(200, whole)
}

// readCompletion reads the request; the model it returns is in use until the job ends.
func (s *Server) readCompletion(c *call) (*completionRequest, *Fault) {
	limit := s.engine.Options().MaxModelLen
	r := &completionRequest{}
	name := ""
	fault := s.read(c, func(b *body) {
		r.sampling = readSampling(b, s.vocab, limit)
		name = b.text("model", "")
		r.echo = b.flag("echo", false)
		if _, ok := b.value("logprobs"); ok {
			r.logProbs = true
			r.TopLogProbs = int(b.integer("logprobs", 0, 0, maxLogProbs))
		}
		lowest := int64(1)
		if r.echo {
			lowest = 0
		}
		r.maxTokens = int(b.integer("max_tokens", 16, lowest, int64(limit)))
		r.PromptLogProbs = r.echo && (r.logProbs || r.maxTokens == 0)
		b.refuse("suffix", "the model is not asked to fill a middle", "")
		r.prompts = s.readPrompts(b)
	})
	if fault != nil {
		return nil, fault
	}
	if n := len(r.prompts) * r.N; n > maxSequences {
		return nil, invalid("n", "%d prompts with n %d are %d completions, at most %d", len(r.prompts), r.N, n, maxSequences)
	}
	for _, p := range r.prompts {
		if fault := r.settleLength(len(p.ids), "max_tokens", s.engine.Options()); fault != nil {
			return nil, fault
		}
	}
	r.model, fault = s.models.use(name)
	return r, fault
}

// completionAnswer turns events into choices.
type completionAnswer struct {
	job     *job
	request *completionRequest
	head    completion
	offsets []*offsets // by choice
	echoed  []bool     // by choice: its prompt has been told
	scores  []*infer.PromptScores
}

// piece is what an event adds to its choice: the first one of a choice brings the echoed prompt.
func (a *completionAnswer) piece(ev *event) completionChoice {
	s, r, n := a.job.server, a.request, a.job.choice(ev)
	p := r.prompts[ev.prompt]
	out := completionChoice{Index: n, FinishReason: finishReason(ev.Finish), StopReason: stopReason(&ev.Event)}
	if ev.Prompt != nil {
		a.scores[ev.prompt] = ev.Prompt
	}
	if !a.echoed[n] {
		a.echoed[n] = true
		a.offsets[n] = s.newOffsets(p.ids, r.KeepSpecial)
		if r.logProbs {
			out.LogProbs = newLogProbs()
		}
		if r.returnIDs {
			out.PromptTokenIDs = p.ids
		}
		if r.echo {
			a.echo(&out, ev.prompt, n)
		}
	}
	out.Text += ev.Text
	if ev.HasToken {
		if r.logProbs {
			if out.LogProbs == nil {
				out.LogProbs = newLogProbs()
			}
			out.LogProbs.addEvent(s, &ev.Event, a.offsets[n])
		}
		if r.returnIDs {
			out.TokenIDs = []int32{ev.Token}
		}
	}
	return out
}

// echo puts the prompt before the completion.
func (a *completionAnswer) echo(out *completionChoice, prompt, n int) {
	p := a.request.prompts[prompt]
	out.Text = p.text
	if !a.request.logProbs {
		return
	}
	s := a.job.server
	out.LogProbs = s.promptLogProbs(p, a.scores[prompt])
	a.offsets[n].at = utf8.RuneCountInString(p.text)
}

// whole is the answer in one piece.
func (a *completionAnswer) whole() (*completion, error) {
	choices := make([]completionChoice, len(a.offsets))
	err := a.job.each(func(ev *event) error {
		piece := a.piece(ev)
		choices[piece.Index].join(&piece)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := a.head
	out.Choices, out.Usage = choices, &usageField{&a.job.usage}
	return &out, nil
}

// join appends a piece.
func (c *completionChoice) join(more *completionChoice) {
	c.Index = more.Index
	c.Text += more.Text
	c.FinishReason, c.StopReason = more.FinishReason, more.StopReason
	c.TokenIDs = append(c.TokenIDs, more.TokenIDs...)
	if more.PromptTokenIDs != nil {
		c.PromptTokenIDs = more.PromptTokenIDs
	}
	switch {
	case more.LogProbs == nil:
	case c.LogProbs == nil:
		c.LogProbs = more.LogProbs
	default:
		c.LogProbs.join(more.LogProbs)
	}
}

// stream tells the answer as it comes.
func (a *completionAnswer) stream(e *events) error {
	r := a.request
	err := a.job.each(func(ev *event) error {
		piece := a.piece(ev)
		if piece.Text == "" && piece.FinishReason == nil && piece.LogProbs == nil && piece.TokenIDs == nil {
			return nil // text that is held back
		}
		chunk := a.head
		chunk.Choices, chunk.Usage = []completionChoice{piece}, a.job.chunkUsage()
		return e.send(&chunk)
	})
	if err != nil || !r.includeUsage {
		return err
	}
	last := a.head
	last.Choices, last.Usage = []completionChoice{}, &usageField{&a.job.usage}
	return e.send(&last)
}

// chunkUsage is usage in a chunk that is not the last: absent, null, or the count so far.
func (j *job) chunkUsage() *usageField {
	switch {
	case j.want.everyUsage:
		now := j.usage
		return &usageField{&now}
	case j.want.includeUsage:
		return &usageField{}
	}
	return nil
}
