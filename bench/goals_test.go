package main

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGoalIsMetAtItsBound(t *testing.T) {
	for _, c := range []struct {
		goal goal
		got  *float64
		wide bool
		met  *bool
		text string
	}{
		{atLeast(ofRatio, 1.2), of(1.2), true, yes(true), "ratio 1.2 ≥ 1.2 yes"},
		{atLeast(ofRatio, 1.2), of(1.19), true, yes(false), "ratio 1.19 ≥ 1.2 NO"},
		{atMost(ofMemory, 0.2), of(0.11), true, yes(true), "memory 11% ≤ 20% yes"},
		{atMost(ofSeconds, 1), of(1.25), true, yes(false), "seconds 1.25 ≤ 1.0 NO"},
		{atMost(ofCost, 0.1), of(-0.02), true, yes(true), "cost -2% ≤ 10% yes"},
		{atLeast(ofRoof, 0.65), nil, true, nil, "roof ? ≥ 65%"},
		{prefillGoals()[0], of(1.3), true, yes(false), "ratio 1.3 ≥ 1.5 NO"},
		{prefillGoals()[0], of(1.3), false, yes(true), "ratio 1.3 ≥ 1.2 yes"},
	} {
		g := c.goal.settle(c.got, c.wide)
		assert.Equal(t, c.met, g.Met, c.text)
		assert.Equal(t, c.text, g.String())
	}
}

func yes(b bool) *bool { return &b }

// Everything that is asked of speed is a row with its target beside it.
func TestWhatIsAsked(t *testing.T) {
	asked := map[string]string{}
	for _, r := range allRows(false) {
		asked[r.Name] = goalsText(r.goals)
	}
	for name, want := range map[string]string{
		"SmolLM2-135M Q4_1, decode 1 row":                                 "ratio ? ≥ 1.2",
		"Qwen2.5-Coder-0.5B Q4_K_M, decode 1 row":                         "ratio ? ≥ 1.2; roof ? ≥ 65%",
		"Qwen2.5-Coder-0.5B Q4_K_M, prefill 512":                          "ratio ? ≥ 1.5",
		"Gemma-3-270M Q4_K_M, decode 1 row":                               "-",
		"SmolLM2-135M Q4_1, decode 16 rows, shared prompt of 256":         "ratio ? ≥ 3.0; part ? ≥ 0.7",
		"Qwen2.5-Coder-0.5B Q4_K_M, decode 32 rows, shared prompt of 256": "ratio ? ≥ 2.0",
		"SmolLM2-135M LoRA r16 step, 16 x 192 tokens":                     "ratio ? ≥ 2.0; memory ? ≤ 20%",
		"SmolLM2-135M LoRA r16 step, 2 prompts x 8 samples":               "ratio ? ≥ 3.0; memory ? ≤ 20%",
		"SmolLM2-135M GRPO step, 4 prompts x 8 samples x 64 tokens":       "ratio ? ≥ 5.0; memory ? ≤ 15%",
		"exactness: attention of 1 row over 4096 positions":               "cost ? ≤ 10%",
		"beside a busy process: SmolLM2-135M, prefill 128":                "kept ? ≥ 0.6",
		contextName: "growth ? ≤ 1.0",
		"growth: GRPO step, 1 prompt x 32 samples x 32 tokens":                "growth ? ≤ 1.0",
		"start: rltrain chat on Qwen2.5-Coder-0.5B, first byte of the answer": "seconds ? ≤ 1.0",
	} {
		got, ok := asked[name]
		require.True(t, ok, name)
		assert.Equal(t, want, got, name)
	}
}

// Lines that are compared with other lines, by hand.
func TestRelatedLines(t *testing.T) {
	line := func(name string, median, roof float64, r row) result {
		r.Name = name
		return result{row: r, Unit: tokensPerSecond, Ours: side{Median: median, Roof: of(roof)}}
	}
	c := &comparison{done: []result{
		line("prefill", 400, 0.6, row{}),
		line("16 rows", 300, 0.5, row{part: "prefill", goals: []goal{atLeast(ofPart, 0.7)}}),
		line("1K", 100, 0.4, row{}),
		line("8K", 40, 0.5, row{base: "1K", goals: []goal{atMost(ofGrowth, 1)}}),
		line("no base was run", 40, 0.5, row{base: "elsewhere", part: "elsewhere", goals: []goal{atMost(ofGrowth, 1), atLeast(ofPart, 0.7)}}),
	}}
	c.relate(true)
	assert.Equal(t, "part 0.75 ≥ 0.7 yes", goalsText(c.done[1].Goals))
	assert.Equal(t, "growth 0.8 ≤ 1.0 yes", goalsText(c.done[3].Goals), "nearer to the roof at 8K: the time grew by less than the bytes")
	assert.Equal(t, "growth ? ≤ 1.0; part ? ≥ 0.7", goalsText(c.done[4].Goals))
}

