// Package launch is what the programs share before and around a run: finding the model that a
// person named (a file, a folder, "tiny", or nothing: the last run's), the table of planned memory
// and whether it fits this machine, and the folders that runs leave.
//
// It holds no algorithm and no flag: cmd/* own those. It may not know losses or requests. It keeps
// no state between calls.
package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"graft/model"
	"graft/tiny"
)

// Tiny is the name of the embedded model.
const Tiny = "tiny"

// NoAdapter asks for the base model although the run has an adapter.
const NoAdapter = "none"

// Request is what a person asked for.
type Request struct {
	Model   string // GGUF file, folder with safetensors, or Tiny; "": the last run's in Runs
	Adapter string // PEFT folder, adapter GGUF, run folder, or NoAdapter; "": the run's, if Model is ""
	Runs    string // folder of runs; "": "runs"
	Options model.Options
	// Precision is Auto, f32 or int8; "": Auto. It and Use decide Options.Precision, see Source.Settle.
	Precision string
	Use       Use
}

// Source is a model that was found and described, not yet loaded.
type Source struct {
	Files   *model.Files
	Model   string // path or Tiny
	Adapter string // path; "": none
	Run     string // the run that the model was taken from; "": it was named

	Warnings []string // what a person should know before it is used
}

// Open finds and describes the model of a request.
func Open(r Request) (*Source, error) {
	s := &Source{Model: r.Model, Adapter: r.Adapter}
	if s.Model == "" {
		run, err := LastRun(r.Runs)
		if err != nil {
			return nil, err
		}
		s.Run, s.Model = run.Dir, run.Model
		if s.Adapter == "" {
			s.Adapter = run.Adapter
		}
		if run.Trained != "" && s.Adapter == "" {
			s.Model = run.Trained
		}
	}
	if s.Adapter == NoAdapter {
		s.Adapter = ""
	}
	if s.Adapter != "" {
		var err error
		if s.Adapter, err = AdapterPath(s.Adapter); err != nil {
			return nil, err
		}
	}
	var err error
	if s.Files, err = openFiles(s.Model, r.Options); err != nil {
		return nil, err
	}
	var adapters []string
	if s.Adapter != "" {
		adapters = append(adapters, s.Adapter)
	}
	if err := s.Settle(r.Precision, r.Use, adapters...); err != nil {
		s.Files.Close()
		return nil, err
	}
	return s, nil
}

func openFiles(path string, o model.Options) (*model.Files, error) {
	if strings.HasPrefix(path, "hf:") {
		return nil, fmt.Errorf("model %s: Graft does not download models; get the GGUF file or the folder first and give its path", path)
	}
	if path != Tiny {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && hubName(path) {
			return nil, fmt.Errorf("model %s is no file or folder here, and Graft downloads nothing; get the GGUF file or the folder first and give its path", path)
		}
		return model.Open(path, o)
	}
	f, err := tiny.Open()
	if err != nil {
		return nil, fmt.Errorf("the embedded model: %w", err)
	}
	files, err := model.FromGGUF(f, o)
	if err != nil {
		return nil, fmt.Errorf("the embedded model: %w", err)
	}
	files.Path = Tiny
	return files, nil
}

// hubName tells whether a model is named as OWNER/NAME, the way hubs do.
func hubName(name string) bool {
	owner, rest, ok := strings.Cut(name, "/")
	return ok && owner != "" && rest != "" && !strings.HasPrefix(owner, ".") && owner != "~" && !strings.ContainsAny(rest, `/\`) &&
		!strings.HasSuffix(rest, ".gguf") && !strings.HasSuffix(rest, ".safetensors")
}

// AdapterPath finds the adapter that a path means: itself, or the adapter of a run or checkpoint
// folder.
func AdapterPath(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("adapter %s: %w; give a PEFT folder, an adapter GGUF or a run folder", path, pathCause(err))
	}
	if !info.IsDir() {
		return path, nil
	}
	for _, dir := range []string{path, filepath.Join(path, "adapter")} {
		if _, err := os.Stat(filepath.Join(dir, "adapter_config.json")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("adapter %s: the folder has no adapter_config.json, and no folder adapter/ with one; is it a run that has not ended? Its checkpoint-N folders hold adapters too", path)
}

// pathCause drops the operation and path that a message names already.
func pathCause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
