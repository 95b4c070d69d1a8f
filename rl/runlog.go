package rl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"graft/weights"
	"graft/weights/durable"
)

// The files of a run's folder.
const (
	ConfigFile      = "config.yaml"
	MetricsFile     = "metrics.jsonl"
	EventsFile      = "events.log"
	CompletionsFile = "completions.parquet"
	SummaryFile     = "summary.json"
	TensorBoardFile = "events.out.tfevents.1.graft" // TensorBoard looks for "tfevents" in names
	lockFile        = "run.lock"
)

// RunLogOptions say where a run is logged and what is known of it from the start.
type RunLogOptions struct {
	Dir    string
	Config any // every option resolved; written as YAML
	// Rewards are the names of the reward functions, in the order of Rollout.Rewards.
	Rewards []string
	// Text decodes tokens for completions.parquet; nil leaves the columns of text out.
	Text func(ids []int32) string
	// Resume cuts the files back to where a checkpoint left them; nil starts a run.
	Resume *LogOffsets
}

// LogOffsets is where the files of a run stood when a checkpoint was made.
type LogOffsets struct {
	Metrics     int64 `json:"metrics"`
	Events      int64 `json:"events"`
	TensorBoard int64 `json:"tensorboard"`
}

// RunLog owns the files of a run's folder, and a lock on it, until it is closed.
type RunLog struct {
	o           RunLogOptions
	lock        *os.File
	metrics     *os.File
	events      *os.File
	tensorboard *os.File
	exported    int64 // bytes of the event log that completions.parquet holds
}

// StepLog is what one step leaves in the log.
type StepLog struct {
	Step     int // steps done, this one included
	Seed     uint64
	Version  uint64    // of the policy that the step sampled
	Hash     string    // of the parameters after the step; "" when it was not computed
	Time     time.Time // for TensorBoard
	Stats    Stats
	Rollouts []Rollout
}

// OpenRunLog makes or re-opens a run's folder. Everything that could fail later for want of a
// permission fails here, before any work is done.
func OpenRunLog(o RunLogOptions) (l *RunLog, err error) {
	if err := os.MkdirAll(o.Dir, 0o777); err != nil {
		return nil, fmt.Errorf("rl: the run's folder cannot be made: %w; choose another with --output-dir", err)
	}
	l = &RunLog{o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
			l = nil
		}
	}()
	if l.lock, err = os.OpenFile(filepath.Join(o.Dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return l, fmt.Errorf("rl: the run's folder cannot be written: %w; choose another with --output-dir", err)
	}
	if err := lock(l.lock); err != nil {
		return l, fmt.Errorf("rl: %s is in use by another process: %w; wait for it or choose another folder", o.Dir, err)
	}
	if o.Resume == nil {
		if err := Vacant(o.Dir); err != nil {
			return l, err
		}
		o.Resume = &LogOffsets{}
	} else if err := ignoreMissing(os.Remove(filepath.Join(o.Dir, SummaryFile))); err != nil {
		return l, fmt.Errorf("rl: %w", err) // a run that goes on is not done
	}
	if o.Config != nil {
		if err := WriteConfig(filepath.Join(o.Dir, ConfigFile), o.Config); err != nil {
			return l, err
		}
	}
	if l.metrics, err = reopen(o.Dir, MetricsFile, o.Resume.Metrics); err != nil {
		return l, err
	}
	if l.events, err = reopen(o.Dir, EventsFile, o.Resume.Events); err != nil {
		return l, err
	}
	if o.Resume.Events == 0 {
		if _, err := l.events.WriteString(eventsMagic); err != nil {
			return l, fmt.Errorf("rl: %w", err)
		}
	}
	if l.tensorboard, err = reopen(o.Dir, TensorBoardFile, o.Resume.TensorBoard); err != nil {
		return l, err
	}
	if o.Resume.TensorBoard == 0 {
		if _, err := l.tensorboard.Write(appendTFRecord(nil, versionEvent(time.Now()))); err != nil {
			return l, fmt.Errorf("rl: %w", err)
		}
	}
	return l, durable.SyncDir(o.Dir)
}

// Vacant fails when a folder holds a run that got somewhere, so that no new one can begin in it. A folder that does not
// exist is vacant.
func Vacant(dir string) error {
	for _, name := range []string{MetricsFile, SummaryFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && info.Size() > 0 {
			return fmt.Errorf("rl: %s holds a run already (%s); resume it or choose another folder", dir, name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rl: %w", err)
		}
	}
	found, err := steps(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("rl: %s holds a run already (%s%d); resume it or choose another folder", dir, checkpointPrefix, found[0])
	}
	return err
}

// reopen opens a file for appending behind its first size bytes; what follows them is cut off.
func reopen(dir, name string, size int64) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("rl: the run's folder cannot be written: %w", err)
	}
	info, err := f.Stat()
	if err == nil && (size < 0 || info.Size() < size) {
		err = fmt.Errorf("%s has %d bytes, the checkpoint was made at %d: it was cut or replaced since", name, info.Size(), size)
	}
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		_, err = f.Seek(size, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rl: %w", err), f.Close())
	}
	return f, nil
}

