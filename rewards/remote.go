package rewards

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"graft/rewards/child"
)

// remote is a reward in a long-lived child that speaks JSON lines.
type remote struct {
	name   string
	path   string
	args   []string
	greets bool          // the child sends a line of its own once it is ready
	ready  time.Duration // longest that this line may take; 0: as long as the caller waits
	stderr io.Writer

	mu     sync.Mutex
	proc   *child.Process // nil: not running
	id     int64          // of the last request
	deaths int            // in a row
	last   error          // why the child died last
	closed bool
}

// wireSample is a sample in the line a child gets; the package comment shows it.
type wireSample struct {
	Prompt        string           `json:"prompt"`
	Messages      []map[string]any `json:"messages,omitempty"`
	Completion    string           `json:"completion"`
	CompletionIDs []int32          `json:"completion_ids"`
	PromptIDs     []int32          `json:"prompt_ids"`
	Truncated     bool             `json:"truncated"`
	Columns       map[string]any   `json:"columns"`
	Step          int              `json:"step"`
	Group         int              `json:"group"`
	Index         int              `json:"index"`
}

// response is the line a child sends back.
type response struct {
	ID     *int64            `json:"id"`
	Scores []json.RawMessage `json:"scores"`
	Error  *string           `json:"error"`
	Kind   Kind              `json:"kind"` // of the error; the Python driver sets it
}

// Name is the spec.
func (r *remote) Name() string { return r.name }

// Start starts the child if it does not run.
func (r *remote) Start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.start(ctx)
}

func (r *remote) start(ctx context.Context) error {
	switch {
	case r.closed:
		return fmt.Errorf("reward %s: used after Close", r.name)
	case r.proc != nil:
		return nil
	case r.deaths >= 2:
		return &Error{Reward: r.name, Kind: KindCrash, Err: r.last,
			Detail: fmt.Sprintf("its process died %d times in a row and is not started again; the last time: %v", r.deaths, r.last),
			Remedy: "correct the reward and resume the run"}
	}
	proc, err := child.Start(child.Config{
		Path: r.path, Args: r.args, Stderr: r.stderr,
		Env:     []string{"GRAFT_REWARD=" + r.name},
		Prefix:  fmt.Sprintf("[reward %s] ", r.name),
		MaxLine: 64 << 20,
	})
	if err != nil {
		return &Error{Reward: r.name, Kind: KindStart, Err: err,
			Detail: fmt.Sprintf("cannot start %q: %v", r.path, err),
			Remedy: "install the program or correct its path (for py: GRAFT_PYTHON names the interpreter)"}
	}
	r.proc, r.id = proc, 0
	if !r.greets {
		return nil
	}
	wait := ctx
	if r.ready > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, r.ready)
		defer cancel()
	}
	line, err := proc.Next(wait)
	if err != nil && ctx.Err() == nil && errors.Is(wait.Err(), context.DeadlineExceeded) {
		err = &Error{Reward: r.name, Kind: KindTimeout, Err: context.DeadlineExceeded,
			Detail: fmt.Sprintf("its file was not loaded within %v", r.ready),
			Remedy: "move what takes long out of the top of the file, or into the function"}
	}
	if err != nil {
		return r.died(err)
	}
	if _, err := r.decode(line, nil); err != nil {
		return r.died(err)
	}
	return nil
}

// Score sends the batch and reads the scores.
func (r *remote) Score(ctx context.Context, samples []Sample) ([]Score, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	r.id++
	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	id := r.id
	answer, err := r.proc.Call(sending, func(w io.Writer) error {
		err := writeRequest(w, id, samples)
		if own := (*unfitError)(nil); errors.As(err, &own) {
			stop(own)
		}
		return err
	})
	if own := (*unfitError)(nil); errors.As(context.Cause(sending), &own) {
		r.proc.Kill() // it has half a line
		r.proc = nil
		return nil, &Error{Reward: r.name, Kind: KindColumn, Err: own,
			Detail: fmt.Sprintf("the batch is no JSON: %v", own), Remedy: "remove the column that has no JSON form"}
	}
	if err != nil {
		return nil, r.died(err)
	}
	scores, err := r.decode(answer, samples)
	var own *Error
	if errors.As(err, &own) && own.Kind == KindProtocol {
		return nil, r.died(err) // request and answer may be out of step from here on
	}
	if err == nil {
		r.deaths = 0
	}
	return scores, err
}

// died ends the child, counts the death and gives the error its form.
func (r *remote) died(err error) error {
	r.proc.Kill()
	r.proc = nil
	r.deaths++
	var exit *child.Exit
	switch {
	case errors.As(err, &exit):
		err = &Error{Reward: r.name, Kind: KindCrash, Err: exit, Detail: exit.Error(),
			Remedy: "correct the reward; the next batch starts it afresh"}
	case errors.Is(err, child.ErrLineTooLong):
		err = &Error{Reward: r.name, Kind: KindProtocol, Err: err,
			Detail: fmt.Sprintf("its answer is too long: %v", err), Remedy: "print nothing but one line of scores to stdout"}
	}
	r.last = err
	return err
}

