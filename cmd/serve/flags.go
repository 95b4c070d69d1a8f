package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/alecthomas/kong"

	"graft/cmd/internal/launch"
	"graft/infer"
	"graft/infer/paged"
	"graft/model"
	"graft/weights"
)

// flags are the options of serve.
type flags struct {
	Model           string   `help:"GGUF file, folder with safetensors, or tiny (embedded). Default: the last run's model with its adapter." placeholder:"MODEL" group:"Model:"`
	Adapter         []string `help:"LoRA adapter to serve beside the base: NAME=PATH, or PATH, which is called by the name of its folder. A PEFT folder, adapter GGUF or run folder; repeatable. none: without the last run's." placeholder:"NAME=PATH" sep:"none" group:"Model:"`
	Runs            string   `help:"Folder of runs." default:"runs" group:"Model:"`
	ServedModelName []string `help:"What requests call the base model; repeatable. Default: tiny, or the name of its file or folder. What --model was given is understood too. A request that names no model gets the base, also where the last run's adapter is served beside it." placeholder:"NAME" sep:"none" group:"Model:"`
	ChatTemplate    string   `help:"Jinja file to use instead of the model's chat template." placeholder:"FILE" group:"Model:"`
	Precision       string   `help:"Arithmetic of products with quantized matrices. f32: activations as they are. int8: activations rounded to 8 bits in runs of 32, sums of whole numbers: faster where the processor has instructions for it, and results differ from f32's as with another quantization. auto: what the adapters were trained under (adapters of both kinds cannot be served together), else ${auto_precision}. Another one than an adapter's is used with a warning." default:"auto" enum:"auto,f32,int8" placeholder:"NAME" group:"Model:"`
	MaxModelLen     int      `help:"Positions of prompt and completion together; 0: what the model was made for, at most 8192." placeholder:"N" group:"Model:"`

	Host           string        `help:"Address to listen on; 0.0.0.0 for all." default:"127.0.0.1" group:"Server:"`
	Port           int           `help:"Port to listen on; 0: any free one." default:"8000" group:"Server:"`
	APIKey         []string      `name:"api-key" help:"Key that every endpoint but /health, /ping and /version asks for; repeatable. The variable GRAFT_API_KEY keeps it out of the list of processes." placeholder:"KEY" sep:"none" group:"Server:"`
	AllowedOrigins []string      `help:"Origins of web pages that may read answers, such as http://localhost:3000; * for all." placeholder:"ORIGIN" group:"Server:"`
	MaxBodySize    launch.Bytes  `help:"Most bytes of a request's body." default:"8MiB" group:"Server:"`
	MaxConnections int           `help:"Connections open at once." default:"1024" group:"Server:"`
	StallTimeout   time.Duration `help:"How long a client may take to send a request, or to take what is written to it." default:"2m" group:"Server:"`
	DrainTimeout   time.Duration `help:"How long requests under way may go on after SIGINT or SIGTERM; then they are answered 503 and the exit code is 1." default:"2m" group:"Server:"`
	LogRequests    bool          `help:"One line on standard error for every request: id, method, path, status, time, finish reasons or the reason of the failure; never texts or keys. Without it only failures of the server are told." default:"true" negatable:"" group:"Server:"`

	MaxNumSeqs               int          `help:"Sequences computed at once." default:"64" group:"Engine:"`
	MaxNumBatchedTokens      int          `help:"Tokens of one step; 0: 256, or --max-num-seqs if that is more." placeholder:"N" group:"Engine:"`
	MaxQueuedRequests        int          `help:"Sequences that may wait; more are answered 503 with Retry-After." default:"1024" group:"Engine:"`
	KVCacheMemory            launch.Bytes `name:"kv-cache-memory" help:"Memory for keys and values. Default: 1GiB, at least one full sequence, at most --max-num-seqs of them, and no more than is left." placeholder:"SIZE" group:"Engine:"`
	EnablePrefixCaching      bool         `help:"Prompts that begin alike share keys and values." default:"true" negatable:"" group:"Engine:"`
	AllowRuntimeLoraUpdating bool         `help:"Answer /v1/load_lora_adapter and /v1/unload_lora_adapter. Whoever may use the server may then make it read adapter files." group:"Engine:"`
	MaxLoras                 int          `help:"Adapters that may be loaded at run time; 0: 4." placeholder:"N" group:"Engine:"`
	MaxLoraRank              int          `help:"Highest rank of an adapter loaded at run time; 0: 16." placeholder:"R" group:"Engine:"`
	Threads                  int          `help:"Threads that compute; 0: all. Results do not depend on it." placeholder:"N" group:"Engine:"`
	MemoryLimit              launch.Bytes `help:"Most memory the plan may take, as 4GiB; default: what is available now." placeholder:"SIZE" group:"Engine:"`

	Version kong.VersionFlag `help:"Print the version."`
}

