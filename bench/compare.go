package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"graft/kernels"
)

// side is what all runs of one side of a row gave.
type side struct {
	Who      string             `json:"who"`
	Values   []float64          `json:"values"` // in order of the rounds, in the row's unit
	Median   float64            `json:"median"`
	Spread   float64            `json:"spread"`                     // (largest − smallest) / median
	Peak     int64              `json:"peak_bytes"`                 // resident memory of the process, the largest of all runs; 0: unknown
	Roof     *float64           `json:"roof_share"`                 // of what the machine allows for this work; nil: no roof is known
	Sampling []float64          `json:"sampling_seconds,omitempty"` // the part of each run that was sampling
	Quiet    []float64          `json:"quiet_values,omitempty"`     // kept: without the busy process
	Kept     *float64           `json:"kept,omitempty"`             // median beside the busy process / median without
	Tried    map[string]float64 `json:"tried_values,omitempty"`     // a small trial in each precision; 0: given up
}

// result is a finished line.
type result struct {
	row
	Unit   string   `json:"unit"` // of values and medians
	Ours   side     `json:"ours"`
	Theirs *side    `json:"theirs"`      // nil: not measured
	Ratio  *float64 `json:"ratio"`       // ours / theirs
	Memory *float64 `json:"memory"`      // ours / theirs
	Part   *float64 `json:"part"`        // ours / our own prefill rate
	Growth *float64 `json:"growth"`      // growth of the time / growth by arithmetic
	Others *float64 `json:"other_cores"` // most that other processes took during a run; nil: unknown
	Goals  []goal   `json:"asked"`
}

// Units of values.
const (
	tokensPerSecond = "tok/s"
	callsPerSecond  = "calls/s"
	seconds         = "s"
)

// comparison is what every row needs.
type comparison struct {
	opt   *options
	peers *peers
	roof  Roof
	talk  io.Writer
	done  []result
}

// row measures one row and keeps its lines, one or more for each precision.
func (c *comparison) row(ctx context.Context, r *row) error {
	if against := r.Against; against == llamaName || against == peftName || against == trlName {
		lines, err := c.turns(ctx, r, c.opt.precisions)
		c.done = append(c.done, lines...)
		return err
	}
	for _, p := range c.opt.precisions {
		r := *r
		r.Precision = p.String()
		if r.Split == splitPositions {
			if p != c.opt.precisions[0] {
				continue
			}
			r.Precision = "" // no weights, one arithmetic
		}
		lines, err := c.alone(ctx, &r, p)
		if err != nil {
			return err
		}
		c.done = append(c.done, lines...)
	}
	return nil
}

// alone measures a row that no peer takes part in, under one precision.
func (c *comparison) alone(ctx context.Context, r *row, p kernels.Precision) ([]result, error) {
	switch r.Kind {
	case kindContext:
		return c.lengths(ctx, r)
	case kindSplit:
		return c.split(ctx, r)
	case kindStart:
		return c.start(ctx, r)
	}
	return c.turns(ctx, r, []kernels.Precision{p})
}

// entrant is one side that runs in turns, and the lines that its load belongs to.
type entrant struct {
	*side
	runner
	lines []*result
}

// turns runs ours in each precision and the other side in turns, alone and, if the row says so,
// beside a busy process. The other side runs once a round and stands in every line.
func (c *comparison) turns(ctx context.Context, r *row, precisions []kernels.Precision) ([]result, error) {
	path := filepath.Join(c.opt.models, r.Model)
	e, err := extentOf(path)
	if err != nil {
		return nil, err
	}
	lines := make([]*result, len(precisions))
	var field []entrant
	for i, p := range precisions {
		mine := *r
		mine.Precision = p.String()
		lines[i] = &result{row: mine, Unit: tokensPerSecond, Ours: side{Who: "graft " + p.String()}}
		field = append(field, entrant{&lines[i].Ours, c.ours(&mine, path), lines[i : i+1]})
	}
	them, err := c.theirs(ctx, &lines[0].row, path)
	if err != nil {
		return nil, err
	}
	theirs := c.alike(r)
	if them != nil {
		defer them.close()
		theirs = &side{Who: them.name(), Tried: them.tried()}
		field = append(field, entrant{theirs, them, lines})
	}
	if err := c.rounds(ctx, field); err != nil {
		return nil, err
	}
	atRoof := float64(r.tokens()) / r.bound(e, c.roof)
	if r.Beside {
		atRoof = 0 // the busy process takes a share that is nobody's roof
	}
	out := make([]result, len(lines))
	for i, line := range lines {
		if theirs != nil {
			same := *theirs
			line.Theirs = &same
		}
		line.finish(atRoof)
		out[i] = *line
	}
	return out, nil
}

// rounds lets every entrant run once a round.
func (c *comparison) rounds(ctx context.Context, field []entrant) error {
	for round := range c.opt.rounds {
		var sides []*side
		for _, f := range field {
			if err := c.once(ctx, f); err != nil {
				return fmt.Errorf("%s: %w", f.Who, err)
			}
			sides = append(sides, f.side)
		}
		fmt.Fprintf(c.talk, "  round %d: %s\n", round+1, roundText(sides, round))
	}
	for _, f := range field {
		peak, err := f.close()
		if err != nil {
			return fmt.Errorf("%s: %w", f.Who, err)
		}
		f.Peak = max(f.Peak, peak)
	}
	return nil
}

// once is one run of a side, or two in a row that is measured beside a busy process.
func (c *comparison) once(ctx context.Context, f entrant) error {
	got, err := c.timed(ctx, f, false)
	if err != nil {
		return err
	}
	if f.lines[0].Beside {
		f.Quiet = append(f.Quiet, got.rate())
		if got, err = c.timed(ctx, f, true); err != nil {
			return err
		}
	}
	f.Values = append(f.Values, got.rate())
	if got.Sampling > 0 {
		f.Sampling = append(f.Sampling, got.Sampling)
	}
	f.Peak = max(f.Peak, got.peak)
	return nil
}

