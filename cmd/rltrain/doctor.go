package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"graft/cmd/internal/launch"
	"graft/kernels/cpu/vec"
)

type doctorCmd struct {
	Runs string `help:"Folder of runs to check for writing." default:"runs" placeholder:"DIR"`
	JSON bool   `help:"JSON on standard output." name:"json"`
}

// Help is the manual's long text.
func (doctorCmd) Help() string {
	return "Computes every weight format and a whole forward and backward of the embedded model with every instruction set of this processor, compares the bits with each other and the values with the reference, and checks memory, Python and folders. Exit code 1 with the fix if something that training needs fails."
}

// finding is one line of the report.
type finding struct {
	What   string `json:"what"`
	OK     bool   `json:"ok"`
	Needed bool   `json:"needed"` // false: only some features need it
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// Run checks everything and reports what it found.
func (d doctorCmd) Run(c *console) error {
	var list []finding
	for _, check := range []func() finding{checkProcessor, checkFormats, checkModel, checkMemory, d.checkRuns, checkPython} {
		f := check()
		list = append(list, f)
		if !d.JSON {
			mark := "ok  "
			if !f.OK && f.Needed {
				mark = "FAIL"
			} else if !f.OK {
				mark = "note"
			}
			fmt.Fprintf(c.out, "%s  %-10s %s\n", mark, f.What, f.Detail)
			if !f.OK {
				fmt.Fprintf(c.out, "      %-10s %s\n", "", f.Fix)
			}
		}
	}
	if d.JSON {
		if err := json.NewEncoder(c.out).Encode(list); err != nil {
			return err
		}
	}
	var failed []string
	for _, f := range list {
		if !f.OK && f.Needed {
			failed = append(failed, f.What)
		}
	}
	if failed != nil {
		return fmt.Errorf("not fit to train: %s", strings.Join(failed, ", "))
	}
	return nil
}

// isas names the instruction sets, best first.
func isas() []string {
	var names []string
	for _, k := range vec.Supported() {
		names = append(names, k.String())
	}
	return names
}

func checkProcessor() finding {
	f := finding{What: "processor", OK: true, Needed: true,
		Detail: fmt.Sprintf("%s/%s, %d threads, kernels: %s", runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), strings.Join(isas(), ", "))}
	if len(isas()) == 1 {
		f.OK, f.Needed = false, false
		f.Fix = "only the plain Go kernels run here: results are the same but slow; use an amd64 processor with AVX2 or an arm64 one, and build without -tags noasm"
	}
	return f
}

func checkMemory() finding {
	f := finding{What: "memory", Needed: true, OK: true}
	n, ok := launch.Available()
	if !ok {
		f.OK, f.Needed = false, false
		f.Detail = "this system does not say how much is available"
		f.Fix = "give --memory-limit to have plans checked"
		return f
	}
	f.Detail = fmt.Sprintf("%s available", launch.Bytes(n))
	if n < 256<<20 {
		f.OK, f.Fix = false, "the demo needs 256 MiB; end other programs"
	}
	return f
}

// checkRuns writes, syncs, renames and removes a file where runs would go.
func (d doctorCmd) checkRuns() finding {
	f := finding{What: "runs", Needed: true, OK: true, Detail: d.Runs + " can be written"}
	if err := tryWrite(d.Runs); err != nil {
		f.OK, f.Detail, f.Fix = false, err.Error(), "make the folder writable, or give another one with --output-dir"
	}
	return f
}

func tryWrite(dir string) (err error) {
	made := ""
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil {
			break
		}
		made = at
		if at == filepath.Dir(at) {
			break
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if made != "" {
		defer os.RemoveAll(made)
	}
	file, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	name := file.Name()
	_, err = file.WriteString("doctor")
	return errors.Join(err, file.Sync(), file.Close(), os.Rename(name, name+".renamed"), os.Remove(name+".renamed"))
}

// checkPython looks for what py: rewards run in.
func checkPython() finding {
	f := finding{What: "python", Fix: "install Python 3, or name it in GRAFT_PYTHON; nothing but py: rewards needs it"}
	name := os.Getenv("GRAFT_PYTHON")
	if name == "" {
		name = "python3"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	cmd := exec.Command(path, "-c", "import sys, json, asyncio; print('.'.join(map(str, sys.version_info[:3])))")
	cmd.WaitDelay = time.Second
	timer := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.Output()
	if err != nil {
		f.Detail = fmt.Sprintf("%s does not run: %v", path, err)
		return f
	}
	f.OK, f.Detail = true, fmt.Sprintf("%s %s, for py: rewards", path, strings.TrimSpace(string(out)))
	return f
}
