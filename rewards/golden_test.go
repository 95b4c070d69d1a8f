package rewards

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// golden is what TRL 1.16 gave for its own rewards.
type golden struct {
	Think []struct {
		Text   string
		Reward float64
	} `json:"think_format"`
	Overlong []struct {
		Max     int `json:"max_completion_len"`
		Cache   int `json:"soft_punish_cache"`
		Lens    []int
		Rewards []float64
	} `json:"soft_overlong"`
	Repetition []struct {
		Size    int     `json:"ngram_size"`
		Penalty float64 `json:"max_penalty"`
		IDs     [][]int32
		Rewards []float64
	}
	Cosine []struct {
		Args     map[string]float64
		Solution string
		Rows     []struct {
			Len        int
			Completion string
			Reward     float64
		}
	}
	Accuracy  []accuracyRow
	Reasoning []accuracyRow `json:"reasoning_accuracy"`
	Custom    []accuracyRow `json:"reasoning_accuracy_custom"`
}

type accuracyRow struct {
	Solution, Completion string
	Delimiters           []string
	Reward               *float64
}

func readGolden(t *testing.T) golden {
	t.Helper()
	root := filepath.Join("..", "tests", "testdata", "golden-hf")
	if other := os.Getenv("GRAFT_GOLDEN"); other != "" {
		root = other
	}
	data, err := os.ReadFile(filepath.Join(root, "rewards", "rewards.json"))
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(data, &g))
	return g
}

// one scores a single sample.
func one(t *testing.T, spec string, s Sample) Score {
	t.Helper()
	f, err := Parse(spec)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	scores, err := f.Score(context.Background(), []Sample{s})
	require.NoError(t, err)
	require.Len(t, scores, 1)
	return scores[0]
}

// The goldens are written with twelve digits.
const tolerance = 1e-11

func TestGoldenThinkFormat(t *testing.T) {
	rows := readGolden(t).Think
	require.NotEmpty(t, rows)
	for _, r := range rows {
		assert.Equal(t, r.Reward, one(t, "format:think", Sample{Completion: r.Text}).Value, "%q", r.Text)
	}
}

func TestGoldenSoftOverlong(t *testing.T) {
	cases := readGolden(t).Overlong
	require.NotEmpty(t, cases)
	for _, c := range cases {
		spec := fmt.Sprintf("soft_overlong:%d,soft_punish_cache=%d", c.Max, c.Cache)
		for i, n := range c.Lens {
			got := one(t, spec, Sample{CompletionIDs: make([]int32, n)})
			assert.InDelta(t, c.Rewards[i], got.Value, tolerance, "%s at %d", spec, n)
		}
	}
}

func TestGoldenRepetition(t *testing.T) {
	cases := readGolden(t).Repetition
	require.NotEmpty(t, cases)
	for _, c := range cases {
		spec := fmt.Sprintf("repetition:%d,max_penalty=%g", c.Size, c.Penalty)
		for i, ids := range c.IDs {
			assert.InDelta(t, c.Rewards[i], one(t, spec, Sample{CompletionIDs: ids}).Value, tolerance, "%s of %v", spec, ids)
		}
	}
}

func TestGoldenCosine(t *testing.T) {
	cases := readGolden(t).Cosine
	require.NotEmpty(t, cases)
	for _, c := range cases {
		spec := "cosine:column=solution"
		for key, value := range c.Args {
			spec += fmt.Sprintf(",%s=%g", key, value)
		}
		for _, r := range c.Rows {
			got := one(t, spec, Sample{Completion: r.Completion, CompletionIDs: make([]int32, r.Len),
				Columns: map[string]any{"solution": c.Solution}})
			assert.InDelta(t, r.Reward, got.Value, tolerance, "%s: %q at %d", spec, r.Completion, r.Len)
		}
	}
}

func TestGoldenAccuracy(t *testing.T) {
	g := readGolden(t)
	require.NotEmpty(t, g.Accuracy)
	check := func(rows []accuracyRow, spec string) {
		for _, r := range rows {
			s := spec
			if r.Delimiters != nil {
				s += ",delimiters=" + strings.Join(r.Delimiters, "|")
			}
			got := one(t, s, Sample{Completion: r.Completion, Columns: map[string]any{"solution": r.Solution}})
			want := Score{Skip: true}
			if r.Reward != nil {
				want = Score{Value: *r.Reward}
			}
			assert.Equal(t, want, got, "%s: gold %q, completion %q", s, r.Solution, r.Completion)
		}
	}
	check(g.Accuracy, "accuracy:solution")
	check(g.Reasoning, "reasoning_accuracy:solution")
	check(g.Custom, "reasoning_accuracy:solution")
}
