package template

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSemantics compares small templates with what Jinja2 gives for them; see
// testdata/semantics.py for how the file is made.
func TestSemantics(t *testing.T) {
	data, err := os.ReadFile("testdata/semantics.json")
	require.NoError(t, err)
	var file struct {
		Vars  json.RawMessage `json:"vars"`
		Now   string          `json:"now"`
		Cases []struct {
			Source, Output, Error string
		} `json:"cases"`
	}
	require.NoError(t, json.Unmarshal(data, &file))
	require.NotEmpty(t, file.Cases)
	vars, err := DecodeJSON(file.Vars)
	require.NoError(t, err)
	now, err := time.Parse("2006-01-02T15:04:05", file.Now)
	require.NoError(t, err)
	for _, c := range file.Cases {
		got, err := renderAt(c.Source, vars.(*Map), now)
		if c.Error != "" {
			assert.Error(t, err, "%s\nJinja2 fails with %s, this renders %q", c.Source, c.Error, got)
			continue
		}
		if assert.NoError(t, err, c.Source) {
			assert.Equal(t, c.Output, got, c.Source)
		}
	}
}

func renderAt(source string, vars *Map, now time.Time) (string, error) {
	tmpl, err := Parse(source)
	if err != nil {
		return "", err
	}
	r := newRender(tmpl, Limits{}, func() time.Time { return now })
	for _, name := range vars.Keys() {
		v, _ := vars.Get(name)
		r.define(name, v)
	}
	return r.all()
}
