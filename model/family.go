package model

import (
	"fmt"
	"slices"
	"strings"

	"graft/kernels"
	"graft/weights"
	"graft/weights/gguf"
)

// family is one kind of decoder: how its two file formats describe it. Each is one file.
type family struct {
	name     string
	gguf     []string                                       // general.architecture
	hf       []string                                       // model_type
	fromGGUF func(f *gguf.File, c *Config, o Options) error // c holds what all families share
	fromHF   func(h *hfConfig, c *Config, o Options) error
}

// families is the explicit table.
func families() []*family {
	return []*family{llama(), qwen2(), qwen3(), gemma3(), phi3()}
}

// Supported lists the families' names for messages and help.
func Supported() []string {
	var out []string
	for _, f := range families() {
		out = append(out, f.name)
	}
	return out
}

func familyOf(kind string, list func(*family) []string) (*family, error) {
	for _, f := range families() {
		if slices.Contains(list(f), kind) {
			return f, nil
		}
	}
	return nil, fmt.Errorf("model: architecture %q is not one Graft knows (%s)", kind, strings.Join(Supported(), ", "))
}

// names gives the tensor names of a file format. Layer names hold %d.
type names struct {
	embed, head, final                               string
	attnNorm, ffNorm, postAttn, postFF, qNorm, kNorm string
	q, k, v, qkv, o, gate, up, gateUp, down          string
}

func hfNames(postNorm bool) names {
	n := names{
		embed: "model.embed_tokens", head: "lm_head", final: "model.norm",
		attnNorm: "input_layernorm", ffNorm: "post_attention_layernorm",
		qNorm: "self_attn.q_norm", kNorm: "self_attn.k_norm",
		q: "self_attn.q_proj", k: "self_attn.k_proj", v: "self_attn.v_proj", qkv: "self_attn.qkv_proj", o: "self_attn.o_proj",
		gate: "mlp.gate_proj", up: "mlp.up_proj", gateUp: "mlp.gate_up_proj", down: "mlp.down_proj",
	}
	if postNorm {
		n.postAttn, n.ffNorm, n.postFF = "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
	}
	return n
}

func ggufNames() names {
	return names{
		embed: "token_embd", head: "output", final: "output_norm",
		attnNorm: "attn_norm", ffNorm: "ffn_norm", postAttn: "post_attention_norm", postFF: "post_ffw_norm",
		qNorm: "attn_q_norm", kNorm: "attn_k_norm",
		q: "attn_q", k: "attn_k", v: "attn_v", qkv: "attn_qkv", o: "attn_output",
		gate: "ffn_gate", up: "ffn_up", gateUp: "ffn_up", down: "ffn_down",
	}
}

// builder queues the loading of a model's tensors under the names of one file format, and gives
// the linears their Hugging Face names, which adapters use.
type builder struct {
	m      *Model
	load   *weights.Loader
	file   names
	layer  string // "blk.%d." or "model.layers.%d."
	module names
}

func (b *builder) build() error {
	c := &b.m.Config
	var err error
	embed := &weights.Linear{Name: b.module.embed, Site: -1}
	if embed.W, embed.DW, err = b.load.Matrix(b.file.embed+".weight", c.Vocab, c.Dim); err != nil {
		return err
	}
	b.param(embed.Name+".weight", embed.W, embed.DW)
	b.m.Embed, b.m.Head = embed, embed
	if !c.TiedHead {
		head := &weights.Linear{Name: b.module.head, Site: -1}
		if head.W, head.DW, err = b.load.Matrix(b.file.head+".weight", c.Vocab, c.Dim); err != nil {
			return err
		}
		b.param(head.Name+".weight", head.W, head.DW)
		b.m.Head = head
	}
	if b.m.Final, err = b.norm(b.file.final, b.module.final, c.Dim); err != nil {
		return err
	}
	b.m.Layers = make([]Layer, c.NumLayers)
	for i := range b.m.Layers {
		if err := b.buildLayer(i); err != nil {
			return err
		}
	}
	return b.load.Wait()
}

