package rl

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden reads a file of the golden data: GRAFT_GOLDEN names another folder of the same layout.
func golden(t *testing.T, part string, v any) {
	t.Helper()
	root := os.Getenv("GRAFT_GOLDEN")
	if root == "" {
		root = filepath.Join("..", "tests", "testdata")
	}
	path := filepath.Join(root, "golden-hf", part)
	raw, err := os.ReadFile(path)
	if err != nil { // the folder may itself be golden-hf
		path = filepath.Join(root, part)
		raw, err = os.ReadFile(path)
	}
	if err != nil && os.Getenv("GRAFT_GOLDEN") != "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, v), path)
}

// TestSchedulesGolden compares with transformers' own lambdas.
func TestSchedulesGolden(t *testing.T) {
	var file struct {
		Cases []struct {
			Scheduler string
			Args      struct {
				NumCycles     float64 `json:"num_cycles"`
				MinLR         float64 `json:"min_lr"`
				MinLRRate     float64 `json:"min_lr_rate"`
				WarmupLRRate  float64 `json:"warmup_lr_rate"`
				Power         float64 `json:"power"`
				LREnd         float64 `json:"lr_end"`
				Timescale     float64 `json:"timescale"`
				NumDecaySteps int     `json:"num_decay_steps"`
				MinLRRatio    float64 `json:"min_lr_ratio"`
				WarmupType    string  `json:"warmup_type"`
				DecayType     string  `json:"decay_type"`
			}
			Warmup int
			Total  int
			BaseLR float64 `json:"base_lr"`
			Step   []int
			LR     []float64
			Error  string
		}
	}
	golden(t, "optim/schedules.json", &file)
	require.Len(t, file.Cases, 90)
	seen := map[string]bool{}
	for _, c := range file.Cases {
		t.Run(fmt.Sprintf("%s %+v %d of %d", c.Scheduler, c.Args, c.Warmup, c.Total), func(t *testing.T) {
			o := ScheduleOptions{Type: c.Scheduler, LearningRate: c.BaseLR, WarmupSteps: c.Warmup, TotalSteps: c.Total, Args: ScheduleArgs(c.Args)}
			if c.Scheduler == "constant" {
				o.WarmupSteps = 0 // which it would ignore, and Graft refuses
			}
			s, err := NewSchedule(o)
			if c.Error != "" {
				require.ErrorContains(t, err, "all of them warmup")
				return
			}
			require.NoError(t, err)
			require.NotEmpty(t, c.LR)
			for i, step := range c.Step {
				require.InDelta(t, c.LR[i], s.Rate(step), 1e-12*c.BaseLR, "step %d", step)
			}
			seen[c.Scheduler] = true
		})
	}
	require.Len(t, seen, len(ScheduleTypes()))
}

func TestScheduleWarmupRatio(t *testing.T) {
	s, err := NewSchedule(ScheduleOptions{Type: "linear", LearningRate: 1, WarmupRatio: 0.1, TotalSteps: 25})
	require.NoError(t, err)
	require.Equal(t, 3, s.Warmup(), "rounded up")
	require.Equal(t, 1.0, s.Rate(3))
}

func TestScheduleArgs(t *testing.T) {
	a, err := ParseScheduleArgs(`{"num_cycles": 2, "min_lr": 1e-6, "min_lr_rate": 0.5, "warmup_lr_rate": 3, "power": 4, "lr_end": 5, "timescale": 6,
		"num_decay_steps": 7, "min_lr_ratio": 0.25, "warmup_type": "cosine", "decay_type": "1-sqrt"}`)
	require.NoError(t, err)
	require.Equal(t, ScheduleArgs{2, 1e-6, 0.5, 3, 4, 5, 6, 7, 0.25, "cosine", "1-sqrt"}, a)
	a, err = ParseScheduleArgs("")
	require.NoError(t, err)
	require.Zero(t, a)
	for text, want := range map[string]string{
		`{"num_cycle": 2}`:           `there is no "num_cycle"; there are num_cycles, min_lr`,
		`{"num_cycels": 2}`:          `did you mean "num_cycles"?`,
		`{"num_cycles": "2"}`:        `num_cycles is "2", want a number`,
		`{"num_cycles": null}`:       `num_cycles is null, want a number`,
		`{"num_cycles": 1e999}`:      "want a number",
		`{"num_decay_steps": 2.5}`:   "want a whole number",
		`{"decay_type": 1}`:          "want a text",
		`{"lr_end": 0}`:              "stands for the default",
		`{"power": 1, "power": 2}`:   "given twice",
		`{"power": 1`:                "no JSON object",
		`{"power": 1} 2`:             "no JSON object",
		`null`:                       "no JSON object",
		`[1]`:                        "no JSON object",
		`power=2`:                    "no JSON object",
		"{\"decay_type\": \"\xff\"}": "UTF-8",
	} {
		_, err := ParseScheduleArgs(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestScheduleRefusals(t *testing.T) {
	ok := ScheduleOptions{Type: "linear", LearningRate: 1, TotalSteps: 10}
	for _, c := range []struct {
		change func(o *ScheduleOptions)
		want   string
	}{
		{func(o *ScheduleOptions) { o.Type = "linaer" }, `"linaer" is not known; there are linear, cosine`},
		{func(o *ScheduleOptions) { o.TotalSteps = 0 }, "over 0 steps"},
		{func(o *ScheduleOptions) { o.WarmupSteps = -1 }, "warmup_steps is -1"},
		{func(o *ScheduleOptions) { o.WarmupSteps, o.WarmupRatio = 1, 0.1 }, "choose one"},
		{func(o *ScheduleOptions) { o.WarmupRatio = 1.5 }, "warmup_ratio is 1.5"},
		{func(o *ScheduleOptions) { o.Args.NumCycles = 2 }, "linear does not read num_cycles"},
		{func(o *ScheduleOptions) { o.Type, o.WarmupSteps = "constant", 3 }, "constant_with_warmup"},
		{func(o *ScheduleOptions) { o.Type = "cosine_with_min_lr" }, "needs one of min_lr and min_lr_rate"},
		{func(o *ScheduleOptions) { o.Type, o.Args.Power = "polynomial", -1 }, "-1"},
		{func(o *ScheduleOptions) { o.Type, o.Args.LREnd = "polynomial", 2 }, "must be below"},
		{func(o *ScheduleOptions) { o.Type = "warmup_stable_decay" }, "needs num_decay_steps"},
		{func(o *ScheduleOptions) {
			o.Type, o.Args.NumDecaySteps, o.Args.DecayType = "warmup_stable_decay", 2, "log"
		}, `"log"`},
	} {
		o := ok
		c.change(&o)
		_, err := NewSchedule(o)
		require.ErrorContains(t, err, c.want)
	}
}
