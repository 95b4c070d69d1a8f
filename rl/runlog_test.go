package rl

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

func sampleStep(step int) StepLog {
	s := StepLog{Step: step, Seed: 7, Version: uint64(step), Hash: "ab", Time: time.Unix(1000+int64(step), 5)}
	s.Stats.Set("reward", 0.1*float64(step))
	s.Stats.Set("kl", math.NaN())
	for i := range 2 {
		s.Rollouts = append(s.Rollouts, Rollout{Tokens: []int32{72, 105, int32(step), 1 << 30}[:3+i], PromptLen: 2, Group: 3, Sample: i, Version: uint64(step), Row: 11,
			LogP: []float32{-0.25, float32(math.Inf(-1))}[:1+i], Mask: []float32{1, 0}[:1+i], Truncated: i == 1, Scored: true,
			Rewards: []float64{1, math.NaN()}, Reward: 1, Advantage: -0.5})
	}
	s.Rollouts = append(s.Rollouts, Rollout{Tokens: []int32{1}, PromptLen: 1})
	return s
}

func openLog(t *testing.T, dir string, resume *LogOffsets) *RunLog {
	t.Helper()
	l, err := OpenRunLog(RunLogOptions{Dir: dir, Rewards: []string{"math", "math"}, Resume: resume, Config: map[string]any{"beta": 0.1},
		Text: func(ids []int32) string { return fmt.Sprint(ids) }})
	require.NoError(t, err)
	return l
}

func events(t testing.TB, path string) (steps []EventStep, r *EventReader) {
	t.Helper()
	r, err := OpenEvents(path)
	require.NoError(t, err)
	defer r.Close()
	for {
		s, err := r.Next()
		if err == io.EOF {
			return steps, r
		}
		require.NoError(t, err)
		steps = append(steps, s)
	}
}

// sameBits compares through the encoding, where NaN equals NaN.
func sameBits(t testing.TB, want, got StepLog, rewards []string) {
	t.Helper()
	a, err := appendEvent(nil, want, rewards)
	require.NoError(t, err)
	b, err := appendEvent(nil, got, rewards)
	require.NoError(t, err)
	require.Equal(t, a, b)
}

func TestEventsKeepEveryBit(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, nil)
	for step := 1; step <= 3; step++ {
		require.NoError(t, l.Step(sampleStep(step)))
	}
	require.NoError(t, l.Close())
	steps, r := events(t, filepath.Join(dir, EventsFile))
	require.Len(t, steps, 3)
	require.False(t, r.Torn())
	for i, s := range steps {
		want := sampleStep(i + 1)
		sameBits(t, want, s.StepLog, s.Rewards)
		require.Equal(t, []string{"math", "math"}, s.Rewards)
		require.Equal(t, want.Rollouts[0].Tokens, s.Rollouts[0].Tokens)
		require.Equal(t, math.Float32bits(-0.25), math.Float32bits(s.Rollouts[0].LogP[0]))
		require.True(t, math.IsNaN(s.Rollouts[1].Rewards[1]))
		require.Nil(t, s.Rollouts[2].LogP)
		require.Equal(t, "reward", s.Stats.Names[0])
		require.True(t, s.Time.Equal(want.Time))
	}
}

func TestTornTailIsTheEndAndDamageBeforeItIsNot(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, nil)
	require.NoError(t, l.Step(sampleStep(1)))
	first, err := l.Offsets()
	require.NoError(t, err)
	require.NoError(t, l.Step(sampleStep(2)))
	require.NoError(t, l.Close())
	path := filepath.Join(dir, EventsFile)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	for cut := int(first.Events); cut < len(raw); cut++ {
		require.NoError(t, os.WriteFile(path, raw[:cut], 0o644))
		steps, r := events(t, path)
		require.Len(t, steps, 1, cut)
		require.Equal(t, cut != int(first.Events), r.Torn(), cut)
		require.Equal(t, first.Events, r.Offset())
	}
	unwritten := bytes.Clone(raw)
	clear(unwritten[len(raw)-60:])
	require.NoError(t, os.WriteFile(path, unwritten, 0o644))
	steps, r := events(t, path)
	require.Len(t, steps, 1)
	require.True(t, r.Torn())

	raw[int(first.Events)-10] ^= 1
	require.NoError(t, os.WriteFile(path, raw, 0o644))
	r, err = OpenEvents(path)
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Next()
	require.ErrorContains(t, err, "the record at byte 8 is damaged")
}