// Step appends a step to all files and syncs them. The line in metrics.jsonl is written last: a step
// that has one is whole in the others.
func (l *RunLog) Step(s StepLog) error {
	line, err := metricsLine(s)
	if err != nil {
		return err
	}
	record, err := appendEvent(nil, s, l.o.Rewards)
	if err != nil {
		return err
	}
	if err := appendSynced(l.events, record); err != nil {
		return err
	}
	if _, err := l.tensorboard.Write(appendTFRecord(nil, scalarsEvent(s))); err != nil {
		return fmt.Errorf("rl: %w", err)
	}
	return appendSynced(l.metrics, line)
}

func appendSynced(f *os.File, b []byte) error {
	if _, err := f.Write(b); err != nil {
		return fmt.Errorf("rl: %w; what was logged before is whole, and the run can be resumed from its last checkpoint", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("rl: %w", err)
	}
	return nil
}

// metricsLine is a step's line: step first, then the figures in their order; what is not finite is
// null, since JSON has no word for it.
func metricsLine(s StepLog) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"step":%d`, s.Step)
	for _, name := range s.Stats.Names {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("rl: figure %q: %w", name, err)
		}
		value := []byte("null")
		if v := s.Stats.Values[name]; !math.IsNaN(v) && !math.IsInf(v, 0) {
			if value, err = json.Marshal(v); err != nil {
				return nil, fmt.Errorf("rl: figure %q: %w", name, err)
			}
		}
		b.WriteByte(',')
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteString("}\n")
	return b.Bytes(), nil
}

// Offsets syncs the files and returns where they stand, for a checkpoint. It also refreshes
// completions.parquet once the log has grown by a quarter, so that all rewriting of a run together
// costs a few times what writing it once does.
func (l *RunLog) Offsets() (o LogOffsets, err error) {
	for _, x := range []struct {
		file *os.File
		size *int64
	}{{l.metrics, &o.Metrics}, {l.events, &o.Events}, {l.tensorboard, &o.TensorBoard}} {
		if err := x.file.Sync(); err != nil {
			return o, fmt.Errorf("rl: %w", err)
		}
		if *x.size, err = x.file.Seek(0, io.SeekCurrent); err != nil {
			return o, fmt.Errorf("rl: %w", err)
		}
	}
	if o.Events > l.exported+l.exported/4 {
		err = l.export(o.Events)
	}
	return o, err
}

func (l *RunLog) export(size int64) error {
	if err := WriteCompletions(filepath.Join(l.o.Dir, CompletionsFile), filepath.Join(l.o.Dir, EventsFile), l.o.Text); err != nil {
		return err
	}
	l.exported = size
	return nil
}

// Dir is the run's folder.
func (l *RunLog) Dir() string { return l.o.Dir }

// Close writes completions.parquet to its end and gives the folder free.
func (l *RunLog) Close() error { return errors.Join(l.exportRest(), l.close()) }

// exportRest brings completions.parquet up to the end of the event log.
func (l *RunLog) exportRest() error {
	o, err := l.Offsets()
	if err != nil || o.Events == l.exported {
		return err
	}
	return l.export(o.Events)
}

func (l *RunLog) close() error {
	var err error
	for _, f := range []*os.File{l.metrics, l.events, l.tensorboard, l.lock} { // closing the lock's file frees it
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Summary is summary.json, and the last line of --json output.
type Summary struct {
	Steps          int      `json:"steps"`
	TokensSampled  int64    `json:"tokens_sampled"`
	TokensTrained  int64    `json:"tokens_trained"`
	RewardFirst    *float64 `json:"reward_first"` // null where a run has none
	RewardLast     *float64 `json:"reward_last"`
	EvalBefore     *float64 `json:"eval_before"`
	EvalAfter      *float64 `json:"eval_after"`
	MismatchTokens int64    `json:"mismatch_tokens"`
	MismatchMax    float64  `json:"mismatch_max"`
	Seconds        float64  `json:"seconds"`
	SampleSeconds  float64  `json:"sample_seconds"`
	TrainSeconds   float64  `json:"train_seconds"`
	RewardSeconds  float64  `json:"reward_seconds"`
	PlannedBytes   int64    `json:"planned_bytes"` // that the process may have resident
	PeakBytes      int64    `json:"peak_bytes"`    // that it had
	ArenaPlanned   int64    `json:"arena_planned_bytes"`
	ArenaPeak      int64    `json:"arena_peak_bytes"`
	BytesSynced    int64    `json:"bytes_synced"` // copied from trainer to sampler: infer.Stats.BytesCopied
	AdapterSHA256  string   `json:"adapter_sha256"`
	Precision      string   `json:"precision"` // contract of every forward
}

// WriteSummary writes summary.json, the sign that a run is done, once everything else is there.
func (l *RunLog) WriteSummary(s Summary) error {
	if err := l.exportRest(); err != nil {
		return err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("rl: summary: %w", err)
	}
	return weights.WriteFile(filepath.Join(l.o.Dir, SummaryFile), append(raw, '\n'))
}

// ReadSummary reads the summary of a run that is done.
func ReadSummary(dir string) (Summary, error) {
	var s Summary
	raw, err := readBounded(filepath.Join(dir, SummaryFile), 1<<20)
	if err != nil {
		return s, fmt.Errorf("rl: %w", err)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("rl: %s: %w", filepath.Join(dir, SummaryFile), err)
	}
	return s, nil
}
