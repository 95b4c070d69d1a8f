package kernels

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/kernels/quant"
)

// idle is a backend that packs rows as they are and computes nothing.
type idle struct {
	Backend
	calls int
}

func (b *idle) Name() string { return "idle" }
func (b *idle) PackedBytes(f quant.Format, out, in int) int64 {
	return int64(out) * int64(f.Bytes(in))
}
func (b *idle) Upload(Tensor, []byte)                               { b.calls++ }
func (b *idle) Download([]byte, Tensor)                             { b.calls++ }
func (b *idle) Copy(_, _ Tensor)                                    { b.calls++ }
func (b *idle) Add(_, _ Tensor)                                     { b.calls++ }
func (b *idle) Pack(Weight, int, []byte)                            { b.calls++ }
func (b *idle) Unpack([]byte, Weight, int)                          { b.calls++ }
func (b *idle) Embed(Tensor, Weight, Tensor, float32)               { b.calls++ }
func (b *idle) EmbedBackward(Weight, Tensor, Tensor, float32)       { b.calls++ }
func (b *idle) Gather(_, _, _ Tensor)                               { b.calls++ }
func (b *idle) ScatterAdd(_, _, _ Tensor)                           { b.calls++ }
func (b *idle) RMSNorm(_, _, _, _ Tensor, _ float32, _ bool)        { b.calls++ }
func (b *idle) RMSNormBackward(_, _, _, _, _, _ Tensor, _ bool)     { b.calls++ }
func (b *idle) MatMul(Tensor, []Product)                            { b.calls++ }
func (b *idle) MatMulBackward(_, _ Tensor, _ []ProductGrad, _ bool) { b.calls++ }
func (b *idle) RoPE(Tensor, Rope, Tensor, bool)                     { b.calls++ }
func (b *idle) WriteKV(_ KV, _, _, _, _ Tensor)                     { b.calls++ }
func (b *idle) Attention(*AttentionArgs)                            { b.calls++ }
func (b *idle) AttentionBackward(*AttentionArgs, *AttentionGrad)    { b.calls++ }
func (b *idle) GLU(_, _, _ Tensor, _ Activation)                    { b.calls++ }
func (b *idle) GLUBackward(_, _, _, _, _ Tensor, _ Activation)      { b.calls++ }
func (b *idle) LogProbs(*LogProbsArgs)                              { b.calls++ }
func (b *idle) LogProbsBackward(*LogProbsArgs, *LogProbsGrad)       { b.calls++ }
func (b *idle) Sample(*SampleArgs)                                  { b.calls++ }
func (b *idle) AdamW(_, _, _, _ Tensor, _ AdamWStep)                { b.calls++ }
func (b *idle) SumSquares(Tensor) float64                           { b.calls++; return 0 }

// operands are right for every operation; a test spoils one.
type operands struct {
	x, y, y2, inv, w1   Tensor // [3 64], [3 128], [3 128], [3 4], [1 16]
	w, emb, dw, dEmb    Weight // [128 64], [10 64], their gradients
	lora                LowRank
	h, dh               Tensor // [3 16]
	da, db              Weight
	ids, positions, seq Tensor
	rope                Rope
	kv                  KV // 5 pages of 2 heads of 16
	k                   Tensor
	attn                AttentionArgs
	dattn               AttentionGrad
	head                LogProbsArgs
	dhead               LogProbsGrad
	sample              SampleArgs
	step                AdamWStep
	raw                 []byte
}

func heapWeight(f quant.Format, out, in int) Weight {
	bytes := out * f.Bytes(in)
	return Weight{Mem: NewHost(F32, 1, (bytes+3)/4).Mem, Bytes: int64(bytes), Format: f, Out: out, In: in}
}

