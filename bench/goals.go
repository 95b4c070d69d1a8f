package main

import (
	"fmt"
	"strings"
)

// What a row can be asked for; result.figure computes each.
const (
	ofRatio   = "ratio"   // ours / theirs, in tokens per second
	ofMemory  = "memory"  // ours / theirs, in peak resident bytes
	ofRoof    = "roof"    // share of the roof
	ofPart    = "part"    // of our own prefill rate
	ofKept    = "kept"    // speed beside a busy process / speed alone
	ofCost    = "cost"    // time / time of the inexact variant − 1
	ofGrowth  = "growth"  // growth of the time / growth that the arithmetic says
	ofSeconds = "seconds" // the measured time itself
)

// goal is what is asked of a row.
type goal struct {
	Of    string   `json:"of"`
	Least *float64 `json:"at_least,omitempty"`
	Most  *float64 `json:"at_most,omitempty"`
	Got   *float64 `json:"got"` // nil: not measured
	Met   *bool    `json:"met"` // nil: not measured

	narrow *float64 // replaces Least on processors without AVX-512
}

func atLeast(of string, x float64) goal { return goal{Of: of, Least: &x} }
func atMost(of string, x float64) goal  { return goal{Of: of, Most: &x} }

// prefillGoals: llama.cpp is asked to be beaten by more where instructions of 512 bits help.
func prefillGoals() []goal { return []goal{{Of: ofRatio, Least: of(1.5), narrow: of(1.2)}} }

func of(x float64) *float64 { return &x }

// settle fills in what was reached. wide: the processor has AVX-512.
func (g goal) settle(got *float64, wide bool) goal {
	if g.narrow != nil && !wide {
		g.Least = g.narrow
	}
	if got == nil {
		return g
	}
	met := (g.Least == nil || *got >= *g.Least) && (g.Most == nil || *got <= *g.Most)
	g.Got, g.Met = got, &met
	return g
}

// String is what the table shows: "ratio 2.70 ≥ 1.5 yes".
func (g goal) String() string {
	bound, sign := g.Least, "≥"
	if bound == nil {
		bound, sign = g.Most, "≤"
	}
	got, met := "?", ""
	if g.Got != nil {
		got, met = g.text(*g.Got), " NO"
		if *g.Met {
			met = " yes"
		}
	}
	return fmt.Sprintf("%s %s %s %s%s", g.Of, got, sign, g.text(*bound), met)
}

func (g goal) text(x float64) string {
	switch g.Of {
	case ofRoof, ofMemory, ofCost:
		return fmt.Sprintf("%.0f%%", 100*x)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.2f", x), "0")
}

func goalsText(goals []goal) string {
	if len(goals) == 0 {
		return "-"
	}
	texts := make([]string, len(goals))
	for i, g := range goals {
		texts[i] = g.String()
	}
	return strings.Join(texts, "; ")
}