// Close ends the child.
func (r *remote) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.proc != nil {
		r.proc.Close()
		r.proc = nil
	}
	return nil
}

// unfitError is a sample that has no JSON form.
type unfitError struct{ error }

func (e *unfitError) Unwrap() error { return e.error }

// writeRequest writes the line a child gets, a sample at a time: siblings repeat their row's columns, so
// the line can be many times what the dataset takes.
func writeRequest(w io.Writer, id int64, samples []Sample) error {
	if _, err := fmt.Fprintf(w, `{"id":%d,"samples":[`, id); err != nil {
		return err
	}
	for i := range samples {
		raw, err := json.Marshal(wire(&samples[i]))
		if err != nil {
			return &unfitError{err}
		}
		comma := ","
		if i == 0 {
			comma = ""
		}
		if _, err := io.WriteString(w, comma); err != nil {
			return err
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "]}")
	return err
}

func wire(s *Sample) wireSample {
	out := wireSample{
		Prompt: s.Prompt, Messages: s.Messages, Completion: s.Completion,
		CompletionIDs: append([]int32{}, s.CompletionIDs...), PromptIDs: append([]int32{}, s.PromptIDs...),
		Truncated: s.Truncated, Columns: s.Columns, Step: s.Step, Group: s.Group, Index: s.Index,
	}
	if s.Columns == nil {
		out.Columns = map[string]any{}
	}
	return out
}

// decode reads a child's answer to the request with r.id.
func (r *remote) decode(line []byte, samples []Sample) ([]Score, error) {
	var answer response
	err := json.Unmarshal(line, &answer)
	if err != nil {
		// Python's json.dumps and others write NaN and Infinity, which are no JSON. As
		// strings they reach the sample they belong to.
		err = json.Unmarshal(quoteNotFinite(line), &answer)
	}
	switch {
	case err != nil:
		return nil, r.protocol(line, fmt.Sprintf("is no answer: %v", err))
	case answer.ID == nil:
		return nil, r.protocol(line, "has no id")
	case *answer.ID != r.id:
		return nil, r.protocol(line, fmt.Sprintf("has id %d, the request had %d", *answer.ID, r.id))
	case answer.Error != nil:
		kind := answer.Kind
		if kind == "" {
			kind = KindRaised
		}
		return nil, &Error{Reward: r.name, Kind: kind, Detail: *answer.Error}
	case answer.Scores == nil:
		return nil, r.protocol(line, "has neither scores nor an error")
	case len(answer.Scores) != len(samples):
		return nil, &Error{Reward: r.name, Kind: KindCount,
			Detail: fmt.Sprintf("%d scores for %d samples (step %d)", len(answer.Scores), len(samples), stepOf(samples)),
			Remedy: "return exactly one score per completion, null or None for one that does not apply"}
	}
	scores := make([]Score, len(samples))
	for i, raw := range answer.Scores {
		score, ok := scoreOf(raw)
		if !ok {
			return nil, &Error{Reward: r.name, Kind: KindNotNumber, Sample: &samples[i],
				Detail: "score is " + shown(raw),
				Remedy: "return a number, or null or None for a sample that does not apply"}
		}
		scores[i] = score
	}
	return scores, verify(r.name, samples, scores)
}

func (r *remote) protocol(line []byte, what string) error {
	text := string(line)
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return &Error{Reward: r.name, Kind: KindProtocol,
		Detail: fmt.Sprintf("its line %q %s", text, what),
		Remedy: `answer each request with one line {"id":ID,"scores":[...]} and print everything else to stderr`}
}

// quoteNotFinite puts quotes around NaN and Infinity.
func quoteNotFinite(line []byte) []byte {
	bare := regexp.MustCompile(`([\[,:\s])(NaN|-?Infinity)\b`)
	return bare.ReplaceAll(line, []byte(`$1"$2"`))
}

// scoreOf reads one entry of scores: a number, a bool, null, or the name of a number that
// JSON lacks.
func scoreOf(raw json.RawMessage) (Score, bool) {
	text := string(bytes.TrimSpace(raw))
	switch strings.Trim(strings.ToLower(text), `"`) {
	case "null":
		return Score{Skip: true}, text == "null"
	case "true", "false":
		return indicator(text == "true"), text == "true" || text == "false"
	case "nan":
		return Score{Value: math.NaN()}, true
	case "inf", "infinity":
		return Score{Value: math.Inf(1)}, true
	case "-inf", "-infinity":
		return Score{Value: math.Inf(-1)}, true
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return Score{}, false
	}
	return Score{Value: value}, true // out of range is ±Inf, which the contract refuses
}

// shown is a score that is no number, as the Python driver or the program wrote it.
func shown(raw json.RawMessage) string {
	var value struct{ Type, Shown string }
	if json.Unmarshal(raw, &value) == nil && value.Type != "" {
		return fmt.Sprintf("%s, a %s", value.Shown, value.Type)
	}
	if len(raw) > 80 {
		return string(raw[:80]) + "…"
	}
	return string(raw)
}

// standardError is where the words of children go.
func standardError() io.Writer { return os.Stderr }