func newOperands() *operands {
	f := func(rows, cols int) Tensor { return NewHost(F32, rows, cols) }
	o := &operands{x: f(3, 64), y: f(3, 128), y2: f(3, 128), inv: f(3, 4), w1: f(1, 16),
		w: heapWeight(quant.Q8_0, 128, 64), emb: heapWeight(quant.F16, 10, 64), dw: heapWeight(quant.F32, 128, 64),
		dEmb: heapWeight(quant.F32, 10, 64), lora: LowRank{A: heapWeight(quant.F32, 4, 64), B: heapWeight(quant.F32, 128, 4)},
		h: f(3, 16), dh: f(3, 16), da: heapWeight(quant.F32, 4, 64), db: heapWeight(quant.F32, 128, 4),
		ids: Ints([]int32{1, 9, 0}), positions: Ints([]int32{0, 1, 16}), seq: Ints([]int32{0, 0, 1}),
		rope: Rope{Table: f(20, 8), Dims: 8, HeadDim: 16}, kv: KV{K: f(5, 512), V: f(5, 512), Heads: 2, Dim: 16}, k: f(3, 32),
		step: AdamWStep{LR: 1, Beta1: 0.9, Beta2: 0.9, T: 1}, raw: make([]byte, 128*quant.Q8_0.Bytes(64))}
	tables := NewHost(I32, 2, 2)
	copy(tables.I32(), []int32{4, 99, 0, 3}) // no row reaches page 99
	o.attn = AttentionArgs{Out: f(3, 64), LSE: f(3, 4), Q: f(3, 64), KV: o.kv, Tables: tables, Seq: o.seq,
		Positions: o.positions, Heads: 4, Scale: 1}
	o.dattn = AttentionGrad{DOut: f(3, 64), DQ: f(3, 64), DK: f(3, 32), DV: f(3, 32), Rows: Ints([]int32{0, 1, 2, 2}),
		Slots: Ints([]int32{64, 65, 48, 16}), Scratch: f(1, AttentionScratch(3, 4, 4, 2, 16))}
	o.head = LogProbsArgs{LogP: f(1, 2), Entropy: f(1, 3), LSE: f(1, 3), Hidden: o.x, W: o.emb,
		PairRows: Ints([]int32{0, 2}), Targets: Ints([]int32{9, 0}), InvT: Floats(1, 3, []float32{1, 2, 1}),
		Scratch: f(1, LogProbsScratch(3, 10, 1))}
	o.dhead = LogProbsGrad{DLogP: f(1, 2), DEntropy: f(1, 3), DHidden: f(3, 64), DW: o.dEmb}
	row := SampleRow{InvT: 1, TopP: 1}
	o.sample = SampleArgs{Hidden: o.x, W: o.emb, Logits: f(3, 16), Rows: []SampleRow{row, row, row}, Out: make([]Sampled, 3)}
	return o
}

// calls are all operations on the operands, by name.
var calls = map[string]func(b Backend, o *operands){
	"Upload":          func(b Backend, o *operands) { b.Upload(o.x, make([]byte, 3*64*4)) },
	"Download":        func(b Backend, o *operands) { b.Download(make([]byte, 3*64*4), o.x) },
	"Copy":            func(b Backend, o *operands) { b.Copy(o.y, o.y2) },
	"Add":             func(b Backend, o *operands) { b.Add(o.y, o.y2) },
	"Pack":            func(b Backend, o *operands) { b.Pack(o.w, 0, o.raw) },
	"Unpack":          func(b Backend, o *operands) { b.Unpack(o.raw, o.w, 0) },
	"Embed":           func(b Backend, o *operands) { b.Embed(o.x, o.emb, o.ids, 1) },
	"EmbedBackward":   func(b Backend, o *operands) { b.EmbedBackward(o.dEmb, o.x, o.ids, 1) },
	"Gather":          func(b Backend, o *operands) { b.Gather(o.y, o.y2, o.seq) },
	"ScatterAdd":      func(b Backend, o *operands) { b.ScatterAdd(o.y, o.y2, o.seq) },
	"RMSNorm":         func(b Backend, o *operands) { b.RMSNorm(o.attn.Out, o.inv, o.x, o.w1, 0, false) },
	"RMSNormBackward": func(b Backend, o *operands) { b.RMSNormBackward(o.attn.Out, o.w1, o.attn.Q, o.x, o.w1, o.inv, false) },
	"MatMul": func(b Backend, o *operands) {
		b.MatMul(o.x, []Product{{Y: o.y, W: o.w, LoRA: &o.lora, H: o.h}})
	},
	"MatMulBackward": func(b Backend, o *operands) {
		b.MatMulBackward(o.attn.Out, o.x, []ProductGrad{{DY: o.y, W: o.w, DW: o.dw, LoRA: &o.lora, H: o.h, DH: o.dh, DA: o.da, DB: o.db}}, false)
	},
	"RoPE":              func(b Backend, o *operands) { b.RoPE(o.x, o.rope, o.positions, false) },
	"WriteKV":           func(b Backend, o *operands) { b.WriteKV(o.kv, o.k, o.k, o.dattn.Rows, o.dattn.Slots) },
	"Attention":         func(b Backend, o *operands) { b.Attention(&o.attn) },
	"AttentionBackward": func(b Backend, o *operands) { b.AttentionBackward(&o.attn, &o.dattn) },
	"GLU":               func(b Backend, o *operands) { b.GLU(o.y, o.y, o.y2, SiLU) },
	"GLUBackward":       func(b Backend, o *operands) { b.GLUBackward(o.y, o.y2, o.y, o.y, o.y2, SiLU) },
	"LogProbs":          func(b Backend, o *operands) { b.LogProbs(&o.head) },
	"LogProbsBackward":  func(b Backend, o *operands) { b.LogProbsBackward(&o.head, &o.dhead) },
	"Sample":            func(b Backend, o *operands) { b.Sample(&o.sample) },
	"AdamW": func(b Backend, o *operands) {
		b.AdamW(o.inv.Reshape(1, 12), o.inv.Reshape(1, 12), o.inv.Reshape(1, 12), o.inv.Reshape(1, 12), o.step)
	},
	"SumSquares": func(b Backend, o *operands) { b.SumSquares(o.x) },
}

