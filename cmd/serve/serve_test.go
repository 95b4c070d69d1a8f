package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/cmd/internal/launch"
	"graft/kernels"
	"graft/weights"
)

// program is a serve that runs in this process.
type program struct {
	url     string
	signals chan os.Signal
	code    chan int
	errs    *lockedBuffer
}

// lockedBuffer collects what the program says.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// start runs serve on a free port until the test ends.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{signals: make(chan os.Signal, 2), code: make(chan int, 1), errs: &lockedBuffer{}}
	out, in := io.Pipe()
	go func() {
		p.code <- run(append([]string{"--port", "0", "--kv-cache-memory", "4MiB"}, args...), in, p.errs, p.signals)
		in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "%s", p.errs)
	p.url = strings.TrimSuffix(strings.TrimSpace(line), "/v1")
	return p
}

// stop ends the program as an operator does.
func (p *program) stop(t *testing.T) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	p.signals <- syscall.SIGTERM
	require.Equal(t, exitDone, <-p.code, "%s", p.errs)
}

func (p *program) get(t *testing.T, path, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("GET", p.url+path, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}

func (p *program) complete(t *testing.T, model string) (int, string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"prompt":"12 + 7 =","temperature":0,"max_tokens":8,"ignore_eos":true,"logprobs":0}`, model)
	resp, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	_, choices, _ := strings.Cut(string(raw), `"choices"`)
	return resp.StatusCode, choices
}

// adapterFolder writes an adapter of the embedded model that changes it.
func adapterFolder(t *testing.T, dir string) { adapterUnder(t, dir, launch.Auto) }

// adapterUnder writes one that was trained under a precision contract.
func adapterUnder(t *testing.T, dir, precision string) {
	t.Helper()
	be := launch.NewBackend(1)
	defer be.Close()
	source, err := launch.Open(launch.Request{Model: launch.Tiny, Precision: precision})
	require.NoError(t, err)
	defer source.Files.Close()
	arena := weights.NewArena(kernels.Checked(be), 0)
	defer arena.Close()
	m, err := source.Files.Load(arena)
	require.NoError(t, err)
	ad, err := m.NewAdapter(1, weights.AdapterConfig{R: 4, Alpha: 64, TargetModules: []string{"all-linear"}}, 1, false)
	require.NoError(t, err)
	for _, p := range ad.Pairs() {
		half := bytes.Repeat([]byte{0, 0, 0, 0x3F}, p.B.Out*p.B.In)
		be.Pack(p.B, 0, half)
	}
	require.NoError(t, be.Sync())
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, m.SavePEFT(ad, dir))
}

func TestServesModelAndAdapters(t *testing.T) {
	root := t.TempDir()
	adapterFolder(t, filepath.Join(root, "run-7", "adapter"))
	adapterFolder(t, filepath.Join(root, "a=b"))
	p := start(t, "--model", "tiny", "--served_model_name", "base", "--adapter", "mine="+filepath.Join(root, "run-7"),
		"--adapter", filepath.Join(root, "run-7", "adapter"), "--adapter", filepath.Join(root, "a=b"))
	defer p.stop(t)
	for _, name := range []string{"base", "mine", "run-7", "a=b"} {
		status, _ := p.get(t, "/v1/models/"+name, "")
		require.Equal(t, 200, status, name)
	}
	status, base := p.complete(t, "base")
	require.Equal(t, 200, status, base)
	_, mine := p.complete(t, "mine")
	_, run := p.complete(t, "run-7")
	require.NotEqual(t, base, mine)
	require.Equal(t, mine, run)
	require.Contains(t, p.errs.String(), "planned")
	require.Contains(t, p.errs.String(), "keys and values")
	require.NotContains(t, p.errs.String(), "warning")
}

// Adapters may come at run time where the operator allows it and the plan has room for them.
func TestLoadsAdaptersAtRunTime(t *testing.T) {
	root := filepath.Join(t.TempDir(), "late")
	adapterFolder(t, root)
	p := start(t, "--model", "tiny", "--allow-runtime-lora-updating", "--max-loras", "2", "--max-lora-rank", "4")
	defer p.stop(t)
	load := func(name string) int {
		resp, err := http.Post(p.url+"/v1/load_lora_adapter", "application/json", strings.NewReader(fmt.Sprintf(`{"lora_name":%q,"lora_path":%q}`, name, root)))
		require.NoError(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	require.Equal(t, 200, load("one"))
	require.Equal(t, 200, load("two"))
	require.Equal(t, 400, load("three"), "planned for two")
	_, one := p.complete(t, "one")
	_, two := p.complete(t, "two")
	require.Equal(t, one, two)
}

// Without a model, the last run's model and adapter are served.
func TestServesLastRun(t *testing.T) {
	runs := t.TempDir()
	adapterFolder(t, filepath.Join(runs, "night", "adapter"))
	require.NoError(t, os.WriteFile(filepath.Join(runs, "night", "config.yaml"), []byte("command: grpo\nmodel: tiny\n"), 0o644))
	p := start(t, "--runs", runs)
	status, _ := p.complete(t, "night")
	require.Equal(t, 200, status)
	p.stop(t)
	p = start(t, "--runs", runs, "--adapter", "none")
	status, _ = p.complete(t, "night")
	require.Equal(t, 404, status)
	p.stop(t)
}

func TestKeyFromEnvironment(t *testing.T) {
	t.Setenv("GRAFT_API_KEY", "sesame")
	p := start(t, "--model", "tiny", "--host", "0.0.0.0")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	p.url = "http://127.0.0.1:" + port
	status, _ := p.get(t, "/v1/models", "guess")
	require.Equal(t, 401, status)
	status, _ = p.get(t, "/v1/models", "sesame")
	require.Equal(t, 200, status)
	status, _ = p.get(t, "/health", "")
	require.Equal(t, 200, status)
	p.stop(t)
	require.NotContains(t, p.errs.String(), "sesame")
	require.NotContains(t, p.errs.String(), "warning")

	var help bytes.Buffer
	require.Equal(t, exitDone, run([]string{"--help"}, &help, io.Discard, nil))
	require.NotContains(t, help.String(), "sesame")
}

func TestOpenServerWarns(t *testing.T) {
	p := start(t, "--model", "tiny", "--host", "0.0.0.0")
	p.stop(t)
	require.Contains(t, p.errs.String(), "warning: everybody")
}

// A signal lets a request under way end; a second one does not wait for it.
func TestSignals(t *testing.T) {
	for _, impatient := range []bool{false, true} {
		p := start(t, "--model", "tiny", "--max-num-seqs", "1", "--max-num-batched-tokens", "1")
		body := `{"prompt":"1","ignore_eos":true,"max_tokens":400,"logit_bias":{"259":-100},"stream":true}`
		resp, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		in := bufio.NewReader(resp.Body)
		_, err = in.ReadString('\n')
		require.NoError(t, err)
		p.signals <- syscall.SIGINT
		if impatient {
			p.signals <- syscall.SIGINT
		}
		rest, _ := io.ReadAll(in)
		resp.Body.Close()
		code := <-p.code
		if !impatient {
			require.Equal(t, exitDone, code)
			require.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"))
			require.Contains(t, string(rest), `"finish_reason":"length"`)
		} else if code != exitFailed { // the request had ended before the second signal
			require.Contains(t, string(rest), `"finish_reason":"length"`)
		}
	}
}

func TestMistakes(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	_, port, _ := net.SplitHostPort(busy.Addr().String())
	file := filepath.Join(t.TempDir(), "not-a-model.gguf")
	require.NoError(t, os.WriteFile(file, []byte("GGUF nonsense"), 0o644))
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--modle", "tiny"}, exitUsage, "--model"},
		{[]string{"extra"}, exitUsage, "extra"},
		{[]string{"--port", "70000"}, exitUsage, "65535"},
		{[]string{"--max-num-seqs", "0"}, exitUsage, "max-num-seqs"},
		{[]string{"--max-num-seqs", "9", "--max-num-batched-tokens", "8"}, exitUsage, "each sequence needs one token"},
		{[]string{"--model", "tiny", "--port", "0", "--max-model-len", "100000"}, exitUsage, "512"},
		{[]string{"--allow-runtime-lora-updating", "--max-lora-rank", "1000"}, exitUsage, "max-lora-rank"},
		{[]string{"--max-loras", "2"}, exitUsage, "--allow-runtime-lora-updating"},
		{[]string{"--api-key", ""}, exitUsage, "api-key"},
		{[]string{"--memory-limit", "lots"}, exitUsage, "4GiB"},
		{[]string{"--model", "tiny", "--port", port}, exitFailed, "--port"},
		{[]string{"--model", "/does/not/exist", "--port", "0"}, exitFailed, "/does/not/exist"},
		{[]string{"--model", file, "--port", "0"}, exitFailed, "not-a-model.gguf"},
		{[]string{"--runs", t.TempDir(), "--port", "0"}, exitFailed, "--model"},
		{[]string{"--model", "tiny", "--port", "0", "--adapter", "x=/does/not/exist"}, exitFailed, "/does/not/exist"},
		{[]string{"--model", "tiny", "--port", "0", "--memory-limit", "1MiB"}, exitFailed, "--memory-limit is 1.00 MiB"},
		{[]string{"--model", "tiny", "--port", "0", "--kv-cache-memory", "1KiB"}, exitFailed, "--kv-cache-memory"},
		{[]string{"--model", "tiny", "--port", "0", "--chat-template", "/does/not/exist"}, exitFailed, "--chat-template"},
		{[]string{"--model", "tiny", "--port", "0", "--chat-template", file, "--served-model-name", "a", "--served-model-name", "a"}, exitFailed, "two models are called"},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, c.code, run(c.args, &out, &errs, nil), "%v: %s", c.args, &errs)
		require.Contains(t, errs.String(), c.says, "%v", c.args)
		require.Empty(t, out.String(), "%v", c.args)
	}
}

// The plan is what is taken: nothing more fits into the arena, and nothing is left over.
// The version is printed, and an environment variable does not ask for it.
func TestVersion(t *testing.T) {
	t.Setenv("GRAFT_VERSION", "1")
	var out, errs bytes.Buffer
	require.Equal(t, exitDone, run([]string{"--version"}, &out, &errs, nil))
	require.Contains(t, out.String(), "serve ")
	out.Reset()
	require.Equal(t, exitFailed, run([]string{"--model", "none.gguf"}, &out, &errs, nil))
	require.Empty(t, out.String())
}

func TestPlanIsExact(t *testing.T) {
	root := filepath.Join(t.TempDir(), "tuned")
	adapterFolder(t, root)
	f := &flags{}
	require.NoError(t, f.parse([]string{"--model", "tiny", "--adapter", root, "--kv-cache-memory", "2MiB", "--threads", "2"}, io.Discard))
	require.NoError(t, f.check())
	h := &house{}
	defer h.close()
	require.NoError(t, h.open(f))
	require.NoError(t, h.load())
	require.LessOrEqual(t, h.loaded.Arena.Used(), h.plan.Arena())
	require.InEpsilon(t, float64(h.plan.Arena()), float64(h.loaded.Arena.Used()), 0.01)
}

func TestBaseIsCalledAsItWasNamed(t *testing.T) {
	p := start(t, "--model", "tiny")
	status, list := p.get(t, "/v1/models", "")
	require.Equal(t, 200, status)
	require.Contains(t, list, `"id":"tiny"`)
	status, _ = p.complete(t, "tiny")
	require.Equal(t, 200, status)
	p.stop(t)

	for _, c := range []struct {
		flags    flags
		model    string
		adapters []named
		want     []string
	}{
		{flags{Model: "models/My Model.Q4_1.gguf"}, "models/My Model.Q4_1.gguf", nil, []string{"My-Model.Q4_1"}},
		{flags{Model: "models/m.gguf"}, "models/m.gguf", nil, []string{"m", "models/m.gguf"}},
		{flags{}, filepath.Join("runs", "full-1", "model.gguf"), nil, []string{"full-1"}},
		{flags{Model: "tiny"}, "tiny", []named{{name: "tiny"}}, []string{"tiny-base"}},
		{flags{Model: "tiny", ServedModelName: []string{"a b"}}, "tiny", nil, []string{"a b"}},
	} {
		require.Equal(t, c.want, c.flags.names(&launch.Source{Model: c.model}, c.adapters))
	}
}
