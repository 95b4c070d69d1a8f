package main

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/guptarohit/asciigraph"

	"graft/rl"
)

// totals are the running figures of a run; a checkpoint holds those that a resumed run needs.
type totals struct {
	sampled, trained      float64 // tokens
	compared, mismatch    float64 // tokens
	mismatchMax           float64
	seconds               float64 // of steps and evaluations
	sampling, learning    float64
	judging               float64
	scoreFirst, scoreLast float64 // reward, or what the command trains on
	scored                bool
	evalBefore            float64
	evaluated             bool

	curve []float64 // scores of this process
	saved int       // step of the last checkpoint
}

// add counts a step. figure is the one that the curve shows.
func (t *totals) add(s rl.Stats, figure string, took time.Duration) {
	t.sampled += s.Get("tokens_sampled")
	t.trained += s.Get("tokens_trained")
	t.compared += s.Get("mismatch_compared")
	t.mismatch += s.Get("mismatch_tokens")
	t.mismatchMax = max(t.mismatchMax, s.Get("mismatch_max"))
	t.sampling += s.Get("sample_seconds")
	t.learning += s.Get("train_seconds")
	t.judging += s.Get("reward_seconds")
	t.seconds += took.Seconds()
	if v, ok := s.Values[figure]; ok && !math.IsNaN(v) {
		if !t.scored {
			t.scoreFirst, t.scored = v, true
		}
		t.scoreLast = v
		t.curve = append(t.curve, v)
	}
}

// fields lists what a checkpoint keeps.
func (t *totals) fields() map[string]*float64 {
	return map[string]*float64{
		"tokens_sampled": &t.sampled, "tokens_trained": &t.trained, "mismatch_compared": &t.compared, "mismatch_tokens": &t.mismatch,
		"mismatch_max": &t.mismatchMax, "seconds": &t.seconds, "sample_seconds": &t.sampling, "train_seconds": &t.learning,
		"reward_seconds": &t.judging, "score_first": &t.scoreFirst, "score_last": &t.scoreLast, "eval_before": &t.evalBefore,
	}
}

func (t *totals) counters() map[string]rl.Number {
	out := map[string]rl.Number{}
	for name, v := range t.fields() {
		out[name] = rl.Number(*v)
	}
	for name, v := range map[string]bool{"scored": t.scored, "evaluated": t.evaluated} {
		if v {
			out[name] = 1
		}
	}
	return out
}

func (t *totals) restore(c map[string]rl.Number) {
	for name, v := range t.fields() {
		*v = float64(c[name])
	}
	t.scored, t.evaluated = c["scored"] == 1, c["evaluated"] == 1
}

// summary is what the figures say at the end; rewards says that the score is a reward.
func (t *totals) summary(steps int, rewards bool) rl.Summary {
	s := rl.Summary{Steps: steps, TokensSampled: int64(t.sampled), TokensTrained: int64(t.trained), MismatchTokens: int64(t.mismatch),
		MismatchMax: t.mismatchMax, Seconds: t.seconds, SampleSeconds: t.sampling, TrainSeconds: t.learning, RewardSeconds: t.judging}
	if t.scored && rewards {
		first, last := t.scoreFirst, t.scoreLast
		s.RewardFirst, s.RewardLast = &first, &last
	}
	if t.evaluated {
		before := t.evalBefore
		s.EvalBefore = &before
	}
	return s
}

// curveRange is the scale of a curve. It does not follow each value: scores that all lie in 0 to 1
// have that, others the whole steps of 1, 2 or 5 times a power of ten around all of them. So it
// changes only when a score goes beyond it, and what it is stands beside the curve.
func curveRange(values []float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	if low >= 0 && high <= 1 {
		return 0, 1
	}
	step := niceStep(max(high-low, math.Abs(low)/8, math.Abs(high)/8))
	low, high = math.Floor(low/step)*step, math.Ceil(high/step)*step
	if low == high {
		high += step
	}
	return low, high
}

// niceStep is the least of 1, 2 and 5 times a power of ten that is not below x.
func niceStep(x float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, n := range []float64{1, 2, 5} {
		if n*unit >= x {
			return n * unit
		}
	}
	return 10 * unit
}

// curve draws all scores on their scale, with its ends beside it, in at most width columns: "" where
// they leave no room for it.
func curve(values []float64, width int) string {
	low, high := curveRange(values)
	from, to := fmt.Sprintf("%.4g", low), fmt.Sprintf("%.4g", high)
	if width -= len(from) + len(to) + 2; width < 3 {
		return ""
	}
	return from + "▕" + spark(values, width, low, high) + "▏" + to
}

// spark is scores in eight heights between low and high: width means over equal stretches of the run.
func spark(values []float64, width int, low, high float64) string {
	if n := len(values); n > width {
		means := make([]float64, width)
		for i := range means {
			from, to := i*n/width, (i+1)*n/width
			for _, v := range values[from:to] {
				means[i] += v / float64(to-from)
			}
		}
		values = means
	}
	var b strings.Builder
	for _, v := range values {
		level := int((v - low) / (high - low) * 8)
		b.WriteRune([]rune("▁▂▃▄▅▆▇█")[max(0, min(7, level))])
	}
	return b.String()
}