func TestCheckedPassesRightCalls(t *testing.T) {
	for name, call := range calls {
		inner := &idle{}
		require.NotPanics(t, func() { call(Checked(inner), newOperands()) }, name)
		assert.Equal(t, 1, inner.calls, name)
	}
}

func TestCheckedNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		call  string
		spoil func(o *operands)
		want  string
	}{
		{"MatMul", func(o *operands) { o.w = heapWeight(quant.Q8_0, 128, 128) }, "MatMul: x is [3 64], w wants 128"},
		{"MatMul", func(o *operands) { o.y = o.y.Columns(0, 127) }, "MatMul: y is [3 127], want [3 128]"},
		{"MatMul", func(o *operands) { o.y.DType = I32 }, "MatMul: y is I32, want F32"},
		{"MatMul", func(o *operands) { o.y.Off += 4 }, "MatMul: y, [3 128] with stride 128 at byte 4, passes the end of its 1536 bytes"},
		{"MatMul", func(o *operands) { o.y.Stride = 100 }, "MatMul: y is [3 128] with stride 100 at byte 0"},
		{"MatMul", func(o *operands) { o.w.Mem = nil }, "MatMul: w is absent"},
		{"MatMul", func(o *operands) { o.w.Bytes-- }, "MatMul: w has 8703 bytes, idle packs [128 64] in 8704"},
		{"MatMul", func(o *operands) { o.w.Off = 4 }, "MatMul: w, 8704 bytes at byte 4, passes the end of its 8704 bytes"},
		{"MatMul", func(o *operands) { o.h = o.h.Columns(0, 4) }, "MatMul: h is [3 4], want [3 16]"},
		{"MatMul", func(o *operands) { o.lora.B = heapWeight(quant.F32, 127, 4) }, "MatMul: lora B is [127 4], want [128 4]"},
		{"MatMul", func(o *operands) { o.lora.A = heapWeight(quant.F16, 4, 64) }, "MatMul: lora A is F16, want F32"},
		{"MatMulBackward", func(o *operands) { o.dw = heapWeight(quant.F32, 64, 128) }, "MatMulBackward: dw is [64 128], want [128 64]"},
		{"MatMulBackward", func(o *operands) { o.db = Weight{} }, "MatMulBackward: db is absent"},
		{"MatMulBackward", func(o *operands) { o.attn.Out = o.y }, "MatMulBackward: dx is [3 128], want [3 64]"},
		{"Embed", func(o *operands) { o.ids = Ints([]int32{1, 10, 0}) }, "Embed: ids[1] is 10, want 0 to 9"},
		{"Embed", func(o *operands) { o.ids = Ints([]int32{1, 2}) }, "Embed: ids is [1 2], want [1 3]"},
		{"EmbedBackward", func(o *operands) { o.dEmb = o.emb }, "EmbedBackward: dw is F16, want F32"},
		{"Gather", func(o *operands) { o.seq = Ints([]int32{0, 3, 0}) }, "Gather: rows[1] is 3, want 0 to 2"},
		{"ScatterAdd", func(o *operands) { o.seq = Ints([]int32{0, -1, 0}) }, "ScatterAdd: rows[1] is -1, want 0 to 2"},
		{"RMSNorm", func(o *operands) { o.w1 = NewHost(F32, 1, 24) }, "RMSNorm: w is [1 24], x is [3 64]: want [1 W] with W dividing 64"},
		{"RMSNorm", func(o *operands) { o.inv = NewHost(F32, 3, 1) }, "RMSNorm: inv is [3 1], want [3 4]"},
		{"RMSNormBackward", func(o *operands) { o.attn.Q = o.y }, "RMSNormBackward: dy is [3 128], want [3 64]"},
		{"RoPE", func(o *operands) { o.positions = Ints([]int32{0, 1, 20}) }, "RoPE: positions[2] is 20, want 0 to 19"},
		{"RoPE", func(o *operands) { o.rope.Dims = 7 }, "RoPE: x is [3 64], heads are 16 wide and turn 7"},
		{"WriteKV", func(o *operands) { o.dattn.Slots = Ints([]int32{0, 1, 2, 80}) }, "WriteKV: slots[3] is 80, want 0 to 79"},
		{"WriteKV", func(o *operands) { o.dattn.Rows = Ints([]int32{0, 1, 2, 3}) }, "WriteKV: rows[3] is 3, want 0 to 2"},
		{"WriteKV", func(o *operands) { o.kv.Dim = 8 }, "WriteKV: pages of k is [5 512], want [5 256]"},
		{"Attention", func(o *operands) { o.attn.Heads = 3 }, "Attention: 3 query heads over 2 key heads"},
		{"Attention", func(o *operands) { o.seq.I32()[1] = 2 }, "Attention: seq[1] is 2, want 0 to 1"},
		{"Attention", func(o *operands) { o.positions.I32()[2] = 32 }, "Attention: positions[2] is 32, want 0 to 31"},
		{"Attention", func(o *operands) { o.positions.I32()[1] = 16 }, "Attention: page 1 of sequence 0 is 99, want 0 to 4"},
		{"Attention", func(o *operands) { o.attn.Tables.I32()[2] = -1 }, "Attention: page 0 of sequence 1 is -1, want 0 to 4"},
		{"Attention", func(o *operands) { o.attn.Window = -1 }, "Attention: window is -1, want 0 or more"},
		{"AttentionBackward", func(o *operands) { o.dattn.Scratch = o.inv }, "AttentionBackward: scratch holds 12 floats, want 1036"},
		{"AttentionBackward", func(o *operands) { o.dattn.DK = o.x }, "AttentionBackward: dk is [3 64], want [3 32]"},
		{"GLU", func(o *operands) { o.y2 = o.x }, "GLU: up is [3 64], want [3 128]"},
		{"LogProbs", func(o *operands) { o.head.PairRows.I32()[0] = 3 }, "LogProbs: pair rows[0] is 3, want 0 to 2"},
		{"LogProbs", func(o *operands) { copy(o.head.PairRows.I32(), []int32{2, 0}) }, "LogProbs: pair rows 0 and 1 are 2 and 0, want them ascending"},
		{"LogProbs", func(o *operands) { o.head.Targets.I32()[1] = 10 }, "LogProbs: targets[1] is 10, want 0 to 9"},
		{"LogProbs", func(o *operands) { o.head.InvT.F32()[1] = 0 }, "LogProbs: 1/temperature is 0, want a positive number"},
		{"LogProbs", func(o *operands) { o.head.W = o.w; o.head.W.In = 32 }, "LogProbs: hidden is [3 64], w wants 32"},
		{"LogProbsBackward", func(o *operands) { o.dhead.DW = o.dw }, "LogProbsBackward: dw is [128 64], want [10 64]"},
		{"Sample", func(o *operands) { o.sample.Rows[1].InvT = float32(math.NaN()) }, "Sample: 1/temperature is NaN, want a positive number"},
		{"Sample", func(o *operands) { o.sample.Rows[1].TopP = 0 }, "Sample: row 1 has TopP 0, want more than 0 and at most 1"},
		{"Sample", func(o *operands) { o.sample.Rows[1].U = 1 }, "Sample: row 1 has TopK 0, NumTop 0, MinP 0, U 1"},
		{"Sample", func(o *operands) { o.sample.Rows[2].Banned = []int32{10} }, "Sample: row 2: banned token 10, want 0 to 9"},
		{"Sample", func(o *operands) { o.sample.Rows[2].Bias = []TokenBias{{ID: -1}} }, "Sample: row 2: bias of token -1, want 0 to 9"},
		{"Sample", func(o *operands) { o.sample.Out = nil }, "Sample: hidden has 3 rows, Rows 3, Out 0"},
		{"Sample", func(o *operands) { o.sample.Logits = NewHost(F32, 3, 10) }, "Sample: logits is [3 10], want [3 16]"},
		{"AdamW", func(o *operands) { o.step.T = 0 }, "AdamW: T is 0, want 1 or more"},
		{"AdamW", func(o *operands) { o.step.Beta2 = 1 }, "AdamW: beta is 1, want 0 to 1"},
		{"SumSquares", func(o *operands) { o.x = o.x.Columns(0, 3) }, "SumSquares: x has stride 64 for 3 columns, want them equal"},
		{"Pack", func(o *operands) { o.raw = o.raw[:68*17] }, "Pack: 1156 bytes at row 0 of [128 64] Q8_0, want whole rows of 68, 16 at a time"},
		{"Unpack", func(o *operands) { o.raw = append(o.raw, o.raw...) }, "Unpack: 17408 bytes at row 0 of [128 64] Q8_0, want whole rows of 68, 16 at a time"},
		{"Upload", func(o *operands) { o.x = o.x.Slice(0, 2) }, "Upload: src has 768 bytes, dst [2 64] F32 wants 512"},
		{"Download", func(o *operands) { o.x = Tensor{} }, "Download: src is absent"},
		{"Copy", func(o *operands) { o.y = o.y.Slice(0, 2) }, "Copy: dst is [2 128], src is [3 128]"},
		{"Add", func(o *operands) { o.y = o.x }, "Add: y is [3 64], want [3 128]"},
	} {
		t.Run(fmt.Sprintf("%s/%s", c.call, c.want), func(t *testing.T) {
			inner, o := &idle{}, newOperands()
			c.spoil(o)
			assert.PanicsWithValue(t, "kernels: "+c.want, func() { calls[c.call](Checked(inner), o) })
			assert.Zero(t, inner.calls, "the backend was called")
		})
	}
}

