package rewards

import "context"

// Sample is one completion to be scored.
type Sample struct {
	Prompt        string           // the rendered prompt, as the model saw it
	Messages      []map[string]any // the chat prompt; nil when the dataset is not conversational
	Completion    string           // decoded completion, special tokens dropped
	CompletionIDs []int32          // [T] the sampled tokens, the truth behind Completion
	PromptIDs     []int32          // [P]
	Truncated     bool             // ended by the length limit, not by a stop token
	Columns       map[string]any   // the other columns of the dataset row (answer, ...)

	Step, Group, Index int // where the sample comes from: optimizer step, prompt in the step, sibling in the group
}

// Score is the verdict on one sample.
type Score struct {
	Value float64 // finite; meaningless when Skip
	Skip  bool    // not applicable to this sample: TRL's None. The weighted sum leaves it out
}

// Func is a reward. One goroutine calls it at a time.
type Func interface {
	// Name is the label of the reward in logs, metrics and errors: the spec it was parsed from.
	Name() string
	// Score judges a batch and returns exactly one Score for each sample, in order. It must
	// return soon after ctx is done.
	Score(ctx context.Context, samples []Sample) ([]Score, error)
	// Close ends what the reward started (a child process). It may be called more than once.
	Close() error
}

// Weighted is a reward and its factor in the total.
type Weighted struct {
	Func   Func
	Weight float64
}
