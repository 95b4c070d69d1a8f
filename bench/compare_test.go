package main

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMedianAndSpread(t *testing.T) {
	assert.Equal(t, 3.0, median([]float64{9, 3, 1}))
	assert.Equal(t, 2.5, median([]float64{4, 2, 3, 1}))
	assert.Equal(t, 2.0, spread([]float64{1, 5, 2}), "(5−1)/2")
}

func TestBusyCountsWorkAndStolenTimeOnly(t *testing.T) {
	got, ok := parseBusy("cpu  100 20 30 99999 7777 1 2 4 50 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
	require.True(t, ok)
	assert.Equal(t, 1570*time.Millisecond, got, "user, nice, system, irq, softirq, steal; guest is part of user")
	for _, bad := range []string{"", "cpu 1 2", "cpu a b c d e f g h i", "intr 1 2 3 4 5 6 7 8 9"} {
		_, ok := parseBusy(bad)
		assert.False(t, ok, bad)
	}
}

// A spinning child that is accounted for is not the load of others; one that is not, is.
func TestWatchSubtractsWhatWasMeasured(t *testing.T) {
	w := startWatch()
	if !w.ok {
		t.Skip("this system does not tell the processor time of all processes")
	}
	w.at = w.at.Add(-10 * time.Second)
	w.busy -= 8 * time.Second
	all := w.others(0)
	rest := w.others(5 * time.Second)
	require.NotNil(t, all)
	require.NotNil(t, rest)
	assert.InDelta(t, 0.8, *all, 0.3)
	assert.InDelta(t, 0.5, *all-*rest, 0.1)
}

func TestReadBench(t *testing.T) {
	decode := &row{Kind: kindDecode, Rows: 1, New: 48}
	got, err := readBench([]byte(`[{"build_number": 1, "n_prompt": 0, "n_gen": 48, "samples_ns": [ 320000000 ], "samples_ts": [ 150.0 ]}]`), decode)
	require.NoError(t, err)
	assert.Equal(t, timing{Seconds: 0.32, Tokens: 48}, got)
	for _, bad := range []string{`[]`, `{`, `[{"n_gen": 47, "samples_ns": [1]}]`, `[{"n_gen": 48, "samples_ns": [1, 2]}]`} {
		_, err := readBench([]byte(bad), decode)
		assert.Error(t, err, bad)
	}
}

func TestReadBatched(t *testing.T) {
	group := &row{Kind: kindGroup, Rows: 8, Groups: 1, Prompt: 256, New: 16}
	line := `{"n_kv_max": 448, "n_batch": 2048, "is_pp_shared": 1, "pp": 256, "tg": 16, "pl": 8, "n_kv": 384, "t_pp": 0.6, "speed_pp": 426.0, "t_tg": 0.8, "speed_tg": 160.0, "t": 1.4, "speed": 274.0}`
	got, err := readBatched([]byte("llama_context: talk\n"+line+"\nmore talk\n"), group)
	require.NoError(t, err)
	assert.Equal(t, timing{Seconds: 0.8, Tokens: 128}, got)
	for _, wrong := range []string{strings.Replace(line, `"pl": 8`, `"pl": 16`, 1), strings.Replace(line, `"is_pp_shared": 1`, `"is_pp_shared": 0`, 1), ""} {
		_, err := readBatched([]byte(wrong), group)
		assert.Error(t, err, wrong)
	}
}

// A machine of 10 GB/s and 100 GFLOP/s, a model of 10M weights in the body and 5M in the head, one
// byte each: by hand.
func TestBoundOfEachKind(t *testing.T) {
	roof := Roof{GBs: 10, GFLOPS: 100}
	e := extent{body: 10e6, head: 5e6, bodyBytes: 10e6, headBytes: 5e6}
	for _, c := range []struct {
		name string
		row  row
		want float64
	}{
		{"decode reads all weights for each token", row{Kind: kindDecode, Rows: 1, New: 10}, 10 * 15e6 / 10e9},
		{"32 rows compute: 2·15M·32", row{Kind: kindGroup, Rows: 32, New: 2}, 2 * 2 * 15e6 * 32 / 100e9},
		{"prefill computes; the head sees one row", row{Kind: kindPrefill, Rows: 1, Prompt: 512, New: 1}, 2 * (10e6*512 + 5e6) / 100e9},
		{"training: forward and as much again for dx", row{Kind: kindLoRA, Rows: 4, Groups: 4, Prompt: 10, New: 21}, 4 * (10e6*(40+80) + 5e6*84) / 100e9},
		{"siblings share their prompt", row{Kind: kindLoRA, Rows: 4, Groups: 1, Prompt: 10, New: 21}, 4 * (10e6*(10+80) + 5e6*84) / 100e9},
		{"a GRPO step: prefill, all decode passes but the first token's, training", row{Kind: kindGRPO, Rows: 4, Groups: 1, Prompt: 10, New: 21},
			2*(10e6*10+5e6)/100e9 + 20*15e6/10e9 + 4*(10e6*(10+80)+5e6*84)/100e9},
	} {
		assert.InEpsilon(t, c.want, c.row.bound(e, roof), 1e-9, c.name)
	}
}

func TestQuickSaysWhatItLeavesOut(t *testing.T) {
	opt, err := parse([]string{"--quick"}, io.Discard)
	require.NoError(t, err)
	rows, left := choose(opt)
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r.Name] = true
		assert.NotContains(t, []string{peftName, trlName}, r.Against, "Python's peers take minutes")
	}
	for _, name := range left {
		seen[name] = true
	}
	assert.Len(t, seen, len(allRows(true)), "every row runs or is named, and no two have one name")
	assert.NotEmpty(t, left)

	rep := newReport(opt, left)
	rep.Rows = []result{finished(rows[0], nil)}
	rep.finish(time.Second, time.Minute)
	var table bytes.Buffer
	require.NoError(t, rep.table(&table))
	for _, name := range left {
		assert.Contains(t, table.String(), name)
	}
}

