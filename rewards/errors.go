package rewards

import (
	"fmt"
	"strings"
)

// Kind says in what way a reward broke its contract.
type Kind string

const (
	KindCount     Kind = "count"      // not exactly one score per sample
	KindNotFinite Kind = "not finite" // NaN or ±Inf
	KindNotNumber Kind = "not number" // a score that is no number and no null
	KindTimeout   Kind = "timeout"    // the deadline of the call passed
	KindCrash     Kind = "crash"      // a child process ended
	KindRaised    Kind = "raised"     // the user's function raised an exception
	KindProtocol  Kind = "protocol"   // a child answered something that is no answer
	KindStart     Kind = "start"      // a child process or its function could not be started
	KindColumn    Kind = "column"     // the dataset row lacks what the reward reads
)

// Error is a breach of the reward contract. Callers branch on Kind through errors.As.
type Error struct {
	Reward string  // the Name of the Func
	Kind   Kind    //
	Sample *Sample // the first sample at fault; nil when the whole batch is
	Detail string  // what happened, with the numbers
	Remedy string  // what to change
	Err    error   // the cause, if any
}

// Error names the reward, the sample and the remedy.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "reward %s: ", e.Reward)
	if e.Sample != nil {
		fmt.Fprintf(&b, "step %d group %d sample %d: ", e.Sample.Step, e.Sample.Group, e.Sample.Index)
	}
	b.WriteString(e.Detail)
	if e.Remedy != "" {
		fmt.Fprintf(&b, "; %s", e.Remedy)
	}
	return b.String()
}

// Unwrap gives the cause: context.DeadlineExceeded for a timeout, for example.
func (e *Error) Unwrap() error { return e.Err }
