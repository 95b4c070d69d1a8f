package tests

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/infer"
	"graft/kernels"
	"graft/kernels/cpu"
	"graft/model"
	"graft/rl"
	"graft/tiny"
	"graft/weights"
)

// parityModels are the embedded model, each family's golden checkpoint, and the formats a GGUF file
// may hold them in.
func parityModels() []string {
	return []string{"tiny", "llama-untied", "llama-rope-llama3", "mistral", "qwen2", "qwen3", "gemma3", "phi3", "phi3-longrope",
		"llama-Q4_0.gguf", "qwen3-Q8_0.gguf", "gemma3.gguf", "tiny int8", "llama-Q4_0.gguf int8", "qwen3-Q8_0.gguf int8"}
}

// openModel loads one of parityModels on a backend of its own. Behind the name may stand the precision
// contract.
func openModel(t *testing.T, name string, threads int) *model.Model {
	t.Helper()
	be := cpu.New(cpu.Options{Threads: threads})
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	arena := weights.NewArena(be, 0)
	t.Cleanup(arena.Close)
	var files *model.Files
	var err error
	o := model.Options{Context: 128}
	name, contract, given := strings.Cut(name, " ")
	if given {
		o.Precision, given = kernels.ParsePrecision(contract)
		require.True(t, given, contract)
	}
	switch {
	case name == "tiny":
		file, e := tiny.Open()
		require.NoError(t, e)
		files, err = model.FromGGUF(file, o)
	case strings.HasSuffix(name, ".gguf"):
		files, err = model.Open(filepath.Join("testdata", "golden-gguf", name), o)
	default:
		files, err = model.Open(filepath.Join("testdata", "golden-hf", "models", name), o)
	}
	require.NoError(t, err)
	defer files.Close()
	m, err := files.Load(arena)
	require.NoError(t, err)
	require.Equal(t, o.Precision, m.Precision)
	return m
}

// setting is everything that may differ between two runs of one policy without changing a bit.
type setting struct {
	threads, witness int // of the backend that samples and trains, and of another that scores
	adapter          weights.AdapterConfig
	temperature      float64
	micro            int // rollouts of a micro-batch; groups may be split
	witnessMicro     int
	keep             model.Keep
	slack            int // pages beyond what a micro-batch and the longest sequence need
	engine           infer.Options
}

func (s setting) String() string {
	return fmt.Sprintf("threads %d and %d, r %d of %v, temperature %g, micro-batches of %d and %d, activations %v, %d pages more, steps of %d rows and %d sequences, no cache %v",
		s.threads, s.witness, s.adapter.R, s.adapter.TargetModules, s.temperature, s.micro, s.witnessMicro, s.keep, s.slack, s.engine.MaxBatchedTokens, s.engine.MaxSeqs, s.engine.NoPrefixCache)
}

func drawSetting(r *rand.Rand, m *model.Model) setting {
	s := setting{threads: 1 + r.IntN(4), witness: 1 + r.IntN(4), temperature: []float64{1, 0.7, 1.3}[r.IntN(3)],
		micro: 1 + r.IntN(9), witnessMicro: 1 + r.IntN(9), keep: []model.Keep{model.KeepAll, model.KeepInputs}[r.IntN(2)], slack: r.IntN(4)}
	s.adapter = weights.AdapterConfig{R: 1 + r.IntN(20), RSLoRA: r.IntN(3) == 0, TargetModules: []string{"all-linear"}}
	s.adapter.Alpha = float64(s.adapter.R * (1 + r.IntN(2)))
	if names := m.ModuleNames(); r.IntN(3) == 0 {
		s.adapter.TargetModules = names[r.IntN(len(names)):]
	}
	s.engine = infer.Options{MaxSeqs: 1 + r.IntN(12), NoPrefixCache: r.IntN(4) == 0}
	s.engine.MaxBatchedTokens = s.engine.MaxSeqs + r.IntN(40)
	return s
}

// drawRequests makes prompts, some of which begin alike, with groups of siblings. Nothing but the
// length ends a completion, so its size is known before it is sampled.
func drawRequests(r *rand.Rand, s setting, vocab int, ad *weights.Adapter) []infer.Request {
	common := make([]int32, 50)
	for i := range common {
		common[i] = int32(r.IntN(vocab))
	}
	out := make([]infer.Request, 4)
	for i := range out {
		prompt := append([]int32{}, common[:1+r.IntN(len(common))]...)
		for range r.IntN(12) {
			prompt = append(prompt, int32(r.IntN(vocab)))
		}
		p := infer.Params{N: 1 + r.IntN(4), MaxTokens: 1 + r.IntN(24), Temperature: s.temperature, Seed: r.Uint64(), Adapter: ad}
		switch r.IntN(4) {
		case 0:
			p.TopP = 0.8
		case 1:
			p.TopK, p.MinP = 40, 0.01
		}
		out[i] = infer.Request{Prompt: prompt, Params: p}
	}
	return out
}