// check refuses numbers out of range and fills in defaults that depend on others.
func (f *flags) check() error {
	for _, c := range []struct {
		name      string
		v, lo, hi int
	}{
		{"port", f.Port, 0, 65535},
		{"max-model-len", f.MaxModelLen, 0, 1 << 26},
		{"max-connections", f.MaxConnections, 1, 1 << 20},
		{"max-num-seqs", f.MaxNumSeqs, 1, 1 << 16},
		{"max-num-batched-tokens", f.MaxNumBatchedTokens, 0, 1 << 20},
		{"max-queued-requests", f.MaxQueuedRequests, 1, 1 << 24},
		{"max-loras", f.MaxLoras, 0, 1 << 12},
		{"max-lora-rank", f.MaxLoraRank, 0, weights.MaxRank},
		{"threads", f.Threads, 0, 1024},
	} {
		if c.v < c.lo || c.v > c.hi {
			return usage("--%s %d: want %d to %d", c.name, c.v, c.lo, c.hi)
		}
	}
	switch {
	case f.MaxModelLen == 1:
		return usage("--max-model-len 1: a prompt and a completion need at least 2")
	case f.MaxNumBatchedTokens > 0 && f.MaxNumBatchedTokens < f.MaxNumSeqs:
		return usage("--max-num-batched-tokens %d: want at least --max-num-seqs %d, since each sequence needs one token of a step", f.MaxNumBatchedTokens, f.MaxNumSeqs)
	case !f.AllowRuntimeLoraUpdating && f.MaxLoras+f.MaxLoraRank > 0:
		return usage("--max-loras and --max-lora-rank are for adapters loaded at run time: add --allow-runtime-lora-updating")
	case f.MaxBodySize < 1<<10 || f.MaxBodySize > 1<<30:
		return usage("--max-body-size %s: want 1KiB to 1GiB", f.MaxBodySize)
	case f.StallTimeout < time.Second || f.DrainTimeout < 0:
		return usage("--stall-timeout %s, --drain-timeout %s: want at least 1s and 0s", f.StallTimeout, f.DrainTimeout)
	case f.MemoryLimit < 0 || f.KVCacheMemory < 0:
		return usage("an amount of memory is negative")
	}
	if f.MaxLoras == 0 {
		f.MaxLoras = 4
	}
	if f.MaxLoraRank == 0 {
		f.MaxLoraRank = 16
	}
	for _, key := range f.APIKey {
		if strings.TrimSpace(key) != key || key == "" {
			return usage("--api-key is empty or begins or ends with a space")
		}
	}
	return nil
}

// named is an adapter as the command line or the last run names it.
type named struct {
	name, path string
	shape      launch.Shape
}

