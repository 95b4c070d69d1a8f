package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"
)

// side is what all runs of one side of a row gave.
type side struct {
	Who    string             `json:"who"`
	Values []float64          `json:"values"` // in order of the rounds, in the row's unit
	Median float64            `json:"median"`
	Spread float64            `json:"spread"`                 // (largest − smallest) / median
	Peak   int64              `json:"peak_bytes"`             // resident memory of the process, the largest of all runs; 0: unknown
	Roof   *float64           `json:"roof_share"`             // of what the machine allows for this work; nil: no roof is known
	Quiet  []float64          `json:"quiet_values,omitempty"` // kept: without the busy process
	Kept   *float64           `json:"kept,omitempty"`         // median beside the busy process / median without
	Tried  map[string]float64 `json:"tried_values,omitempty"` // a small trial in each precision; 0: given up
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

// row measures one row and keeps its lines.
func (c *comparison) row(ctx context.Context, r *row) error {
	var lines []result
	var err error
	switch r.Kind {
	case kindContext:
		lines, err = c.lengths(ctx, r)
	case kindSplit:
		lines, err = c.split(ctx, r)
	case kindStart:
		lines, err = c.start(ctx, r)
	default:
		lines, err = c.turns(ctx, r)
	}
	c.done = append(c.done, lines...)
	return err
}

// turns runs both sides of a row in turns, alone and, if the row says so, beside a busy process.
func (c *comparison) turns(ctx context.Context, r *row) ([]result, error) {
	path := filepath.Join(c.opt.models, r.Model)
	e, err := extentOf(path)
	if err != nil {
		return nil, err
	}
	res := &result{row: *r, Unit: tokensPerSecond, Ours: side{Who: "graft"}}
	us := c.ours(r, path)
	them, err := c.theirs(ctx, r, path)
	if err != nil {
		return nil, err
	}
	sides := []*side{&res.Ours}
	runners := []runner{us}
	if them != nil {
		defer func() { them.close() }()
		res.Theirs = &side{Who: them.name(), Tried: them.tried()}
		sides, runners = append(sides, res.Theirs), append(runners, them)
	}
	for round := range c.opt.rounds {
		for i, s := range sides {
			if err := c.once(ctx, res, s, runners[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", s.Who, err)
			}
		}
		fmt.Fprintf(c.talk, "  round %d: %s\n", round+1, roundText(sides, round))
	}
	for i, s := range sides {
		peak, err := runners[i].close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Who, err)
		}
		s.Peak = max(s.Peak, peak)
	}
	if res.Theirs == nil {
		res.Theirs = c.alike(r)
	}
	atRoof := float64(r.tokens()) / r.bound(e, c.roof)
	if r.Beside {
		atRoof = 0 // the busy process takes a share that is nobody's roof
	}
	res.finish(atRoof)
	return []result{*res}, nil
}

// once is one run of a side, or two in a row that is measured beside a busy process.
func (c *comparison) once(ctx context.Context, res *result, s *side, run runner) error {
	value, err := c.timed(ctx, res, s, run, false)
	if err != nil {
		return err
	}
	if !res.Beside {
		s.Values = append(s.Values, value)
		return nil
	}
	s.Quiet = append(s.Quiet, value)
	if value, err = c.timed(ctx, res, s, run, true); err != nil {
		return err
	}
	s.Values = append(s.Values, value)
	return nil
}

// timed does one run of a side and notes its memory and the load of others.
func (c *comparison) timed(ctx context.Context, res *result, s *side, run runner, beside bool) (rate float64, err error) {
	w := startWatch()
	spun := time.Duration(0)
	var spin *spinner
	if beside {
		if spin, err = startSpinner(ctx); err != nil {
			return 0, err
		}
		defer spin.stop()
	}
	got, err := run.run(ctx)
	if err != nil {
		return 0, err
	}
	if beside {
		if spun, err = spin.stop(); err != nil {
			return 0, err
		}
	}
	if got.Seconds <= 0 || got.Tokens <= 0 {
		return 0, fmt.Errorf("a run of %d tokens in %g s is no measurement", got.Tokens, got.Seconds)
	}
	res.load(w.others(got.used + spun))
	s.Peak = max(s.Peak, got.peak)
	return float64(got.Tokens) / got.Seconds, nil
}

// load notes what other processes took during a run.
func (res *result) load(others *float64) {
	if others != nil && (res.Others == nil || *others > *res.Others) {
		res.Others = others
	}
}

// alike takes the peer's runs of an earlier row that is the same work to it.
func (c *comparison) alike(r *row) *side {
	if other := c.find(r.like); other != nil && other.Theirs != nil {
		s := *other.Theirs
		s.Values = slices.Clone(s.Values)
		return &s
	}
	return nil
}

// find is an earlier line by its name.
func (c *comparison) find(name string) *result {
	for i := range c.done {
		if c.done[i].Name == name && name != "" {
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
	for i := range c.done {
		res := &c.done[i]
		if base := c.find(res.base); base != nil && base.Ours.Roof != nil && res.Ours.Roof != nil {
			res.Growth = quotient(*base.Ours.Roof, *res.Ours.Roof)
		}
		if whole := c.find(res.part); whole != nil {
			res.Part = quotient(res.Ours.Median, whole.Ours.Median)
		}
		res.Goals = make([]goal, len(res.goals))
		for j, g := range res.goals {
			res.Goals[j] = g.settle(res.figure(g.Of), wide)
		}
	}
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