func finished(r row, others *float64) result {
	return result{row: r, Unit: tokensPerSecond, Ours: side{Who: "graft", Values: []float64{100}, Median: 100, Roof: of(0.5), Peak: 2e6},
		Theirs: &side{Who: llamaName, Values: []float64{50}, Median: 50, Roof: of(0.25), Peak: 3e6}, Ratio: of(2), Others: others}
}

func TestReportTellsOtherLoad(t *testing.T) {
	opt, err := parse(nil, io.Discard)
	require.NoError(t, err)
	for _, c := range []struct {
		cores float64
		quiet bool
		says  string
	}{{0.02, true, "at most 0.02 cores"}, {1.5, false, "NOT QUIET: other processes took up to 1.50 cores"}} {
		rep := newReport(opt, nil)
		rep.Rows = []result{finished(allRows(false)[0], &c.cores), finished(allRows(false)[1], nil)}
		rep.finish(0, time.Minute)
		var table, line bytes.Buffer
		require.NoError(t, rep.table(&table))
		assert.Contains(t, table.String(), c.says)
		assert.Equal(t, !c.quiet, strings.Contains(table.String(), "1.50*"), "the row is marked")
		require.NoError(t, rep.line(&line))
		var back struct {
			Quiet bool `json:"quiet"`
			Rows  []struct {
				Name  string  `json:"name"`
				Ratio float64 `json:"ratio"`
			} `json:"rows"`
		}
		require.Equal(t, 1, strings.Count(line.String(), "\n"))
		require.NoError(t, json.Unmarshal(line.Bytes(), &back))
		assert.Equal(t, c.quiet, back.Quiet)
		assert.Equal(t, 2.0, back.Rows[0].Ratio)
	}
}

func TestOptionsThatCannotBeMet(t *testing.T) {
	for _, args := range [][]string{{"--threads", "-1"}, {"--threads", "100000"}, {"--rounds", "2"}, {"--only", "("}, {"more"}, {"--unknown"}, {"--precision", "bf16"}, {"--precision", "f32,f32"}, {"--precision", ""}} {
		_, err := parse(args, io.Discard)
		assert.Error(t, err, args)
	}
	opt, err := parse([]string{"--only", "no such row", "--models", t.TempDir(), "--peers", noPeers}, io.Discard)
	require.NoError(t, err)
	assert.ErrorContains(t, run(t.Context(), opt, io.Discard, io.Discard), "matches none")
	opt, err = parse([]string{"--only", "gemma", "--models", t.TempDir(), "--peers", noPeers}, io.Discard)
	require.NoError(t, err)
	assert.ErrorContains(t, run(t.Context(), opt, io.Discard, io.Discard), "scripts/fetch-models.sh")
}

// The tiny embedded model stands for the real ones: every kind of row of ours runs to a figure.
func TestEveryKindMeasuresOurs(t *testing.T) {
	path := filepath.Join("..", "tiny", "tiny.gguf")
	for _, r := range []row{
		{Kind: kindDecode, Rows: 1, Prompt: 1, New: 4},
		{Kind: kindPrefill, Rows: 1, Prompt: 40, New: 1},
		{Kind: kindGroup, Rows: 4, Groups: 1, Prompt: 20, New: 3, Precision: "int8"},
		{Kind: kindLoRA, Rows: 10, Groups: 10, Prompt: 5, New: 6},
		{Kind: kindLoRA, Rows: 16, Groups: 2, Prompt: 5, New: 6},
		{Kind: kindGRPO, Rows: 16, Groups: 2, Prompt: 5, New: 6},
		{Kind: kindGRPO, Rows: 4, Groups: 1, Prompt: 5, New: 6},
		{Kind: kindGRPO, Rows: 8, Groups: 1, Prompt: 5, New: 6, Second: true},
	} {
		got := measured[timing](t, job{Row: r, Path: path, Threads: 2})
		assert.Equal(t, r.tokens(), got.Tokens, r.Kind)
		assert.Positive(t, got.Seconds)
	}
	lengths := measured[lengthTimes](t, job{Row: row{Kind: kindContext, Rows: 1, New: 8, Lengths: []int{64, 200}}, Path: path, Threads: 2, Rounds: 3})
	require.Len(t, lengths.Seconds, 2)
	for _, rounds := range lengths.Seconds {
		require.Len(t, rounds, 3)
		assert.Positive(t, rounds[2])
	}
	e, err := extentOf(path)
	require.NoError(t, err)
	assert.Positive(t, e.body)
	assert.Positive(t, e.head)
	assert.Positive(t, e.cacheBytes)
	assert.Positive(t, e.attention)
}

// measured runs a job as its child would.
func measured[T any](t *testing.T, j job) (got T) {
	if j.Row.Precision == "" {
		j.Row.Precision = "f32"
	}
	spec, err := json.Marshal(j)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, measure(string(spec), &out), j.Row.Kind)
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	return got
}
