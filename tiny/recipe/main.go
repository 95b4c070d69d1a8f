// Command recipe makes the embedded model from nothing: a tokenizer, random weights, and full
// fine-tuning by this project's own trainer until it is right about half of the time. It is
// deterministic: the same program gives the same file on every machine.
//
//	go run ./tiny/recipe            # writes tiny/tiny.gguf, a few minutes on two cores
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"graft/kernels/cpu"
	"graft/kernels/libm"
	"graft/kernels/quant"
	"graft/kernels/rng"
	"graft/model"
	"graft/model/template"
	"graft/model/tokenizer"
	"graft/rl"
	"graft/tiny"
	"graft/weights"
	"graft/weights/gguf"
)

// shape is the model's architecture: llama, about a million parameters.
var shape = struct{ dim, layers, heads, kvHeads, ff, context int }{128, 5, 4, 2, 384, 512}

// recipe is how it is trained.
var recipe = struct {
	seed      uint64
	batch     int     // problems a step
	rate      float64 // peak learning rate
	warmup    int
	maxSteps  int
	stopAt    float64 // mean probability of the right answer where training ends
	evalEvery int
	evalSize  int
}{seed: 1, batch: 128, rate: 2e-3, warmup: 50, maxSteps: 4000, stopAt: 0.45, evalEvery: 50, evalSize: 256}

const chatTemplate = `{%- for message in messages -%}
<|{{ message.role }}|>{{ message.content }}<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}
<|assistant|>
{%- endif -%}`

func main() {
	out := flag.String("o", filepath.Join("tiny", "tiny.gguf"), "the file to write")
	format := flag.String("format", "Q8_0", "format of the matrices")
	flag.Parse()
	if err := run(*out, *format); err != nil {
		fmt.Fprintln(os.Stderr, "recipe:", err)
		os.Exit(1)
	}
}

func run(out, formatName string) error {
	format, ok := quant.ParseFormat(formatName)
	if !ok {
		return fmt.Errorf("no format %s", formatName)
	}
	tok, kv, err := describe()
	if err != nil {
		return err
	}
	blank, err := os.CreateTemp("", "tiny-*.gguf")
	if err != nil {
		return err
	}
	blank.Close()
	defer os.Remove(blank.Name())
	if err := gguf.WriteFile(blank.Name(), kv, initialWeights(tok.VocabSize())); err != nil {
		return err
	}
	files, err := model.Open(blank.Name(), model.Options{Trained: true, Context: shape.context})
	if err != nil {
		return err
	}
	defer files.Close()
	be := cpu.New(cpu.Options{})
	defer be.Close()
	arena := weights.NewArena(be, 0)
	defer arena.Close()
	m, err := files.Load(arena)
	if err != nil {
		return err
	}
	if err := train(m, tok); err != nil {
		return err
	}
	return m.SaveGGUF(out, kv, func(_ string, rows, cols int) quant.Format {
		if cols%format.BlockLen() != 0 {
			return quant.F16
		}
		return format
	})
}

// describe makes the tokenizer and the keys of the file.
func describe() (*tokenizer.Tokenizer, []gguf.KV, error) {
	specials := []string{"<|end|>", "<|system|>", "<|user|>", "<|assistant|>"}
	tok, err := tokenizer.TrainBPE([]string{"user system assistant the answer is what "}, 272, specials)
	if err != nil {
		return nil, nil, err
	}
	kv := []gguf.KV{
		{Key: "general.architecture", Value: "llama"}, {Key: "general.name", Value: "graft tiny"},
		{Key: "general.license", Value: "apache-2.0"},
		{Key: "llama.context_length", Value: uint32(shape.context)}, {Key: "llama.embedding_length", Value: uint32(shape.dim)},
		{Key: "llama.block_count", Value: uint32(shape.layers)}, {Key: "llama.feed_forward_length", Value: uint32(shape.ff)},
		{Key: "llama.attention.head_count", Value: uint32(shape.heads)}, {Key: "llama.attention.head_count_kv", Value: uint32(shape.kvHeads)},
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)}, {Key: "llama.rope.freq_base", Value: float32(10000)},
		{Key: "tokenizer.chat_template", Value: chatTemplate},
	}
	end, _ := tok.ID("<|end|>")
	keys := tok.MarshalGGUF()
	keys["tokenizer.ggml.eos_token_id"] = uint32(end)
	for _, name := range sorted(keys) {
		kv = append(kv, gguf.KV{Key: name, Value: keys[name]})
	}
	return tok, kv, nil
}

func sorted(m map[string]any) []string {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	for i := range names {
		for j := i; j > 0 && names[j] < names[j-1]; j-- {
			names[j], names[j-1] = names[j-1], names[j]
		}
	}
	return names
}

