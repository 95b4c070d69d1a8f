package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Versions that are compared with. The sdist of llama-cpp-python holds llama.cpp with the sources of
// its tools; the rest is what its projects released at the same time.
const (
	llamaSdist = "llama-cpp-python==0.3.36"
	llamaTree  = "llama_cpp_python-0.3.36"
)

var pythonPackages = []string{"torch==2.15.0", "transformers==5.24.0", "peft==0.21.0", "trl==1.16.0", "gguf==0.19.0"}

// peers is where the others are installed.
type peers struct {
	folder  string // absolute; "" when ours is measured alone
	threads int
}

// install brings the peers that the rows need. What is there already is taken as it is.
func install(ctx context.Context, opt *options, rows []row, talk io.Writer) (*peers, error) {
	p := &peers{threads: opt.threads}
	if opt.peers == noPeers {
		return p, nil
	}
	var err error
	if p.folder, err = filepath.Abs(opt.peers); err != nil {
		return nil, err
	}
	needs := func(who string) bool {
		return slices.ContainsFunc(rows, func(r row) bool { return r.Against == who })
	}
	if needs(llamaName) && !(exists(p.tool(llamaBench)) && exists(p.tool(llamaBatched))) {
		if err := p.installLlama(ctx, talk); err != nil {
			return nil, fmt.Errorf("installing llama.cpp into %s: %w (--peers none measures ours alone)", p.folder, err)
		}
	}
	if (needs(peftName) || needs(trlName)) && !p.pythonReady() {
		if err := p.installPython(ctx, talk); err != nil {
			return nil, fmt.Errorf("installing %s into %s: %w (--only leaves rows out, --peers none measures ours alone)", strings.Join(pythonPackages, ", "), p.folder, err)
		}
	}
	return p, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (p *peers) llama() string { return filepath.Join(p.folder, llamaTree, "vendor", "llama.cpp") }

// tool is the path of one of llama.cpp's programs.
func (p *peers) tool(name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(p.llama(), "build", "bin", name)
}

// installLlama fetches the sources and builds the two tools for this processor.
func (p *peers) installLlama(ctx context.Context, talk io.Writer) error {
	for _, need := range []string{"python3", "tar", "cmake"} {
		if _, err := exec.LookPath(need); err != nil {
			return fmt.Errorf("%s is needed: install it (and, for cmake, a C++ compiler)", need)
		}
	}
	if err := os.MkdirAll(p.folder, 0o755); err != nil {
		return err
	}
	if !exists(p.llama()) {
		if err := p.fetchLlama(ctx, talk); err != nil {
			return err
		}
	}
	fmt.Fprintln(talk, "building llama.cpp's", llamaBench, "and", llamaBatched, "(minutes)")
	configure := []string{"-S", p.llama(), "-B", filepath.Join(p.llama(), "build"), "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
		"-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_TOOLS=ON"}
	if _, err := exec.LookPath("ninja"); err == nil {
		configure = append(configure, "-G", "Ninja")
	}
	if err := p.do(ctx, "cmake", configure...); err != nil {
		return err
	}
	return p.do(ctx, "cmake", "--build", filepath.Join(p.llama(), "build"), "--config", "Release", "--parallel", fmt.Sprint(p.threads),
		"--target", llamaBench, llamaBatched)
}

// fetchLlama unpacks the sdist beside its place and moves it there whole.
func (p *peers) fetchLlama(ctx context.Context, talk io.Writer) error {
	fmt.Fprintln(talk, "fetching", llamaSdist)
	aside, err := os.MkdirTemp(p.folder, ".llama-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(aside)
	if err := p.do(ctx, "python3", "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python", "-d", aside, llamaSdist); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(aside, "*.tar.gz"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("pip brought %d archives for %s, want one", len(archives), llamaSdist)
	}
	if err := p.do(ctx, "tar", "-xzf", archives[0], "-C", aside); err != nil {
		return err
	}
	if !exists(filepath.Join(aside, llamaTree, "vendor", "llama.cpp", "tools", llamaBench)) {
		return fmt.Errorf("%s holds no vendor/llama.cpp/tools/%s", filepath.Base(archives[0]), llamaBench)
	}
	return os.Rename(filepath.Join(aside, llamaTree), filepath.Join(p.folder, llamaTree))
}

func (p *peers) python() string {
	if runtime.GOOS == "windows" {
		return filepath.Join(p.folder, "venv", "Scripts", "python.exe")
	}
	return filepath.Join(p.folder, "venv", "bin", "python")
}

// pythonStampText is what the stamp of a whole installation says.
func pythonStampText() string { return strings.Join(pythonPackages, "\n") }

// pythonStamp holds the versions that were installed whole.
func (p *peers) pythonStamp() string { return filepath.Join(p.folder, "venv", "graft-bench.txt") }

func (p *peers) pythonReady() bool {
	raw, err := os.ReadFile(p.pythonStamp())
	return err == nil && string(raw) == pythonStampText()
}

// installPython makes a virtual environment. pip's own variables (PIP_EXTRA_INDEX_URL ...) say where
// from: an index with torch's CPU wheels saves gigabytes of CUDA libraries that are never used.
func (p *peers) installPython(ctx context.Context, talk io.Writer) error {
	fmt.Fprintln(talk, "installing", strings.Join(pythonPackages, " "), "(minutes, gigabytes)")
	if err := os.MkdirAll(p.folder, 0o755); err != nil {
		return err
	}
	if !exists(p.python()) {
		if err := p.do(ctx, "python3", "-m", "venv", filepath.Join(p.folder, "venv")); err != nil {
			return err
		}
	}
	if err := p.do(ctx, p.python(), append([]string{"-m", "pip", "install", "--quiet"}, pythonPackages...)...); err != nil {
		return err
	}
	return os.WriteFile(p.pythonStamp(), []byte(pythonStampText()), 0o644)
}

// do runs a command of an installation; its output is shown only when it fails.
func (p *peers) do(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = p.folder
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return errors.Join(fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err), errors.New(tail(out.String(), 20)))
	}
	return nil
}