func (b *builder) buildLayer(i int) error {
	c, l := &b.m.Config, &b.m.Layers[i]
	l.Kind = c.Layers[i]
	at := func(n string) string { return fmt.Sprintf(b.layer, i) + n }
	mod := func(n string) string { return fmt.Sprintf("model.layers.%d.", i) + n }
	norms := []struct {
		dst       *weights.Norm
		file, mod string
		n         int
		want      bool
	}{
		{&l.AttnNorm, b.file.attnNorm, b.module.attnNorm, c.Dim, true},
		{&l.FFNorm, b.file.ffNorm, b.module.ffNorm, c.Dim, true},
		{&l.PostAttnNorm, b.file.postAttn, b.module.postAttn, c.Dim, c.PostNorm},
		{&l.PostFFNorm, b.file.postFF, b.module.postFF, c.Dim, c.PostNorm},
		{&l.QNorm, b.file.qNorm, b.module.qNorm, c.HeadDim, c.QKNorm},
		{&l.KNorm, b.file.kNorm, b.module.kNorm, c.HeadDim, c.QKNorm},
	}
	for _, n := range norms {
		if !n.want {
			continue
		}
		var err error
		if *n.dst, err = b.norm(at(n.file), mod(n.mod), n.n); err != nil {
			return err
		}
	}
	linears := []struct {
		dst     **weights.Linear
		name    func(names) string
		out, in int
		want    bool
	}{
		{&l.Q, func(n names) string { return n.q }, c.QDim(), c.Dim, !c.FusedQKV},
		{&l.K, func(n names) string { return n.k }, c.KVDim(), c.Dim, !c.FusedQKV},
		{&l.V, func(n names) string { return n.v }, c.KVDim(), c.Dim, !c.FusedQKV},
		{&l.QKV, func(n names) string { return n.qkv }, c.QDim() + 2*c.KVDim(), c.Dim, c.FusedQKV},
		{&l.O, func(n names) string { return n.o }, c.Dim, c.QDim(), true},
		{&l.Gate, func(n names) string { return n.gate }, c.FF, c.Dim, !c.FusedGateUp},
		{&l.Up, func(n names) string { return n.up }, c.FF, c.Dim, !c.FusedGateUp},
		{&l.GateUp, func(n names) string { return n.gateUp }, 2 * c.FF, c.Dim, c.FusedGateUp},
		{&l.Down, func(n names) string { return n.down }, c.Dim, c.FF, true},
	}
	for _, n := range linears {
		if !n.want {
			continue
		}
		lin, err := b.linear(at(n.name(b.file)), mod(n.name(b.module)), n.out, n.in)
		if err != nil {
			return err
		}
		lin.GGUF = fmt.Sprintf("blk.%d.", i) + n.name(ggufNames())
		if c.PermutedQK && (n.dst == &l.Q || n.dst == &l.K) {
			lin.HeadDim = c.HeadDim
		}
		*n.dst = lin
	}
	return nil
}

func (b *builder) linear(file, module string, out, in int) (*weights.Linear, error) {
	l := &weights.Linear{Name: module, Site: len(b.m.Linears)}
	var err error
	if l.W, l.DW, err = b.load.Matrix(file+".weight", out, in); err != nil {
		return nil, err
	}
	b.param(module+".weight", l.W, l.DW)
	if b.load.Has(file + ".bias") {
		if l.Bias, l.DBias, err = b.load.Vector(file+".bias", out, false); err != nil {
			return nil, err
		}
		if l.DBias.Present() {
			b.m.Trained = append(b.m.Trained, weights.Param{Name: module + ".bias", Value: l.Bias, Grad: l.DBias})
		}
	}
	b.m.Linears = append(b.m.Linears, l)
	return l, nil
}

func (b *builder) norm(file, module string, n int) (weights.Norm, error) {
	out := weights.Norm{Name: module + ".weight"}
	var err error
	out.W, out.DW, err = b.load.Vector(file+".weight", n, b.m.Config.NormPlusOne)
	if err == nil && out.DW.Present() {
		b.m.Trained = append(b.m.Trained, weights.Param{Name: out.Name, Value: out.W, Grad: out.DW})
	}
	return out, err
}

func (b *builder) param(name string, w, dw kernels.Weight) {
	if dw.Present() {
		b.m.Trained = append(b.m.Trained, weights.Param{Name: name, Value: w.Flat(), Grad: dw.Flat(), Decay: true})
	}
}
