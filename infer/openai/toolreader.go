package openai

import (
	"strings"

	"graft/infer"
)

// finishCalls is how a choice ends that has called a tool.
const finishCalls infer.FinishReason = "tool_calls"

// callReader takes the calls out of one choice's text, which comes in pieces. What may be the beginning
// of a call is held; text that turns out to be none stays content, to the byte. White space beside a
// call is dropped. What it tells does not depend on how the text is cut.
type callReader struct {
	*toolset
	held   string
	inside bool // what is held begins, behind lead bytes, with the opener of a call
	lead   int
	called int  // calls told
	behind bool // nothing but white space since the last of them
	plain  bool // no call can follow
	span   jsonSpan
	seen   int // of held: searched for a closing tag
	tries  int // closing tags that did not close
}

// maxTries is how many closing tags may stand in the strings of one call.
const maxTries = 16

// status is what is known of a block that may be a call.
type status uint8

const (
	open status = iota // more text decides
	good
	bad
)

const white = " \t\r\n"

// event takes the text of an event and returns what of it, and of what was held, is content and what
// are calls. A choice that stops after a call finishes for that reason.
func (r *callReader) event(ev *event) (content string, calls []toolCall) {
	r.held += ev.Text
	if ev.HasToken {
		r.held += r.hidden[ev.Token]
	}
	content, calls = r.read(ev.Finish != "")
	for i := range calls {
		calls[i].Type = "function"
		if calls[i].ID == "" {
			calls[i].ID = r.form.newID()
		}
		calls[i].index = r.called
		r.called++
	}
	if r.called > 0 && ev.Finish == infer.FinishStop {
		ev.Finish = finishCalls
	}
	return content, calls
}

// read goes through what is held. final: nothing follows.
func (r *callReader) read(final bool) (content string, calls []toolCall) {
	for {
		if !r.inside {
			var n int
			n, r.inside = r.find(final)
			content += r.text(n)
			if !r.inside {
				return content, calls
			}
			r.span, r.seen, r.tries = jsonSpan{}, 0, 0
		}
		n, found, what := r.block(final)
		if what == open {
			return content, calls
		}
		r.inside = false
		if what == good {
			calls = append(calls, found...)
			r.held, r.behind = r.held[n:], true
		} else {
			content += r.text(n)
		}
	}
}

// text cuts n bytes off what is held, as content.
func (r *callReader) text(n int) string {
	text := r.held[:n]
	r.held = r.held[n:]
	if r.behind {
		if text = strings.TrimLeft(text, white); text != "" {
			r.behind = false
		}
	}
	return r.strip(text)
}

// find tells how much of what is held is content, and whether a call may begin behind it.
func (r *callReader) find(final bool) (n int, inside bool) {
	if r.form == bareCalls {
		return r.findBare(final)
	}
	opener := r.form.opener()
	if at := strings.Index(r.held, opener); at >= 0 {
		n = len(strings.TrimRight(r.held[:at], white))
		r.lead = at - n
		return n, true
	}
	if final {
		return len(r.held), false
	}
	n = len(r.held)
	for k := min(len(opener)-1, n); k > 0; k-- {
		if strings.HasSuffix(r.held, opener[:k]) {
			n -= k
			break
		}
	}
	return len(strings.TrimRight(r.held[:n], white)), false
}

// findBare: a reply is calls from its beginning, or it is text.
func (r *callReader) findBare(final bool) (n int, inside bool) {
	if r.plain {
		return len(r.held), false
	}
	skip := white
	if r.called > 0 || r.behind {
		skip += ";"
	}
	rest := strings.TrimLeft(r.held, skip)
	rest = strings.TrimLeft(strings.TrimPrefix(rest, pythonTag), white)
	switch {
	case rest != "" && (rest[0] == '{' || rest[0] == '['):
		r.lead = len(r.held) - len(rest)
		return 0, true
	case !final && strings.HasPrefix(pythonTag, rest): // also when there is nothing yet
		return 0, false
	}
	r.plain = true
	return len(r.held), false
}

// block reads the call that may begin behind lead. n is how much of what is held it takes, or, when it
// is none, how much of it is content for sure.
func (r *callReader) block(final bool) (n int, calls []toolCall, what status) {
	switch r.form {
	case taggedCalls:
		return r.tagged(final)
	case bracketCalls:
		return r.bracketed(final)
	}
	if !r.span.scan(r.held, r.lead) {
		if final {
			r.plain = true
			return len(r.held), nil, bad
		}
		return 0, nil, open
	}
	n = r.span.at
	calls, ok := readCalls(r.held[r.lead:n])
	for i := range calls { // any JSON looks like this: it must name a tool
		_, known := r.tools[calls[i].Function.Name]
		ok = ok && known
	}
	if !ok {
		r.plain = true
		return n, nil, bad
	}
	return n, calls, good
}

// tagged reads up to the closing tag; a tag within a string of the call does not close it. At the end
// of the text the tag may be missing.
func (r *callReader) tagged(final bool) (n int, calls []toolCall, what status) {
	from := r.lead + len(tagOpen)
	for r.tries < maxTries {
		at := strings.Index(r.held[max(from, r.seen):], tagClose)
		if at < 0 {
			break
		}
		at += max(from, r.seen)
		r.seen = at + len(tagClose)
		calls, what = r.taggedCall(r.held[from:at])
		switch what {
		case good:
			return r.seen, calls, good
		case bad:
			return from, nil, bad
		}
		r.tries++
	}
	switch {
	case r.tries == maxTries:
		return from, nil, bad
	case final:
		if calls, what = r.taggedCall(r.held[from:]); what == good {
			return len(r.held), calls, good
		}
		return from, nil, bad
	}
	r.seen = max(from, len(r.held)-len(tagClose)+1, r.seen)
	return 0, nil, open
}

// bracketed reads a list of calls, or a name and its arguments.
func (r *callReader) bracketed(final bool) (n int, calls []toolCall, what status) {
	from := r.lead + len(bracketOpen)
	undecided := func() (int, []toolCall, status) {
		if final {
			return from, nil, bad
		}
		return 0, nil, open
	}
	rest := strings.TrimLeft(r.held[from:], white)
	if rest == "" {
		return undecided()
	}
	var call toolCall
	if rest[0] != '[' {
		var more bool
		if call, rest, more = bracketHead(rest); more {
			return undecided()
		}
		if call.Function.Name == "" || rest[0] != '{' {
			return from, nil, bad
		}
	}
	start := len(r.held) - len(rest)
	if !r.span.scan(r.held, start) {
		return undecided()
	}
	text := r.held[start:r.span.at]
	if call.Function.Name == "" {
		if calls, ok := readCalls(text); ok {
			return r.span.at, calls, good
		}
		return from, nil, bad
	}
	var ok bool
	if call.Function.Arguments, ok = argumentsOf([]byte(text)); !ok {
		return from, nil, bad
	}
	return r.span.at, []toolCall{call}, good
}
