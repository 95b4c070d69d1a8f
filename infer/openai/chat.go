package openai

import (
	"strings"
	"time"
)

// chatRequest is POST /v1/chat/completions, read and checked.
type chatRequest struct {
	sampling
	model    *entry
	prompt   prompt
	logProbs bool
	tools    *toolset // nil: calls are not looked for
}

// chatCompletions answers POST /v1/chat/completions.
func (s *Server) chatCompletions(c *call) {
	r, fault := s.readChat(c)
	if fault != nil {
		c.fail(fault)
		return
	}
	j, fault := s.begin(c, r.model, []prompt{r.prompt}, &r.sampling)
	if fault != nil {
		c.fail(fault)
		return
	}
	a := &chatAnswer{job: j, request: r, id: "chatcmpl-" + newID(), created: time.Now().Unix()}
	if r.tools != nil {
		a.readers = make([]callReader, r.N)
		for i := range a.readers {
			a.readers[i].toolset = r.tools
		}
	}
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

// readChat reads the request; the model it returns is in use until the job ends.
func (s *Server) readChat(c *call) (*chatRequest, *Fault) {
	limit := s.engine.Options().MaxModelLen
	r := &chatRequest{}
	name, field := "", "max_completion_tokens"
	fault := s.read(c, func(b *body) {
		r.sampling = readSampling(b, s.vocab, limit)
		name = b.text("model", "")
		r.logProbs = b.flag("logprobs", false)
		r.TopLogProbs = int(b.integer("top_logprobs", 0, 0, maxLogProbs))
		if r.TopLogProbs > 0 && !r.logProbs {
			b.fail("top_logprobs", "top_logprobs needs logprobs true")
		}
		if _, ok := b.value(field); !ok {
			field = "max_tokens"
		}
		r.maxTokens = int(b.integer(field, -1, 1, int64(limit)))
		b.ignore("max_tokens")
		s.refuseChat(b)
		r.prompt = s.readConversation(b)
		r.tools = s.readToolset(b, r.KeepSpecial)
	})
	if fault != nil {
		return nil, fault
	}
	if r.maxTokens < 0 {
		field = "messages"
	}
	if fault := r.settleLength(len(r.prompt.ids), field, s.engine.Options()); fault != nil {
		return nil, fault
	}
	r.model, fault = s.models.use(name)
	return r, fault
}

// refuseChat names what chat requests may ask for elsewhere and not here.
func (s *Server) refuseChat(b *body) {
	b.refuse("functions", "use tools")
	b.refuse("function_call", "use tools", "none", "auto")
	b.refuse("audio", "this model writes text")
	b.refuse("web_search_options", "this server searches nothing")
	b.refuse("reasoning_effort", "put what the chat template knows into chat_template_kwargs")
	b.refuse("verbosity", "put what the chat template knows into chat_template_kwargs")
	b.refuse("echo", "use /v1/completions", false)
	b.refuse("parallel_tool_calls", "the text of the model is not cut", true)
	for _, v := range b.list("modalities", 8) {
		if v != "text" {
			b.fail("modalities", "modalities: only \"text\" is supported")
		}
	}
	v, ok := b.value("tool_choice")
	if !ok {
		return
	}
	switch v {
	case "none":
		b.fields.Delete("tools") // the model is not told of them
	case "auto":
	default:
		b.fail("tool_choice", "tool_choice must be \"none\" or \"auto\": output is not constrained to a call")
	}
}

// chatAnswer turns events into messages.
type chatAnswer struct {
	job     *job
	request *chatRequest
	id      string
	created int64
	readers []callReader // by choice; nil: all text is content
}

// split parts the text of an event, and what was held before, into content and calls.
func (a *chatAnswer) split(ev *event) (content string, calls []toolCall) {
	if a.readers == nil {
		return ev.Text, nil
	}
	return a.readers[ev.Index].event(ev)
}

// whole is the answer in one piece.
func (a *chatAnswer) whole() (*chatCompletion, error) {
	r, s := a.request, a.job.server
	texts, choices := make([]strings.Builder, r.N), make([]chatChoice, r.N)
	for i := range choices {
		choices[i] = chatChoice{Index: i, Message: chatMessage{Role: "assistant"}}
		if r.logProbs {
			choices[i].LogProbs = &chatLogProbs{Content: []chatLogProb{}}
		}
	}
	err := a.job.each(func(ev *event) error {
		choice := &choices[ev.Index]
		content, calls := a.split(ev)
		texts[ev.Index].WriteString(content)
		choice.Message.ToolCalls = append(choice.Message.ToolCalls, calls...)
		choice.FinishReason, choice.StopReason = finishReason(ev.Finish), stopReason(&ev.Event)
		if ev.HasToken && r.logProbs {
			choice.LogProbs.addEvent(s, &ev.Event)
		}
		if ev.HasToken && r.returnIDs {
			choice.TokenIDs = append(choice.TokenIDs, ev.Token)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range choices {
		if text := texts[i].String(); text != "" || choices[i].Message.ToolCalls == nil {
			choices[i].Message.Content = &text
		}
	}
	out := &chatCompletion{ID: a.id, Object: "chat.completion", Created: a.created, Model: r.model.name, Choices: choices, Usage: &a.job.usage}
	if r.returnIDs {
		out.PromptTokenIDs = r.prompt.ids
	}
	return out, nil
}

// stream tells the answer as it comes: the role of every choice, its text, its end, the usage.
func (a *chatAnswer) stream(e *events) error {
	r, s := a.request, a.job.server
	for i := range r.N {
		empty := ""
		chunk := a.chunk(chunkChoice{Index: i, Delta: chatDelta{Role: "assistant", Content: &empty}})
		if r.returnIDs && i == 0 {
			chunk.PromptTokenIDs = r.prompt.ids
		}
		if err := e.send(chunk); err != nil {
			return err
		}
	}
	err := a.job.each(func(ev *event) error {
		content, calls := a.split(ev)
		c := chunkChoice{Index: ev.Index, FinishReason: finishReason(ev.Finish), StopReason: stopReason(&ev.Event)}
		if content != "" {
			c.Delta.Content = &content
		}
		for _, call := range calls {
			c.Delta.ToolCalls = append(c.Delta.ToolCalls, callDelta{call.index, call})
		}
		if ev.HasToken && r.logProbs {
			c.LogProbs = &chatLogProbs{}
			c.LogProbs.addEvent(s, &ev.Event)
		}
		if ev.HasToken && r.returnIDs {
			c.TokenIDs = []int32{ev.Token}
		}
		if c.Delta.Content == nil && calls == nil && c.FinishReason == nil && c.LogProbs == nil && c.TokenIDs == nil {
			return nil // text that is held back
		}
		return e.send(a.chunk(c))
	})
	if err != nil || !r.includeUsage {
		return err
	}
	last := a.chunk()
	last.Usage = &usageField{&a.job.usage}
	return e.send(last)
}

func (a *chatAnswer) chunk(choices ...chunkChoice) *chatChunk {
	if choices == nil {
		choices = []chunkChoice{}
	}
	return &chatChunk{ID: a.id, Object: "chat.completion.chunk", Created: a.created, Model: a.request.model.name,
		Choices: choices, Usage: a.job.chunkUsage()}
}