func TestLengthBoundCountsTheCache(t *testing.T) {
	e := extent{body: 10e6, head: 5e6, bodyBytes: 10e6, headBytes: 5e6, cacheBytes: 1000, attention: 100}
	assert.InEpsilon(t, (15e6+20e6)/10e9, lengthBound(e, Roof{GBs: 10, GFLOPS: 100}, 20000), 1e-9, "read 15 MB of weights and 20 MB of keys and values")
	assert.InEpsilon(t, 2*(15e6+2e6)/1e9, lengthBound(e, Roof{GBs: 10, GFLOPS: 1}, 20000), 1e-9, "or compute, where that takes longer")
}

// The report of a row beside a busy process, one with a trial of precisions, and what was missed.
func TestReportTellsSides(t *testing.T) {
	opt, err := parse(nil, io.Discard)
	require.NoError(t, err)
	kept := result{row: row{Name: "busy", goals: []goal{atLeast(ofKept, 0.6)}}, Unit: tokensPerSecond,
		Ours:   side{Who: "graft", Values: []float64{50, 40, 60}, Quiet: []float64{100, 100, 100}},
		Theirs: &side{Who: llamaName, Values: []float64{8, 9, 10}, Quiet: []float64{90, 90, 90}}}
	kept.finish(0)
	tried := result{row: row{Name: "tried"}, Unit: tokensPerSecond, Ours: side{Who: "graft", Values: []float64{500}, Peak: 1e9},
		Theirs: &side{Who: "PEFT float32", Values: []float64{100}, Peak: 8e9, Tried: map[string]float64{"float32": 100, "bfloat16": 25}}}
	tried.finish(1000)
	c := &comparison{done: []result{kept, tried}}
	c.relate(false)
	rep := newReport(opt, nil)
	rep.Rows = c.done
	rep.finish(0, time.Minute)
	var table, line bytes.Buffer
	require.NoError(t, rep.table(&table))
	assert.Contains(t, table.String(), "kept 0.5 ≥ 0.6 NO")
	assert.Contains(t, table.String(), "alone 100; llama.cpp (alone 90, kept 0.10)")
	assert.Contains(t, table.String(), "PEFT float32 (bfloat16 0.25 of it in a trial)")
	assert.Contains(t, table.String(), "12%", "memory")
	assert.Contains(t, table.String(), "asked: 0 met, 1 not, 0 not measured.\n  not met: busy: kept 0.5 ≥ 0.6 NO\n")
	require.NoError(t, rep.line(&line))
	var back struct {
		Rows []struct {
			Unit  string  `json:"unit"`
			Ours  side    `json:"ours"`
			Ratio float64 `json:"ratio"`
			Asked []goal  `json:"asked"`
		} `json:"rows"`
	}
	require.NoError(t, json.Unmarshal(line.Bytes(), &back))
	assert.Equal(t, 0.5, *back.Rows[0].Ours.Kept)
	assert.Equal(t, 0.6, *back.Rows[0].Asked[0].Least)
	assert.False(t, *back.Rows[0].Asked[0].Met)
	assert.Equal(t, 5.0, back.Rows[1].Ratio)
}

// Two precisions by hand: f32 samples in 6 s and trains in 4, int8 in 3 and 5. Ours at its best takes
// 8 s, a stack that mixes them 3 + 4 = 7.
func TestMixTakesTheFasterOfEachHalf(t *testing.T) {
	step := func(precision string, sampling, all float64) result {
		r := row{Name: stepName, Kind: kindGRPO, Rows: 8, New: 10, Precision: precision, goals: []goal{atMost(ofCost, 0.1)}}
		res := result{row: r, Unit: tokensPerSecond, Ours: side{Values: []float64{80 / all}, Sampling: []float64{sampling}}}
		res.finish(0)
		return res
	}
	c := &comparison{done: []result{step("f32", 6, 10)}}
	c.relate(true)
	assert.Len(t, c.done, 1, "one precision mixes with nothing")
	c = &comparison{done: []result{step("f32", 6, 10), step("int8", 3, 8)}}
	c.relate(true)
	require.Len(t, c.done, 3)
	assert.Equal(t, mixName, c.done[2].Name)
	assert.Equal(t, "int8", c.done[2].Precision)
	assert.InEpsilon(t, 8.0/7-1, *c.done[2].figure(ofCost), 1e-9)
	assert.Equal(t, "cost 14% ≤ 10% NO", goalsText(c.done[2].Goals))
}

// A peer's runs stand in the line of every precision, and of the row that is the same work to it.
func TestPeersRunsServeOtherRows(t *testing.T) {
	opt, err := parse([]string{"--precision", "f32, int8"}, io.Discard)
	require.NoError(t, err)
	require.Len(t, opt.precisions, 2)
	theirs := &side{Who: "PEFT float32", Values: []float64{100}, Median: 100}
	c := &comparison{opt: opt, peers: &peers{folder: "somewhere"}, done: []result{{row: row{Name: "unshared", Precision: "f32"}, Theirs: theirs}}}
	assert.Equal(t, theirs, c.alike(&row{like: "unshared"}))
	assert.Nil(t, c.alike(&row{like: "not run"}))
	them, err := c.theirs(t.Context(), &row{like: "unshared", Against: peftName}, "")
	require.NoError(t, err)
	assert.Nil(t, them, "it is not run again")
}