// widest is the longest curve of a step's line, with its scale.
const widest = 30

// show prints a step's line: one line of the terminal, whose curve takes what the rest leaves.
func (t *training) show(done int, s rl.Stats, took time.Duration) {
	if done%t.run.LoggingSteps != 0 && done != t.optim.MaxSteps && done != 1 {
		return
	}
	v, scored := s.Values[t.figure]
	head, tail := fmt.Sprintf("step %*d/%d", len(fmt.Sprint(t.optim.MaxSteps)), done, t.optim.MaxSteps), ""
	if scored {
		head += fmt.Sprintf("  %s %.3f", t.figure, v)
	}
	if v, ok := s.Values["loss"]; ok && t.figure != "loss" && !t.sampled {
		tail += fmt.Sprintf("  loss %.4f", v)
	}
	tail += fmt.Sprintf("  %.0f tokens/s", (s.Get("tokens_sampled")+s.Get("tokens_trained"))/max(took.Seconds(), 1e-9))
	if t.sampled {
		tail += fmt.Sprintf("  mismatch %.0f/%.0f", s.Get("mismatch_tokens"), s.Get("mismatch_compared"))
	}
	tail += "  " + share(t.session.resident(), t.session.plan.Total())
	if room := min(widest, t.c.talk.width-len(head)-len(tail)-2); scored {
		if drawn := curve(t.total.curve, room); drawn != "" {
			head += " " + drawn
		}
	}
	t.c.talk.say("%s", head+tail)
	switch {
	case t.sampled && t.batch != nil && unscored(t.batch()):
		t.c.talk.say("  no reward applied to any completion (all were None): nothing to learn from; rltrain reward test shows why")
	case t.sampled && s.Get("frac_reward_zero_std") == 1:
		t.c.talk.say("  all groups equal: nothing to learn from")
	}
}

// unscored tells whether a batch has completions and none of them a reward.
func unscored(batch []rl.Rollout) bool {
	for i := range batch {
		if batch[i].Scored {
			return false
		}
	}
	return len(batch) > 0
}

// share is the process's memory at its peak beside the planned one, in the unit of that.
func share(used, planned int64) string {
	unit, name := 1<<20, "MiB"
	if planned >= 10<<30 {
		unit, name = 1<<30, "GiB"
	}
	return fmt.Sprintf("%.0f/%.0f %s", float64(used)/float64(unit), float64(planned)/float64(unit), name)
}

// phase is what a step does besides sampling, as its trainer tells it.
type phase struct {
	since atomic.Int64 // nanoseconds of its beginning; 0: it is not running
	last  atomic.Int64 // nanoseconds that the last one took; 0: there was none
	at    atomic.Pointer[rl.Progress]
}

func (p *phase) begin() { p.since.Store(time.Now().UnixNano()) }

func (p *phase) running() bool { return p.since.Load() != 0 }

// tell takes what the trainer says.
func (p *phase) tell(at rl.Progress) { p.at.Store(&at) }

// reached is what the trainer said last in this step.
func (p *phase) reached() rl.Progress {
	if at := p.at.Load(); at != nil {
		return *at
	}
	return rl.Progress{}
}

func (p *phase) end() {
	p.at.Store(nil)
	if since := p.since.Swap(0); since != 0 {
		p.last.Store(max(1, time.Now().UnixNano()-since))
	}
}

// backwardCost is what a backward costs, in forwards.
const backwardCost = 2

// line says how far the training half of the step that is called what is, in completions, and how
// long the last one took.
func (p *phase) line(what string) string {
	took, last := time.Duration(time.Now().UnixNano()-p.since.Load()), time.Duration(p.last.Load())
	at := p.reached()
	if at.Sampled > 0 {
		what += fmt.Sprintf(" sampled %d/%d", at.Sampled, at.Sampled)
	}
	what += fmt.Sprintf(" scored %d/%d trained %d/%d %s %.1f", at.Scored, at.ToScore, at.Trained, at.ToTrain,
		bar(at.Scored+backwardCost*at.Trained, at.ToScore+backwardCost*at.ToTrain, 8), took.Seconds())
	if last == 0 {
		return what + " s"
	}
	return what + fmt.Sprintf("/%.1f s", last.Seconds())
}

// graph draws the whole curve on a terminal.
func (t *training) graph() {
	if !t.c.talk.screen || len(t.total.curve) < 4 {
		return
	}
	t.c.talk.say("\n%s\n", asciigraph.Plot(smooth(t.total.curve), asciigraph.Height(8), asciigraph.Width(min(72, t.c.talk.width-12)), asciigraph.Caption(t.figure+" by step")))
}

// smooth is the mean over five neighbours.
func smooth(x []float64) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		n := 0.0
		for j := max(0, i-2); j < min(len(x), i+3); j++ {
			out[i] += x[j]
			n++
		}
		out[i] /= n
	}
	return out
}