// timed does one run of a side and notes the load of others.
func (c *comparison) timed(ctx context.Context, f entrant, beside bool) (got sample, err error) {
	w := startWatch()
	spun := time.Duration(0)
	var spin *spinner
	if beside {
		if spin, err = startSpinner(ctx); err != nil {
			return got, err
		}
		defer spin.stop()
	}
	if got, err = f.run(ctx); err != nil {
		return got, err
	}
	if beside {
		if spun, err = spin.stop(); err != nil {
			return got, err
		}
	}
	if got.Seconds <= 0 || got.Tokens <= 0 {
		return got, fmt.Errorf("a run of %d tokens in %g s is no measurement", got.Tokens, got.Seconds)
	}
	others := w.others(got.used + spun)
	for _, line := range f.lines {
		line.load(others)
	}
	return got, nil
}

// load notes what other processes took during a run.
func (res *result) load(others *float64) {
	if others != nil && (res.Others == nil || *others > *res.Others) {
		res.Others = others
	}
}

// alike takes the peer's runs of an earlier row that is the same work to it.
func (c *comparison) alike(r *row) *side {
	if other := c.find(r.like, c.opt.precisions[0].String()); other != nil {
		return other.Theirs
	}
	return nil
}

// find is an earlier line by its name and precision; nil: there is none.
func (c *comparison) find(name, precision string) *result {
	for i := range c.done {
		if c.done[i].Name == name && c.done[i].Precision == precision && name != "" {
			return &c.done[i]
		}
	}
	return nil
}

// finish computes what follows from the values. atRoof is the rate at the roof, 0 if there is none.
func (res *result) finish(atRoof float64) {
	res.Ours.finish(atRoof)
	if res.Theirs != nil {
		res.Theirs.finish(atRoof)
		res.Ratio = quotient(res.Ours.Median, res.Theirs.Median)
		res.Memory = quotient(float64(res.Ours.Peak), float64(res.Theirs.Peak))
	}
}

func (s *side) finish(atRoof float64) {
	s.Median, s.Spread = median(s.Values), spread(s.Values)
	s.Roof = quotient(s.Median, atRoof)
	if len(s.Quiet) > 0 {
		s.Kept = quotient(s.Median, median(s.Quiet))
	}
}

// relate computes the figures that compare lines with each other, then what of the asked is met.
func (c *comparison) relate(wide bool) {
	if mixed := c.mixed(); mixed != nil {
		c.done = append(c.done, *mixed)
	}
	for i := range c.done {
		res := &c.done[i]
		if base := c.find(res.base, res.Precision); base != nil && base.Ours.Roof != nil && res.Ours.Roof != nil {
			res.Growth = quotient(*base.Ours.Roof, *res.Ours.Roof)
		}
		if whole := c.find(res.part, res.Precision); whole != nil {
			res.Part = quotient(res.Ours.Median, whole.Ours.Median)
		}
		res.Goals = make([]goal, len(res.goals))
		for j, g := range res.goals {
			res.Goals[j] = g.settle(res.figure(g.Of), wide)
		}
	}
}

// mixed is the step that samples and trains each under the contract that is faster for it: what our
// own parts give if sampler and trainer need not agree. Ours is the faster contract for both. nil:
// only one precision was measured.
func (c *comparison) mixed() *result {
	sampling, training, count := math.Inf(1), math.Inf(1), 0
	var best *result
	for i := range c.done {
		res := &c.done[i]
		if res.Name != stepName || len(res.Ours.Sampling) == 0 {
			continue
		}
		count++
		s := median(res.Ours.Sampling)
		sampling, training = min(sampling, s), min(training, float64(res.tokens())/res.Ours.Median-s)
		if best == nil || res.Ours.Median > best.Ours.Median {
			best = res
		}
	}
	if count < 2 {
		return nil
	}
	mix := *best
	mix.Name, mix.Against, mix.Ours.Peak = mixName, "each half in its faster precision", 0
	mix.Theirs = &side{Who: mix.Against, Values: []float64{float64(best.tokens()) / (sampling + training)}}
	mix.finish(0)
	return &mix
}

// figure is what a goal is about; nil: not measured.
func (res *result) figure(of string) *float64 {
	switch of {
	case ofRatio:
		return res.Ratio
	case ofMemory:
		return res.Memory
	case ofRoof:
		return res.Ours.Roof
	case ofPart:
		return res.Part
	case ofKept:
		return res.Ours.Kept
	case ofGrowth:
		return res.Growth
	case ofSeconds:
		return &res.Ours.Median
	case ofCost:
		if res.Ratio == nil {
			return nil
		}
		cost := 1 / *res.Ratio - 1
		return &cost
	}
	return nil
}

// median is the middle value, or the mean of the middle two.
func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// spread is (largest − smallest) / median.
func spread(x []float64) float64 { return (slices.Max(x) - slices.Min(x)) / median(x) }

func quotient(a, b float64) *float64 {
	if a <= 0 || b <= 0 {
		return nil
	}
	q := a / b
	return &q
}

// roundText shows what each side did in a round.
func roundText(sides []*side, round int) string {
	text := ""
	for i, s := range sides {
		if i > 0 {
			text += " against "
		}
		text += fmt.Sprintf("%.4g", s.Values[round])
		if len(s.Quiet) > round {
			text += fmt.Sprintf(" (alone %.4g)", s.Quiet[round])
		}
	}
	return text + " " + tokensPerSecond
}