// TestResumedLogEqualsUnkilled kills a run behind a checkpoint, with torn tails, and resumes it.
func TestResumedLogEqualsUnkilled(t *testing.T) {
	whole, killed := t.TempDir(), t.TempDir()
	l := openLog(t, whole, nil)
	for step := 1; step <= 4; step++ {
		require.NoError(t, l.Step(sampleStep(step)))
	}
	require.NoError(t, l.Close())

	l = openLog(t, killed, nil)
	require.NoError(t, l.Step(sampleStep(1)))
	require.NoError(t, l.Step(sampleStep(2)))
	at, err := l.Offsets()
	require.NoError(t, err)
	other := sampleStep(3)
	other.Stats.Set("reward", 99)
	require.NoError(t, l.Step(other))
	require.NoError(t, l.close()) // killed: nothing is finished
	for _, name := range []string{EventsFile, MetricsFile, TensorBoardFile} {
		f, err := os.OpenFile(filepath.Join(killed, name), os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString(strings.Repeat("torn", 4000)) // longer than what the resumed run writes over it
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	require.NoError(t, os.WriteFile(filepath.Join(killed, SummaryFile), []byte("{}"), 0o644))
	l = openLog(t, killed, &at)
	require.NoFileExists(t, filepath.Join(killed, SummaryFile))
	require.NoError(t, l.Step(sampleStep(3)))
	require.NoError(t, l.Step(sampleStep(4)))
	require.NoError(t, l.Close())
	for _, name := range []string{EventsFile, MetricsFile, CompletionsFile, ConfigFile} {
		a, err := os.ReadFile(filepath.Join(whole, name))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(killed, name))
		require.NoError(t, err)
		require.True(t, bytes.Equal(a, b), name)
	}
	require.Equal(t, scalars(t, whole), scalars(t, killed))

	require.NoError(t, os.Truncate(filepath.Join(killed, MetricsFile), 3))
	_, err = OpenRunLog(RunLogOptions{Dir: killed, Resume: &at})
	require.ErrorContains(t, err, "metrics.jsonl has 3 bytes")
}

func TestMetricsLines(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, nil)
	require.NoError(t, l.Step(sampleStep(1)))
	require.NoError(t, l.Step(sampleStep(2)))
	require.NoError(t, l.Close())
	raw, err := os.ReadFile(filepath.Join(dir, MetricsFile))
	require.NoError(t, err)
	require.Equal(t, "{\"step\":1,\"reward\":0.1,\"kl\":null}\n{\"step\":2,\"reward\":0.2,\"kl\":null}\n", string(raw))
}

// scalars reads the TensorBoard file with a protobuf library, checking every checksum.
func scalars(t *testing.T, dir string) (out []string) {
	raw, err := os.ReadFile(filepath.Join(dir, TensorBoardFile))
	require.NoError(t, err)
	masked := func(b []byte) uint32 {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return ((c >> 15) | (c << 17)) + 0xa282ead8
	}
	for len(raw) > 0 {
		n := binary.LittleEndian.Uint64(raw)
		require.Equal(t, masked(raw[:8]), binary.LittleEndian.Uint32(raw[8:]))
		data := raw[12 : 12+n]
		require.Equal(t, masked(data), binary.LittleEndian.Uint32(raw[12+n:]))
		raw = raw[16+n:]
		line := ""
		for len(data) > 0 {
			field, kind, m := protowire.ConsumeTag(data)
			require.Positive(t, m)
			data = data[m:]
			switch {
			case field == 1 && kind == protowire.Fixed64Type:
				v, m := protowire.ConsumeFixed64(data)
				require.Greater(t, math.Float64frombits(v), 1000.0)
				data = data[m:]
			case field == 2 && kind == protowire.VarintType:
				v, m := protowire.ConsumeVarint(data)
				line += fmt.Sprint("step ", v)
				data = data[m:]
			case kind == protowire.BytesType:
				v, m := protowire.ConsumeBytes(data)
				if field == 3 {
					line += string(v)
				} else {
					require.Equal(t, protowire.Number(5), field)
					line += summaryText(t, v)
				}
				data = data[m:]
			default:
				t.Fatalf("field %d of type %d", field, kind)
			}
		}
		out = append(out, line)
	}
	return out
}

