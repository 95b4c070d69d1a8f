package rewards

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// widest keeps what is written and the longest piece.
type widest struct {
	bytes.Buffer
	most int
}

func (w *widest) Write(p []byte) (int, error) {
	w.most = max(w.most, len(p))
	return w.Buffer.Write(p)
}

// The line of a batch is never in memory as a whole: siblings repeat the columns of their row.
func TestRequestIsWrittenByTheSample(t *testing.T) {
	columns := map[string]any{"doc": strings.Repeat("z", 10_000)}
	samples := make([]Sample, 50)
	want := struct {
		ID      int64        `json:"id"`
		Samples []wireSample `json:"samples"`
	}{ID: 9}
	for i := range samples {
		samples[i] = Sample{Prompt: "<p>\u2028", Completion: "é", Columns: columns, Index: i}
		want.Samples = append(want.Samples, wire(&samples[i]))
	}
	whole, err := json.Marshal(want)
	require.NoError(t, err)
	var w widest
	require.NoError(t, writeRequest(&w, 9, samples))
	assert.Equal(t, string(whole), w.String())
	assert.Less(t, w.most, 2*10_000)

	w = widest{}
	require.NoError(t, writeRequest(&w, 10, nil))
	assert.Equal(t, `{"id":10,"samples":[]}`, w.String())
}

// A sample that has no JSON form leaves the child with half a line: it is ended, and the next batch has
// a child of its own.
func TestSampleWithoutJSONFormIsNamedAndTheNextBatchScored(t *testing.T) {
	r, _ := python(t, "narrow")
	broken := pair()
	broken[1].Columns = map[string]any{"answer": math.NaN()}
	for range 4 { // it is not the child's fault, however often
		_, err := r.Score(t.Context(), broken)
		var own *Error
		require.ErrorAs(t, err, &own)
		assert.Equal(t, KindColumn, own.Kind)
		assert.Contains(t, err.Error(), "remove the column that has no JSON form")
	}
	scores, err := r.Score(t.Context(), pair())
	require.NoError(t, err)
	assert.Len(t, scores, 2)
}