// Values on a device cannot be looked at: only shapes are checked.
func TestCheckedLeavesDeviceMemoryAlone(t *testing.T) {
	o := newOperands()
	for _, x := range []*Tensor{&o.attn.Seq, &o.attn.Positions, &o.attn.Tables, &o.head.PairRows, &o.head.Targets, &o.head.InvT} {
		x.Mem = &Memory{Device: 1, Bytes: x.Mem.Bytes}
	}
	require.NotPanics(t, func() {
		calls["Attention"](Checked(&idle{}), o)
		calls["LogProbs"](Checked(&idle{}), o)
	})
}

func TestCheckedAllocatesNothing(t *testing.T) {
	b, o := Checked(&idle{}), newOperands()
	products := []Product{{Y: o.y, W: o.w, LoRA: &o.lora, H: o.h}}
	grads := []ProductGrad{{DY: o.y, W: o.w, DW: o.dw, LoRA: &o.lora, H: o.h, DH: o.dh, DA: o.da, DB: o.db}}
	for name, call := range map[string]func(){
		"MatMul":         func() { b.MatMul(o.x, products) },
		"MatMulBackward": func() { b.MatMulBackward(o.attn.Out, o.x, grads, false) },
		"the others": func() {
			for _, name := range []string{"Embed", "RMSNorm", "RoPE", "WriteKV", "Attention", "AttentionBackward", "GLU",
				"LogProbs", "LogProbsBackward", "Sample", "AdamW", "Copy", "Gather"} {
				calls[name](b, o)
			}
		},
	} {
		assert.Zero(t, testing.AllocsPerRun(20, call), name)
	}
}