func summaryText(t *testing.T, data []byte) (line string) {
	for len(data) > 0 {
		_, _, m := protowire.ConsumeTag(data)
		value, n := protowire.ConsumeBytes(data[m:])
		data = data[m+n:]
		_, _, m = protowire.ConsumeTag(value)
		tag, n := protowire.ConsumeBytes(value[m:])
		field, kind, k := protowire.ConsumeTag(value[m+n:])
		require.Equal(t, protowire.Number(2), field)
		require.Equal(t, protowire.Fixed32Type, kind)
		v, _ := protowire.ConsumeFixed32(value[m+n+k:])
		line += fmt.Sprintf(" %s=%g", tag, math.Float32frombits(v))
	}
	return line
}

func TestTensorBoardFile(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, nil)
	require.NoError(t, l.Step(sampleStep(1)))
	require.NoError(t, l.Step(sampleStep(300)))
	require.NoError(t, l.Close())
	require.Equal(t, []string{"brain.Event:2", "step 1 reward=0.1", "step 300 reward=30"}, scalars(t, dir))
	require.Contains(t, TensorBoardFile, "tfevents")
}

func TestCompletionsParquet(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, nil)
	require.NoError(t, l.Step(sampleStep(1)))
	require.NoError(t, l.Step(sampleStep(2)))
	require.NoError(t, l.Close())
	d, err := OpenDataset(filepath.Join(dir, CompletionsFile), DatasetOptions{})
	require.NoError(t, err)
	require.Equal(t, 6, d.Len())
	row := d.Rows[4].Columns()
	require.Equal(t, map[string]any{"step": int64(2), "row": int64(11), "group": int64(3), "sample": int64(1), "version": int64(2), "reward": 1.0, "advantage": -0.5,
		"truncated": true, "prompt": "[72 105]", "completion": "[2 1073741824]", "reward/math": 1.0, "reward/math#2": nil,
		"prompt_ids": []any{int64(72), int64(105)}, "completion_ids": []any{int64(2), int64(1 << 30)}}, row)
	empty := d.Rows[5].Columns()
	require.Empty(t, empty["completion_ids"])
	require.Nil(t, empty["reward/math"])

	f, err := os.Open(filepath.Join(dir, CompletionsFile))
	require.NoError(t, err)
	defer f.Close()
	info, _ := f.Stat()
	p, err := parquet.OpenFile(f, info.Size())
	require.NoError(t, err)
	require.Equal(t, int64(6), p.NumRows())
}

func TestTwoRunsCannotShareAFolder(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, nil)
	_, err := OpenRunLog(RunLogOptions{Dir: dir})
	require.ErrorContains(t, err, "in use by another process")
	require.NoError(t, l.Close())
	again := openLog(t, dir, nil) // a run that made no step left nothing to lose
	require.NoError(t, again.Step(sampleStep(1)))
	require.NoError(t, again.Close())
	_, err = OpenRunLog(RunLogOptions{Dir: dir})
	require.ErrorContains(t, err, "holds a run already (metrics.jsonl)")
	other := t.TempDir()
	save(t, other, 3)
	_, err = OpenRunLog(RunLogOptions{Dir: other})
	require.ErrorContains(t, err, "holds a run already (checkpoint-3)")
}

func TestUnwritableFolderFailsAtOnce(t *testing.T) {
	_, err := OpenRunLog(RunLogOptions{Dir: filepath.Join(file(t, "plain", ""), "run")})
	require.ErrorContains(t, err, "--output-dir")
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, lockFile), 0o755)) // as a folder without write permission, also for root
	_, err = OpenRunLog(RunLogOptions{Dir: dir})
	require.ErrorContains(t, err, "cannot be written")
}

