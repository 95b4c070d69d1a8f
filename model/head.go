package model

import (
	"graft/kernels"
	"graft/weights"
)

// HeadActs is where log-probs of chosen rows are computed and differentiated.
type HeadActs struct {
	Rows, Pairs int // capacities: scored rows M, (row, target) pairs P

	mem                    *kernels.Memory
	arena                  *weights.Arena
	ints                   [3]kernels.Tensor // scored rows, pair rows, targets
	invT                   kernels.Tensor    // [1, M]
	hidden                 kernels.Tensor    // [M, C]
	logp, dlogp            kernels.Tensor    // [1, P]
	entropy, lse, dentropy kernels.Tensor    // [1, M]
	dhidden                kernels.Tensor    // [M, C]
	dfinal                 kernels.Tensor    // [N, C]
	scratch                kernels.Tensor
	args                   kernels.LogProbsArgs
}

// Scored names what LogProbs computes: Rows are rows of the batch, ascending and distinct; pair i
// asks for Targets[i] at Rows[PairRows[i]], PairRows ascending; InvT is 1/temperature of each row.
type Scored struct {
	Rows     []int32   // [M]
	InvT     []float32 // [M]
	PairRows []int32   // [P]
	Targets  []int32   // [P]
}

// HeadSize bounds HeadActs.
type HeadSize struct {
	BatchRows int // N, for the backward; 0: forward only
	Rows      int // M
	Pairs     int // P
	Threads   int // as the backend's
}

// HeadBytes is what NewHeadActs will allocate.
func HeadBytes(c *Config, s HeadSize) int64 {
	var h HeadActs
	cut := weights.NewCarver(nil)
	h.layout(cut, c, s)
	return cut.Bytes()
}

// NewHeadActs allocates the buffers in one span.
func NewHeadActs(arena *weights.Arena, c *Config, s HeadSize) (*HeadActs, error) {
	mem, err := arena.Alloc("head", HeadBytes(c, s))
	if err != nil {
		return nil, err
	}
	h := &HeadActs{Rows: s.Rows, Pairs: s.Pairs, mem: mem, arena: arena}
	h.layout(weights.NewCarver(mem), c, s)
	return h, nil
}

// Free returns the buffers.
func (h *HeadActs) Free() { h.arena.Free(h.mem) }

func (h *HeadActs) layout(cut *weights.Carver, c *Config, s HeadSize) {
	f32 := func(rows, cols int) kernels.Tensor { return cut.Tensor(kernels.F32, rows, cols) }
	h.ints[0] = cut.Tensor(kernels.I32, 1, s.Rows)
	h.ints[1], h.ints[2] = cut.Tensor(kernels.I32, 1, s.Pairs), cut.Tensor(kernels.I32, 1, s.Pairs)
	h.invT, h.hidden = f32(1, s.Rows), cut.Rows(s.Rows, c.Dim)
	h.logp, h.entropy, h.lse = f32(1, s.Pairs), f32(1, s.Rows), f32(1, s.Rows)
	h.scratch = f32(1, kernels.LogProbsScratch(s.Rows, c.Vocab, s.Threads))
	if s.BatchRows > 0 {
		h.dlogp, h.dentropy = f32(1, s.Pairs), f32(1, s.Rows)
		h.dhidden, h.dfinal = cut.Rows(s.Rows, c.Dim), cut.Rows(s.BatchRows, c.Dim)
	}
}

// LogProbs scores pairs on the hidden states that Forward returned. logp [P] and entropy [M] are
// filled; either may be nil. The kernels are those the sampler uses: same bits.
func (m *Model) LogProbs(h *HeadActs, hidden kernels.Tensor, s *Scored, logp, entropy []float32) error {
	be := m.Backend()
	rows := upload32(be, h.ints[0], s.Rows)
	hid := rowsOf(h.hidden, len(s.Rows))
	be.Gather(hid, hidden, rows)
	h.args = kernels.LogProbsArgs{
		LogP: cols(h.logp, len(s.Targets)), Entropy: cols(h.entropy, len(s.Rows)), LSE: cols(h.lse, len(s.Rows)),
		Hidden: hid, W: m.Head.W, PairRows: upload32(be, h.ints[1], s.PairRows), Targets: upload32(be, h.ints[2], s.Targets),
		InvT: uploadF(be, h.invT, s.InvT), Softcap: m.Config.FinalSoftcap, Scratch: h.scratch,
	}
	be.LogProbs(&h.args)
	if err := be.Sync(); err != nil {
		return err
	}
	downloadF(be, logp, h.args.LogP)
	downloadF(be, entropy, h.args.Entropy)
	return be.Sync()
}

// LogProbsBackward follows LogProbs of the same Scored: given dL/dlogp [P] and dL/dH [M] it returns
// the gradient at the hidden states of all n rows of the batch, for Backward.
func (m *Model) LogProbsBackward(h *HeadActs, n int, s *Scored, dlogp, dentropy []float32) kernels.Tensor {
	be := m.Backend()
	g := kernels.LogProbsGrad{
		DLogP: uploadF(be, h.dlogp, dlogp), DEntropy: uploadF(be, h.dentropy, dentropy),
		DHidden: rowsOf(h.dhidden, len(s.Rows)), DW: m.Head.DW,
	}
	be.LogProbsBackward(&h.args, &g)
	d := rowsOf(h.dfinal, n)
	be.Zero(d)
	be.ScatterAdd(d, g.DHidden, cols(h.ints[0], len(s.Rows)))
	return d
}

func cols(t kernels.Tensor, n int) kernels.Tensor {
	t.Cols, t.Stride = n, n
	return t
}

func upload32(be kernels.Backend, t kernels.Tensor, src []int32) kernels.Tensor {
	t = cols(t, len(src))
	if len(src) > 0 {
		be.Upload(t, bytesOf(src))
	}
	return t
}

func uploadF(be kernels.Backend, t kernels.Tensor, src []float32) kernels.Tensor {
	t = cols(t, len(src))
	if len(src) > 0 {
		be.Upload(t, bytesOf(src))
	}
	return t
}

func downloadF(be kernels.Backend, dst []float32, t kernels.Tensor) {
	if dst != nil && t.Cols > 0 {
		be.Download(bytesOf(dst[:t.Cols]), t)
	}
}
