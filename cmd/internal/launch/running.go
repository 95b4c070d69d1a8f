package launch

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
)

// Names of the files that tell of a run under way, as rl writes them.
const (
	lockName    = "run.lock"
	metricsName = "metrics.jsonl"
)

// Running tells whether a process is training in a run's folder. It asks for the run's lock without
// waiting and gives it back at once.
func Running(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return false
	}
	defer f.Close()
	return locked(f)
}

// longestLine bounds the end of the metrics that is read for the last step.
const longestLine = 64 << 10

// lastStep is the step of the last whole line of a run's metrics, 0 if there is none.
func lastStep(dir string) int {
	f, err := os.Open(filepath.Join(dir, metricsName))
	if err != nil {
		return 0
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0
	}
	tail := make([]byte, min(size, longestLine))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return 0
	}
	whole := bytes.LastIndexByte(tail, '\n')
	if whole < 0 {
		return 0
	}
	tail = tail[:whole]
	var line struct {
		Step int `json:"step"`
	}
	if json.Unmarshal(tail[bytes.LastIndexByte(tail, '\n')+1:], &line) != nil {
		return 0
	}
	return line.Step
}