func TestSummaryHasTheFieldsOfTheContract(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, nil)
	first := 0.5
	s := Summary{Steps: 3, RewardFirst: &first, AdapterSHA256: "x"}
	require.NoError(t, l.WriteSummary(s))
	require.NoError(t, l.Close())
	back, err := ReadSummary(dir)
	require.NoError(t, err)
	require.Equal(t, s, back)
	raw, err := os.ReadFile(filepath.Join(dir, SummaryFile))
	require.NoError(t, err)
	fields := map[string]any{}
	require.NoError(t, json.Unmarshal(raw, &fields))
	for _, name := range strings.Fields("steps tokens_sampled tokens_trained reward_first reward_last eval_before eval_after mismatch_tokens mismatch_max seconds sample_seconds train_seconds reward_seconds planned_bytes peak_bytes arena_planned_bytes arena_peak_bytes bytes_synced adapter_sha256 precision") {
		require.Contains(t, fields, name)
		delete(fields, name)
	}
	require.Empty(t, fields)
}

// Whoever sees the summary sees a whole run, also if the process ends in that moment.
func TestTableIsWholeBeforeTheSummary(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, nil)
	steps := []StepLog{sampleStep(1), sampleStep(2), sampleStep(3)}
	for _, s := range steps {
		require.NoError(t, l.Step(s))
	}
	require.NoError(t, l.WriteSummary(Summary{Steps: 3}))
	d, err := OpenDataset(filepath.Join(dir, CompletionsFile), DatasetOptions{})
	require.NoError(t, err)
	require.Equal(t, 9, d.Len())
	require.NoError(t, l.Close())
}

type someConfig struct {
	Beta         float64 `yaml:"beta"`
	LearningRate float64 `yaml:"learning-rate"`
	Inner        struct {
		Rank int `yaml:"lora-r"`
	} `yaml:",inline"`
}

func TestConfigIsReloadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	want := someConfig{Beta: 0.1, LearningRate: 1e-5}
	want.Inner.Rank = 8
	require.NoError(t, WriteConfig(path, want))
	var got someConfig
	require.NoError(t, ReadConfig(path, &got))
	require.Equal(t, want, got)
	require.NoError(t, os.WriteFile(path, []byte("beta: 1\nlearnin-rate: 2\nlora_r: 3\n"), 0o644))
	err := ReadConfig(path, &got)
	require.ErrorContains(t, err, `line 2: unknown option "learnin-rate"; did you mean "learning-rate"?`)
	require.ErrorContains(t, err, `"lora-r"`)
	require.NoError(t, os.WriteFile(path, []byte("beta: 1\nbeta: 2\n"), 0o644))
	require.ErrorContains(t, ReadConfig(path, &got), "already")
	require.NoError(t, os.WriteFile(path, []byte("beta: 1\n---\nbeta: 2\n"), 0o644))
	require.ErrorContains(t, ReadConfig(path, &got), "more than one")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.NoError(t, ReadConfig(path, &got))
}

func FuzzEvents(f *testing.F) {
	record, err := appendEvent([]byte(eventsMagic), sampleStep(1), []string{"a", "b"})
	require.NoError(f, err)
	f.Add(record)
	f.Add(record[:len(record)-3])
	f.Add([]byte(eventsMagic))
	f.Add([]byte("nothing"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := newEventReader(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			return
		}
		for {
			s, err := r.Next()
			if err != nil {
				break
			}
			sameBits(t, s.StepLog, s.StepLog, s.Rewards)
		}
	})
}

// FuzzEventPayload passes the checksum by, which a fuzzer cannot guess.
func FuzzEventPayload(f *testing.F) {
	record, err := appendEvent(nil, sampleStep(1), []string{"a", "b"})
	require.NoError(f, err)
	f.Add(record[8:])
	f.Fuzz(func(t *testing.T, payload []byte) {
		s, err := parseEvent(payload)
		if err != nil {
			return
		}
		again, err := appendEvent(nil, s.StepLog, s.Rewards)
		require.NoError(t, err)
		back, err := parseEvent(again[8:])
		require.NoError(t, err)
		sameBits(t, s.StepLog, back.StepLog, back.Rewards)
	})
}
