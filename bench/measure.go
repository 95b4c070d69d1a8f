package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/pprof"

	"graft/kernels"
	"graft/kernels/cpu"
	"graft/model"
	"graft/weights"
)

// measureCommand makes this binary measure one row of ours: the first argument of a child process.
const measureCommand = "measure"

// job is what such a child is told, as JSON in its second argument.
type job struct {
	Row     row    `json:"row"`
	Path    string `json:"path"` // of the model
	Threads int    `json:"threads"`
	Rounds  int    `json:"rounds"`  // of kinds whose child does all rounds
	Profile string `json:"profile"` // file for a CPU profile of the timed part, "" none
}

// timing is what a child answers, ours or theirs, as the last line of its output.
type timing struct {
	Seconds float64 `json:"seconds"` // of the timed part
	Tokens  int     `json:"tokens"`  // processed in it

	Sampling float64 `json:"sampling_seconds,omitempty"` // of a GRPO step of ours
}

const kindRoof = "roof"

// measure runs a job and writes its result as JSON.
func measure(spec string, out io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(spec), &j); err != nil {
		return fmt.Errorf("%s: %w", measureCommand, err)
	}
	answer, err := j.answer()
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

func (j *job) answer() (any, error) {
	switch j.Row.Kind {
	case kindRoof:
		return runRoof(j.Threads)
	case kindSplit:
		return j.runSplit()
	}
	be := cpu.New(cpu.Options{Threads: j.Threads})
	defer be.Close()
	arena := weights.NewArena(kernels.Checked(be), 0)
	defer arena.Close()
	m, err := j.load(arena)
	if err != nil {
		return nil, err
	}
	switch j.Row.Kind {
	case kindDecode, kindPrefill, kindGroup:
		return j.sample(m)
	case kindLoRA:
		return j.trainAdapter(m)
	case kindGRPO:
		return j.grpoStep(m)
	case kindContext:
		return j.decodeAtLengths(m)
	}
	return nil, fmt.Errorf("a row of unknown kind %q", j.Row.Kind)
}

// load reads the row's model under the row's precision contract.
func (j *job) load(arena *weights.Arena) (*model.Model, error) {
	length := 1024
	for _, n := range j.Row.Lengths {
		length = max(length, n)
	}
	precision, ok := kernels.ParsePrecision(j.Row.Precision)
	if !ok {
		return nil, fmt.Errorf("a row of unknown precision %q", j.Row.Precision)
	}
	files, err := model.Open(j.Path, model.Options{Context: length, Precision: precision})
	if err != nil {
		return nil, err
	}
	defer files.Close()
	return files.Load(arena)
}

// profiled runs f under the CPU profiler, if the job asks for it.
func (j *job) profiled(f func() error) error {
	if j.Profile == "" {
		return f()
	}
	file, err := os.Create(j.Profile)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}
