package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"

	"graft/cmd/internal/launch"
	"graft/infer"
	"graft/model/template"
	"graft/model/tokenizer"
)

type chatCmd struct {
	modelOptions
	SystemPrompt string   `help:"System message of the conversation." placeholder:"TEXT"`
	MaxTokens    int      `help:"Most tokens of an answer." default:"512" placeholder:"N"`
	Temperature  float64  `help:"0 takes the most probable token; above 0 draws." default:"0" placeholder:"T"`
	TopP         float64  `help:"Draw from the most probable tokens with this much probability; 1: all." default:"1" placeholder:"P"`
	TopK         int      `help:"Draw from the K most probable tokens; 0: all." placeholder:"K"`
	MinP         float64  `help:"Draw from tokens at least this probable, relative to the best; 0: all." placeholder:"P"`
	Stop         []string `help:"End an answer where one of these texts begins." sep:"none" placeholder:"TEXT"`
	Seed         uint64   `help:"Decides every draw." default:"42" placeholder:"N"`
}

// Help is the manual's long text.
func (chatCmd) Help() string {
	return "Every line of standard input is a message; answers stream to standard output. /new begins another conversation, /quit or the end of the input ends. Ctrl-C stops an answer, and at the prompt ends. A model without a chat template continues each line as text."
}

func (h chatCmd) check() error {
	s := samplingOptions{NumGenerations: 1, MaxCompletionLength: 1, Temperature: h.Temperature, TopP: h.TopP, TopK: h.TopK, MinP: h.MinP, MaxNumSeqs: 1}
	return checks(h.modelOptions.check(), s.check(), between("max-tokens", h.MaxTokens, 1, 1<<24, "an answer has at least one token"))
}

// conversation is a chat under way.
type conversation struct {
	h        chatCmd
	session  *session
	messages []any // of *template.Map
	turn     uint32
}

// Run reads messages and answers them.
func (h chatCmd) Run(c *console) error {
	if err := h.check(); err != nil {
		return err
	}
	s, err := h.sampling(c, launch.Answering, 1)
	if err != nil {
		return err
	}
	defer s.close()
	tok := s.source.Files.Tokenizer
	if tok == nil {
		return fmt.Errorf("%s holds no tokenizer, so there is no text to talk in", s.source.Model)
	}
	if tok.ChatTemplate() == "" && h.SystemPrompt != "" {
		return usage("--system-prompt needs a chat template, which %s does not have", s.source.Model)
	}
	with := ""
	if s.source.Adapter != "" {
		with = " with " + s.source.Adapter
	}
	interactive := isTerminal(c.in)
	if interactive {
		c.talk.say("%s%s on %s, precision %s. /new begins again, /quit ends.", s.source.Model, with, s.backend.Name(), s.loaded.Model.Precision)
	}
	talk := &conversation{h: h, session: s}
	talk.reset()
	ctx, done := c.stop.immediate()
	defer done()
	input := readLines(c.in)
	for {
		if interactive {
			fmt.Fprint(c.talk.w, "> ")
		}
		var line string
		select {
		case <-ctx.Done():
			return nil
		case l, ok := <-input.lines:
			if !ok {
				return input.err
			}
			line = l
		}
		switch line {
		case "":
			continue
		case "/quit":
			return nil
		case "/new":
			talk.reset()
			continue
		}
		if name, ok := command(line); ok {
			c.talk.say("%s is no command; there are /new and /quit", name)
			continue
		}
		one, end := c.stop.answering(ctx)
		err := talk.answer(one, c.out, line)
		cut := one.Err() != nil && ctx.Err() == nil
		end()
		if cut && errors.Is(err, context.Canceled) {
			c.talk.say("(stopped; Ctrl-C at the prompt ends)")
			continue
		}
		if err != nil && ctx.Err() != nil {
			return nil // a signal ends the program as /quit does
		}
		if err != nil {
			return err
		}
	}
}

// command tells whether a line is meant as a command: a slash with one word of letters. What else
// begins with a slash, such as a path, is a message.
func command(line string) (name string, ok bool) {
	name, isSlash := strings.CutPrefix(line, "/")
	return line, isSlash && name != "" && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) })
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// lineReader hands lines over so that a signal can end the wait for one.
type lineReader struct {
	lines chan string
	err   error // set before lines is closed
}

func readLines(in io.Reader) *lineReader {
	r := &lineReader{lines: make(chan string)}
	go func() {
		defer close(r.lines)
		scan := bufio.NewScanner(in)
		scan.Buffer(nil, 16<<20)
		for scan.Scan() {
			r.lines <- strings.TrimSpace(scan.Text())
		}
		r.err = scan.Err()
	}()
	return r
}

func (v *conversation) reset() {
	v.messages = nil
	if v.h.SystemPrompt != "" {
		v.messages = []any{template.NewMap("role", "system", "content", v.h.SystemPrompt)}
	}
}

// answer streams the answer to one message and remembers both.
func (v *conversation) answer(ctx context.Context, out io.Writer, line string) error {
	tok := v.session.source.Files.Tokenizer
	var ids []int32
	var err error
	if tok.ChatTemplate() != "" {
		v.messages = append(v.messages, template.NewMap("role", "user", "content", line))
		ids, err = launch.Conversation(tok, v.messages, true)
	} else {
		ids, err = tok.Encode(line, tokenizer.EncodeOptions{AddSpecial: true, PlainText: true})
	}
	if err != nil {
		return err
	}
	room := v.h.maxLen(v.session) - len(ids)
	if room < 1 {
		return fmt.Errorf("the conversation has %d tokens and the model is loaded for %d positions; begin again with /new, or raise --max-model-len", len(ids), v.h.maxLen(v.session))
	}
	stream, err := v.session.engine.Submit(ctx, infer.Request{Prompt: ids, Params: infer.Params{MaxTokens: min(v.h.MaxTokens, room),
		Temperature: v.h.Temperature, TopP: v.h.TopP, TopK: v.h.TopK, MinP: v.h.MinP, Stop: v.h.Stop, Seed: v.h.Seed,
		Draw: [3]uint32{0, v.turn, 0}, Adapter: v.session.adapter()}})
	if err != nil {
		return err
	}
	defer stream.Close()
	v.turn++
	var text strings.Builder
	defer func() { // also of an answer that was stopped: the next message may be about it
		v.messages = append(v.messages, template.NewMap("role", "assistant", "content", text.String()))
	}()
	for {
		ev, ok := stream.Next(ctx)
		if !ok {
			break
		}
		if ev.Err != nil {
			fmt.Fprintln(out)
			return ev.Err
		}
		text.WriteString(ev.Text)
		if _, err := io.WriteString(out, ev.Text); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	return ctx.Err()
}