// asRollouts is completions as a trainer takes them; first keeps the groups of several calls apart.
func asRollouts(reqs []infer.Request, done []infer.Completion, first int) []rl.Rollout {
	out := make([]rl.Rollout, len(done))
	for i := range done {
		c := &done[i]
		prompt := reqs[c.Request].Prompt
		tokens := append(append(make([]int32, 0, len(prompt)+len(c.Tokens)), prompt...), c.Tokens...)
		out[i] = rl.Rollout{Tokens: tokens, PromptLen: len(prompt), Group: first + c.Request, Sample: c.Index, Version: c.Version, LogP: c.LogP}
	}
	return out
}

// microSize bounds every micro-batch of what the requests will give.
func microSize(reqs []infer.Request, micro int) rl.PolicySize {
	var all []rl.Rollout
	for i := range reqs {
		for range max(1, reqs[i].Params.N) {
			n := len(reqs[i].Prompt)
			all = append(all, rl.Rollout{Tokens: make([]int32, n+reqs[i].Params.MaxTokens), PromptLen: n, Group: i})
		}
	}
	var size rl.PolicySize
	for from := 0; from < len(all); from += micro {
		size = size.Max(rl.SizeOf(all[from:min(from+micro, len(all))]))
	}
	return size
}

// fixedPages is a pool of pages that nobody else uses.
type fixedPages struct{ n int }

func (p fixedPages) Take(n int) ([]int32, error) {
	if n > p.n {
		return nil, fmt.Errorf("%d pages wanted of %d", n, p.n)
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((7*i + 3) % p.n) // 7 and n have no common factor: every page once, in no order
	}
	return out, nil
}

func (p fixedPages) Give([]int32) {}

// newWitness is a policy that only scores, with buffers and pages of its own.
func newWitness(t *testing.T, m *model.Model, ad *weights.Adapter, size rl.PolicySize, temperature float64, threads int) *rl.Policy {
	t.Helper()
	size.Keep, size.Threads = model.KeepNone, threads
	n := size.Pages
	for n%7 == 0 {
		n++
	}
	pages, err := model.NewPages(m.Arena, &m.Config, n)
	require.NoError(t, err)
	p := &rl.Policy{Model: m, Adapter: ad, Pages: pages, Pool: fixedPages{n}, InvT: float32(1 / temperature)}
	require.NoError(t, p.Allocate(size))
	return p
}

// fill gives every B of an adapter random values, so that it changes the model visibly.
func fill(m *model.Model, ad *weights.Adapter, r *rand.Rand) {
	for _, pair := range ad.Pairs() {
		raw := make([]byte, 4*pair.B.Out*pair.B.In)
		for i := 0; i < len(raw); i += 4 {
			binary.LittleEndian.PutUint32(raw[i:], math.Float32bits(0.4*(r.Float32()-0.5)))
		}
		m.Backend().Pack(pair.B, 0, raw)
	}
}

// unequal counts the completion tokens whose log-prob, or else entropy, is not the sampler's in
// every bit. entropy may be nil.
func unequal(rollouts []rl.Rollout, logp, entropy []float32, sampled [][]float32) (n int) {
	at := 0
	for i := range rollouts {
		for j, want := range rollouts[i].LogP {
			if math.Float32bits(want) != math.Float32bits(logp[at]) || entropy != nil && math.Float32bits(sampled[i][j]) != math.Float32bits(entropy[at]) {
				n++
			}
			at++
		}
	}
	if at != len(logp) {
		return at + len(logp)
	}
	return n
}

// scoreAll scores in micro-batches and returns everything in order; each, if given, sees every
// micro-batch's scores before the next one is computed.
func scoreAll(p *rl.Policy, rollouts []rl.Rollout, micro int, each func(logp []float32) error) (logp, entropy []float32, err error) {
	for from := 0; from < len(rollouts); from += micro {
		l, e, err := p.Score(rollouts[from:min(from+micro, len(rollouts))])
		if err != nil {
			return nil, nil, err
		}
		logp, entropy = append(logp, l...), append(entropy, e...)
		if each != nil {
			if err := each(l); err != nil {
				return nil, nil, err
			}
		}
	}
	return logp, entropy, nil
}

// generate samples all requests to their end and returns the sampler's entropies beside them.
func generate(t *testing.T, e *infer.Engine, reqs []infer.Request, first int) (rollouts []rl.Rollout, entropy [][]float32) {
	t.Helper()
	done, err := e.Generate(context.Background(), reqs)
	require.NoError(t, err)
	for i := range done {
		require.Len(t, done[i].LogP, len(done[i].Tokens))
		require.Len(t, done[i].Tokens, reqs[done[i].Request].Params.MaxTokens)
		entropy = append(entropy, done[i].Entropy)
	}
	return asRollouts(reqs, done, first), entropy
}
