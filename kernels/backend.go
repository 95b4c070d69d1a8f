package kernels

import "graft/kernels/quant"

// PageSize is the number of token positions in a page of keys and values, on every backend.
const PageSize = 16

// Backend is the list of operations. Destinations come first. No operation returns an error: the
// first failure sticks and Sync tells it. Shapes are checked once by Checked; backends assume
// checked input. All forward operations keep the row law: a row's result depends on that row only,
// never on how many rows share the call. Backward operations are deterministic for a given batch,
// whatever the number of threads.
type Backend interface {
	// Name says what computes, for reports: "cpu avx2 x2".
	Name() string

	// Alloc gets zeroed memory outside of Go's heap; Free returns it.
	Alloc(bytes int64) (*Memory, error)
	Free(m *Memory)
	// Upload and Download move raw bytes between Go and a tensor's memory.
	Upload(dst Tensor, src []byte)
	Download(dst []byte, src Tensor)
	// Zero clears a tensor; Copy copies src to dst (same shape); Add is y += x.
	Zero(t Tensor)
	Copy(dst, src Tensor)
	Add(y, x Tensor)
	// Sync waits for everything asked so far and returns the first error since the last Sync.
	Sync() error
	Close() error

	// PackedBytes is the size of a packed [out, in] weight.
	PackedBytes(f quant.Format, out, in int) int64
	// Pack stores rows row, row+1, … given as raw rows of the file's block layout. row is a
	// multiple of 16, and so is the number of rows unless they are the last ones.
	Pack(w Weight, row int, raw []byte)
	// Unpack is the exact inverse of Pack.
	Unpack(raw []byte, w Weight, row int)

	// Embed: y[n] = scale·W[ids[n]], y [N, C], ids I32 [1, N].
	Embed(y Tensor, w Weight, ids Tensor, scale float32)
	// EmbedBackward: dw[ids[n]] += scale·dy[n], rows in ascending n.
	EmbedBackward(dw Weight, dy, ids Tensor, scale float32)

	// Gather: y[i] = x[rows[i]], y [M, C], rows I32 [1, M]. ScatterAdd: y[rows[i]] += x[i], i ascending.
	Gather(y, x, rows Tensor)
	ScatterAdd(y, x, rows Tensor)

	// RMSNorm: y = x/√(mean(x²)+eps)·w (keep: y += …). x [N, C], w [1, W] with W dividing C: every
	// run of W channels is normalised by itself (heads); inv [N, C/W] keeps 1/√(…).
	RMSNorm(y, inv, x, w Tensor, eps float32, keep bool)
	// RMSNormBackward: dx = … (keep: dx += …), dw [1, W] += … (rows, then runs, ascending) unless absent.
	RMSNormBackward(dx, dw, dy, x, w, inv Tensor, keep bool)

	// MatMul computes every product of the same x [N, In].
	MatMul(x Tensor, products []Product)
	// MatMulBackward: dx = Σ dy·W + LoRA terms (keep: dx += …; absent: not computed), and the
	// parameter gradients that are asked for.
	MatMulBackward(dx, x Tensor, grads []ProductGrad, keep bool)

	// RoPE turns x [N, H·D] in place by the rows of table at the given positions.
	RoPE(x Tensor, r Rope, positions Tensor, inverse bool)

	// WriteKV stores row rows[i] of k and v [N, G·D] at slot slots[i] (page·PageSize + position in
	// page) of the layer's pages. One row may go to several slots.
	WriteKV(kv KV, k, v Tensor, rows, slots Tensor)
	// Attention: see AttentionArgs.
	Attention(a *AttentionArgs)
	AttentionBackward(a *AttentionArgs, g *AttentionGrad)

	// GLU: y = act(gate)·up, all [N, F].
	GLU(y, gate, up Tensor, act Activation)
	// GLUBackward overwrites dgate and dup (which may be gate and up themselves).
	GLUBackward(dgate, dup, dy, gate, up Tensor, act Activation)

	// LogProbs: see LogProbsArgs.
	LogProbs(a *LogProbsArgs)
	LogProbsBackward(a *LogProbsArgs, g *LogProbsGrad)
	// Sample draws one token a row: see SampleArgs.
	Sample(a *SampleArgs)

	// AdamW moves flat parameters once: see AdamWStep.
	AdamW(p, g, m, v Tensor, s AdamWStep)
	// SumSquares returns Σ x² of a flat tensor, summed in float64 over fixed blocks.
	SumSquares(x Tensor) float64
}

// Activation is the gate function of a GLU.
type Activation uint8

// The activations.
const (
	SiLU Activation = iota
	GELUTanh
)

// Rope is a rotary position encoding. Table row p holds cos then sin of the Dims/2 angles of
// position p, attention factor included.
type Rope struct {
	Table   Tensor // [positions, Dims]
	Dims    int    // rotated dimensions at the start of each head, even, ≤ HeadDim
	HeadDim int
	Paired  bool // true: pairs (2i, 2i+1), llama's GGUF order; false: (i, i+Dims/2)
}

// KV is one layer's keys and values in pages. Only backends know the order inside a page.
type KV struct {
	K, V  Tensor // each [pages, G·D·PageSize], F32
	Heads int    // G
	Dim   int    // D
}

