package rl

import "context"

// Learner moves a policy: by its optimizer, at the rate of its schedule. Every trainer embeds one.
// The number of steps taken is the optimizer's.
type Learner struct {
	Policy *Policy
	// Exclusive runs f while nobody else uses the policy's backend; nil: nobody else ever does.
	Exclusive func(ctx context.Context, f func() error) error
	// Watch is told how far a step is, from the goroutine that steps, so it must not be slow; nil:
	// nobody watches.
	Watch func(Progress)

	progress  Progress
	schedule  *Schedule
	optimizer *AdamW
}

// NewLearner allocates the optimizer's moments in the model's arena.
func NewLearner(p *Policy, o AdamWOptions, s ScheduleOptions) (*Learner, error) {
	schedule, err := NewSchedule(s)
	if err != nil {
		return nil, err
	}
	optimizer, err := NewAdamW(p.Model.Arena, p.Trained(), o)
	if err != nil {
		return nil, err
	}
	return &Learner{Policy: p, schedule: schedule, optimizer: optimizer}, nil
}

// Progress is how far a step is, in completions. What is scored counts every forward: under the
// reference, to freeze old log-probs, and before each backward.
type Progress struct {
	Sampled          int // completions that the step drew; 0: it drew none, or has not yet
	Scored, ToScore  int
	Trained, ToTrain int // that a backward has used; ToTrain 0: training has not begun
}

// Sampled tells the watcher that n completions were drawn.
func (l *Learner) Sampled(n int) { l.tell(Progress{Sampled: n}) }

// Expect tells the watcher how many completions the step is going to score and train on.
func (l *Learner) Expect(toScore, toTrain int) {
	l.tell(Progress{Sampled: l.progress.Sampled, ToScore: toScore, ToTrain: toTrain})
}

// Scored tells the watcher that n more completions went through a forward.
func (l *Learner) Scored(n int) {
	p := l.progress
	p.Scored += n
	l.tell(p)
}

// Trained tells the watcher that n more completions went through a backward.
func (l *Learner) Trained(n int) {
	p := l.progress
	p.Trained += n
	l.tell(p)
}

func (l *Learner) tell(p Progress) {
	l.progress = p
	if l.Watch != nil {
		l.Watch(p)
	}
}

// Alone runs f with the backend to itself.
func (l *Learner) Alone(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.Exclusive == nil {
		return f()
	}
	return l.Exclusive(ctx, f)
}

// Move takes one optimizer step along the accumulated gradients, in place, counts the policy's
// version up and adds grad_norm and learning_rate to the figures. On an error nothing has moved.
func (l *Learner) Move(stats *Stats) error {
	rate := l.schedule.Rate(l.Steps())
	norm, err := l.optimizer.Step(rate)
	if err != nil {
		return err
	}
	l.Policy.Updated()
	stats.Set("grad_norm", norm)
	stats.Set("learning_rate", rate)
	return nil
}

// Steps is the number of optimizer steps taken.
func (l *Learner) Steps() int { return l.optimizer.Steps() }

// Optimizer is the owner of the moments, for checkpoints. Its Export and Import use the backend.
func (l *Learner) Optimizer() *AdamW { return l.optimizer }