// adapters finds the adapters to serve: those of the command line, or the last run's.
func (f *flags) adapters(source *launch.Source) ([]named, error) {
	if len(f.Adapter) == 1 && f.Adapter[0] == launch.NoAdapter {
		return nil, nil
	}
	var out []named
	for _, given := range f.Adapter {
		name, path, found := strings.Cut(given, "=")
		if _, err := os.Stat(given); err == nil || !found || strings.ContainsAny(name, `/\`) {
			name, path = "", given
		}
		at, err := launch.AdapterPath(path)
		if err != nil {
			return nil, err
		}
		if name == "" {
			name = nameOf(path)
		}
		out = append(out, named{name: name, path: at})
	}
	if len(f.Adapter) == 0 && source.Adapter != "" {
		out = append(out, named{name: filepath.Base(source.Run), path: source.Adapter})
	}
	return out, nil
}

// nameOf calls an adapter by its file or folder; a run's folder "adapter" by the run.
func nameOf(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	name := filepath.Base(path)
	if name == "adapter" {
		name = filepath.Base(filepath.Dir(path))
	}
	return strings.TrimSuffix(name, ".gguf")
}

// names are what requests may call the base model: what was asked for, or else the name of its file
// and what a person typed.
func (f *flags) names(source *launch.Source, adapters []named) []string {
	if len(f.ServedModelName) > 0 {
		return f.ServedModelName
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(adapters, func(a named) bool { return a.name == name })
	}
	id := idOf(source.Model)
	for taken(id) {
		id += "-base"
	}
	out := []string{id}
	if f.Model != "" && f.Model != id && !taken(f.Model) && !strings.ContainsFunc(f.Model, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		out = append(out, f.Model)
	}
	return out
}

// idOf is a model's file or folder without its place and ending, and without spaces: they are a
// nuisance in requests. The file that full fine-tuning leaves is called by its run.
func idOf(path string) string {
	if full, err := filepath.Abs(path); err == nil && path != launch.Tiny {
		path = full
	}
	if filepath.Base(path) == launch.ModelFile {
		path = filepath.Dir(path)
	}
	return strings.Join(strings.FieldsFunc(strings.TrimSuffix(filepath.Base(path), ".gguf"), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), "-")
}

// length is how long a sequence may be.
func (f *flags) length(c *model.Config) (int, error) {
	if f.MaxModelLen > c.Context {
		return 0, usage("--max-model-len %d: the model was made for %d positions", f.MaxModelLen, c.Context)
	}
	if f.MaxModelLen > 0 {
		return f.MaxModelLen, nil
	}
	return min(c.Context, 8192), nil
}

// engine are the engine's options but for the pages.
func (f *flags) engine(length int) infer.Options {
	o := infer.Options{MaxModelLen: length, MaxSeqs: f.MaxNumSeqs, MaxBatchedTokens: f.MaxNumBatchedTokens,
		MaxWaiting: f.MaxQueuedRequests, NoPrefixCache: !f.EnablePrefixCaching, Threads: f.Threads}
	if o.MaxBatchedTokens == 0 {
		o.MaxBatchedTokens = max(256, o.MaxSeqs)
	}
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	return o
}

// pages is how many pages of size bytes the cache gets when left bytes remain (0: nobody knows).
func (f *flags) pages(length int, size, left int64) (int, error) {
	full := int64(paged.PagesFor(length))
	if f.KVCacheMemory > 0 {
		n := int64(f.KVCacheMemory) / size
		if n < 1 {
			return 0, fmt.Errorf("--kv-cache-memory %s: one page of keys and values takes %s, a full sequence of %d tokens %s", f.KVCacheMemory, launch.Bytes(size), length, launch.Bytes(full*size))
		}
		return int(min(n, full*int64(f.MaxNumSeqs))), nil
	}
	n := min(1<<30/size, full*int64(f.MaxNumSeqs))
	if left > 0 {
		n = min(n, left/size)
	}
	return int(max(n, full)), nil
}

// address is where to listen.
func (f *flags) address() string { return net.JoinHostPort(f.Host, strconv.Itoa(f.Port)) }

// local reports whether only this machine can connect.
func (f *flags) local() bool {
	ip := net.ParseIP(f.Host)
	return f.Host == "localhost" || ip != nil && ip.IsLoopback()
}

// template reads the file of --chat-template.
func (f *flags) template() (string, error) {
	if f.ChatTemplate == "" {
		return "", nil
	}
	raw, err := os.ReadFile(f.ChatTemplate)
	if err != nil {
		return "", fmt.Errorf("--chat-template: %w", err)
	}
	if len(raw) == 0 {
		return "", errors.New("--chat-template: the file is empty")
	}
	return string(raw), nil
}
