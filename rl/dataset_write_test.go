package rl

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrittenRowsReadBackAsTheyWere(t *testing.T) {
	text := `{"b":1,"a":[1.5,2.0,-0.0,1e300,123456789012345678901234567890,null,true,"<ä> \" \u2028"],"m":[{"role":"user","content":"x","z":{}}]}
{"é\n":"1","b":7}
{"b":[]}
`
	d, err := OpenDataset(file(t, "rows.jsonl", text), DatasetOptions{})
	require.NoError(t, err)
	_, eval, err := d.Split(2, 1)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, eval.WriteEvaluation(dir))
	back, err := OpenDataset(filepath.Join(dir, EvalFile), DatasetOptions{})
	require.NoError(t, err)
	require.Len(t, back.Rows, 2)
	for i, r := range back.Rows {
		require.Equal(t, eval.Rows[i].fields, r.fields)
	}
	raw, err := os.ReadFile(filepath.Join(dir, EvalRowsFile))
	require.NoError(t, err)
	var origin Origin
	require.NoError(t, json.Unmarshal(raw, &origin))
	require.Equal(t, d.Name, origin.Dataset)
	for i, r := range eval.Rows {
		require.Equal(t, OriginRow{Row: r.Index, File: "rows.jsonl", Line: r.Index + 1}, origin.Rows[i])
	}

	var all, again bytes.Buffer
	require.NoError(t, d.WriteLines(&all))
	d, err = OpenDataset(file(t, "again.jsonl", all.String()), DatasetOptions{})
	require.NoError(t, err)
	require.NoError(t, d.WriteLines(&again))
	require.Equal(t, all.String(), again.String())

	odd := NewDataset("mem", []map[string]any{{"x": math.NaN()}, {"x": make(chan int)}})
	require.ErrorContains(t, odd.WriteLines(&again), `mem:2: column "x": a value of type chan int`)
	odd.Rows = odd.Rows[:1]
	again.Reset()
	require.NoError(t, odd.WriteLines(&again))
	require.Equal(t, "{\"x\":null}\n", again.String())
	require.ErrorContains(t, eval.WriteEvaluation(filepath.Join(dir, "absent")), "the rows to measure on")
}