// initialWeights draws every matrix from a normal distribution with deviation 0.02·√(…) as GPT-2
// does: output projections are scaled down by the depth.
func initialWeights(vocab int) []gguf.TensorData {
	src := rng.New(recipe.seed, "tiny weights")
	var list []gguf.TensorData
	tensor := func(name string, out, in int, std float64) {
		values := make([]float32, out*in)
		for i := range values {
			values[i] = 1
			if std > 0 {
				values[i] = float32(std * normal(src, uint32(len(list)), uint32(i)))
			}
		}
		dims := []uint64{uint64(in), uint64(out)}
		if out == 1 {
			dims = dims[:1]
		}
		list = append(list, gguf.TensorData{Name: name, Dims: dims, Format: quant.F32, WriteTo: model.WriteFloats(values)})
	}
	head := shape.dim / shape.heads
	std, deep := 0.05, 0.05/math.Sqrt(float64(2*shape.layers))
	tensor("token_embd.weight", vocab, shape.dim, std)
	tensor("output_norm.weight", 1, shape.dim, 0)
	for i := range shape.layers {
		at := fmt.Sprintf("blk.%d.", i)
		tensor(at+"attn_norm.weight", 1, shape.dim, 0)
		tensor(at+"attn_q.weight", shape.heads*head, shape.dim, std)
		tensor(at+"attn_k.weight", shape.kvHeads*head, shape.dim, std)
		tensor(at+"attn_v.weight", shape.kvHeads*head, shape.dim, std)
		tensor(at+"attn_output.weight", shape.dim, shape.heads*head, deep)
		tensor(at+"ffn_norm.weight", 1, shape.dim, 0)
		tensor(at+"ffn_gate.weight", shape.ff, shape.dim, std)
		tensor(at+"ffn_up.weight", shape.ff, shape.dim, std)
		tensor(at+"ffn_down.weight", shape.dim, shape.ff, deep)
	}
	return list
}

// normal is a draw from N(0, 1) by Box and Muller.
func normal(src rng.Source, tensor, i uint32) float64 {
	u, v := src.Uniform(tensor, i, 0, 0), src.Uniform(tensor, i, 1, 0)
	return math.Sqrt(-2*libm.Log(1-u)) * libm.Cos(2*math.Pi*v)
}

// rollouts renders problems with their right answers.
func rollouts(tok *tokenizer.Tokenizer, tmpl *template.Template, problems []tiny.Problem) ([]rl.Rollout, error) {
	var out []rl.Rollout
	for i, p := range problems {
		prompt, err := tmpl.RenderChat(template.Chat{AddGenerationPrompt: true,
			Messages: []any{template.NewMap("role", "user", "content", p.Prompt)}})
		if err != nil {
			return nil, err
		}
		ids, err := tok.Encode(prompt, tokenizer.EncodeOptions{})
		if err != nil {
			return nil, err
		}
		answer, err := tok.Encode(p.Answer+"<|end|>", tokenizer.EncodeOptions{})
		if err != nil {
			return nil, err
		}
		out = append(out, rl.Rollout{Tokens: append(ids, answer...), PromptLen: len(ids), Group: i})
	}
	return out, nil
}

type pool struct{ n int }

func (p pool) Take(n int) ([]int32, error) {
	if n > p.n {
		return nil, fmt.Errorf("%d pages wanted of %d", n, p.n)
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out, nil
}

func (p pool) Give([]int32) {}

func train(m *model.Model, tok *tokenizer.Tokenizer) error {
	tmpl, err := template.Parse(chatTemplate)
	if err != nil {
		return err
	}
	problems := tiny.Problems("train", recipe.seed, 1<<30)
	held, err := rollouts(tok, tmpl, tiny.Problems("test", recipe.seed, recipe.evalSize))
	if err != nil {
		return err
	}
	const rows = 256 * 16
	pages, err := model.NewPages(m.Arena, &m.Config, 512)
	if err != nil {
		return err
	}
	p := &rl.Policy{Model: m, Pages: pages, Pool: pool{512}, InvT: 1}
	if err := p.Allocate(rl.PolicySize{Rows: rows, Scored: rows, Pairs: rows, Pages: 512, Keep: model.KeepAll, Threads: 8}); err != nil {
		return err
	}
	opt, err := rl.NewAdamW(m.Arena, m.Trained, rl.AdamWOptions{Beta1: 0.9, Beta2: 0.98, Eps: 1e-8, WeightDecay: 0.01, MaxGradNorm: 1})
	if err != nil {
		return err
	}
	order := rng.New(recipe.seed, "tiny order")
	var queue []int
	for step, epoch := 0, uint32(0); step < recipe.maxSteps; step++ {
		for len(queue) < recipe.batch {
			queue = append(queue, order.Permutation(len(problems), epoch)...)
			epoch++
		}
		var batch []tiny.Problem
		for _, i := range queue[:recipe.batch] {
			batch = append(batch, problems[i])
		}
		queue = queue[recipe.batch:]
		data, err := rollouts(tok, tmpl, batch)
		if err != nil {
			return err
		}
		p.ZeroGrads()
		logp, _, err := p.Score(data)
		if err != nil {
			return err
		}
		grad, loss := make([]float32, len(logp)), 0.0
		for i := range grad {
			grad[i] = -1 / float32(len(logp))
			loss -= float64(logp[i]) / float64(len(logp))
		}
		if err := p.Accumulate(rl.TokenGrad{DLogP: grad}); err != nil {
			return err
		}
		rate := recipe.rate * min(1, float64(step+1)/float64(recipe.warmup))
		if _, err := opt.Step(rate); err != nil {
			return err
		}
		if (step+1)%recipe.evalEvery == 0 {
			right, err := probability(p, held)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "step %4d  loss %.4f  P(right) on held-out problems %.3f %s\n", step+1, loss, right, strings.Repeat("#", int(40*right)))
			if right >= recipe.stopAt {
				return nil
			}
		}
	}
	return fmt.Errorf("the model did not reach %.2f in %d steps", recipe.stopAt, recipe.maxSteps)
}

// probability is the mean probability that sampling at temperature 1 gives exactly the right answer.
func probability(p *rl.Policy, held []rl.Rollout) (float64, error) {
	logp, _, err := p.Score(held)
	if err != nil {
		return 0, err
	}
	sum, n := 0.0, 0
	for i := range held {
		total := 0.0
		for range held[i].Len() {
			total += float64(logp[n])
			n++
		}
		sum += libm.Exp(total)
	}
	return sum / float64(len(held)), nil
}