// AttentionArgs: out[n, h] = softmax(scale·q[n,h]·Kᵀ)·V over the positions p of row n's sequence with
// first(n) ≤ p ≤ Positions[n], where first is 0, or Positions[n]−Window+1 when Window > 0. Query
// head h reads key head h/(H/G). Logits are capped to Softcap·tanh(s/Softcap) when Softcap > 0.
// Positions are visited in pages of PageSize by absolute position with one online softmax.
type AttentionArgs struct {
	Out       Tensor // [N, H·D]
	LSE       Tensor // [N, H] log-sum-exp of the scaled scores, for the backward
	Q         Tensor // [N, H·D]
	KV        KV
	Tables    Tensor // I32 [S, pages]: page ids of each sequence, in order of position
	Seq       Tensor // I32 [1, N]: the table of each row
	Positions Tensor // I32 [1, N]
	Heads     int    // H
	Scale     float32
	Window    int
	Softcap   float32
}

// AttentionGrad are the gradients of AttentionArgs. Keys and values are those of this batch's rows:
// Rows and Slots are the pairs that WriteKV was given, and every position that a row of the batch
// sees was written by them.
type AttentionGrad struct {
	DOut    Tensor // [N, H·D]
	DQ      Tensor // [N, H·D], overwritten
	DK, DV  Tensor // [N, G·D], overwritten: row i gets the sum over its slots, in order
	Rows    Tensor // I32 [1, W]
	Slots   Tensor // I32 [1, W]
	Scratch Tensor // [distinct pages, 2·G·D·PageSize + …]: at least AttentionScratch floats
}

// AttentionScratch is the number of float32 that AttentionGrad.Scratch must hold for a batch of
// `rows` rows over `pages` distinct pages.
func AttentionScratch(rows, pages, heads, kvHeads, dim int) int {
	return pages*2*kvHeads*dim*PageSize + rows*heads
}

// LogProbsArgs: with z = softcap(hidden·Wᵀ)·InvT over the whole vocabulary,
// LogP[i] = z[Targets[i]] − logsumexp(z) of row PairRows[i]; Entropy[m] = logsumexp − Σ softmax·z.
// The logits are never held all at once; the sum runs over fixed chunks of the vocabulary.
type LogProbsArgs struct {
	LogP     Tensor // [1, P]
	Entropy  Tensor // [1, M]
	LSE      Tensor // [1, M], for the backward
	Hidden   Tensor // [M, C]
	W        Weight // [V, C]
	PairRows Tensor // I32 [1, P], ascending
	Targets  Tensor // I32 [1, P]
	InvT     Tensor // [1, M]: 1/temperature of each row
	Softcap  float32
	Scratch  Tensor // at least LogProbsScratch floats
}

// LogProbsGrad: given DLogP (dL/dlogp) and DEntropy (dL/dH), dHidden = Σ dz·W·…,
// dz = ((Σᵢ DLogP[i]·(1[yᵢ]−p)) − DEntropy·p·(log p + H))·InvT; DW += dzᵀ·hidden unless absent.
type LogProbsGrad struct {
	DLogP    Tensor // [1, P]
	DEntropy Tensor // [1, M]
	DHidden  Tensor // [M, C], overwritten; absent: not computed
	DW       Weight // [V, C] F32 or absent
}

// VocabChunk is the number of vocabulary entries summed as one unit in every log-sum-exp.
const VocabChunk = 4096

// LogProbsRows is the most rows whose logits LogProbs holds at a time.
const LogProbsRows = 64

// LogProbsScratch is the number of float32 of LogProbsArgs.Scratch.
func LogProbsScratch(rows, vocab, threads int) int {
	if rows > LogProbsRows {
		rows = LogProbsRows
	}
	if vocab > VocabChunk {
		vocab = VocabChunk
	}
	return threads * (rows*(vocab+16) + 4096)
}

// SampleArgs draws one token for each row of Hidden [M, C] from softmax(z·InvT): the log-prob
// reported is that of LogProbs for the same row and token, bit for bit, whatever truncation the
// draw used. Slices are on the host, one entry a row.
type SampleArgs struct {
	Hidden  Tensor // [M, C]
	W       Weight // [V, C]
	Softcap float32
	Logits  Tensor // [M, V↑16] scratch; holds the raw logits (after softcap) afterwards
	Rows    []SampleRow
	Out     []Sampled
}

// SampleRow says how one row is drawn.
type SampleRow struct {
	InvT   float32 // 1/temperature of the log-probs; used for the draw too unless Greedy
	Greedy bool    // take the largest logit, lowest id on ties
	TopK   int     // 0: off
	TopP   float32 // 1: off
	MinP   float32 // 0: off
	U      float64 // the uniform draw in [0, 1)
	NumTop int     // how many of the most probable tokens to report
	// Bias adds to raw logits of these tokens before the draw only; log-probs stay those of the model.
	Bias []TokenBias
	// Banned tokens are never drawn.
	Banned []int32
}

// TokenBias adds Value to the logit of ID.
type TokenBias struct {
	ID    int32
	Value float32
}

// Sampled is what one row drew.
type Sampled struct {
	ID      int32
	LogP    float32 // of ID under softmax(z·InvT) over the whole vocabulary
	Entropy float32
	Top     []TokenLogP // NumTop entries, most probable first; the slice is reused if it has room
}

// TokenLogP is a token and its log-prob.
type TokenLogP struct {
	ID   int32
	LogP float32
}

// AdamWStep holds one optimizer step's numbers (Loshchilov & Hutter 2019, torch's order): with
// g = GradScale·grad: p *= 1−LR·WeightDecay; m = β₁m+(1−β₁)g; v = β₂v+(1−β₂)g²;
// p −= LR/(1−β₁ᵗ)·m / (√v/√(1−β₂ᵗ) + Eps). T counts from 1.
type AdamWStep struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	GradScale                          float64
	T                                  int
}
