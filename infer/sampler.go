package infer

import (
	"encoding/binary"
	"fmt"
	"slices"

	"graft/kernels"
	"graft/model"
	"graft/weights"
)

// sampler draws tokens from rows of hidden states, a block of rows at a time.
type sampler struct {
	arena  *weights.Arena
	mem    *kernels.Memory
	rows   kernels.Tensor // I32 [1, S]
	hidden kernels.Tensor // [S, C]
	logits kernels.Tensor // [S, V↑16]
	args   kernels.SampleArgs
	specs  []kernels.SampleRow // [S]
	out    []kernels.Sampled   // [S]
	raw    []byte              // row numbers on their way to rows

	picks  []pick  // rows wanted of the present forward
	drawn  []drawn // of the whole step
	scored model.Scored
	logp   []float32
	ent    []float32
}

// pick wants a token for a sequence from a row of hidden states.
type pick struct {
	row int32
	seq *sequence
}

func sampleRows(o Options) int { return min(maxSampleRows, o.MaxSeqs) }

func (s *sampler) layout(cut *weights.Carver, c *model.Config, o Options) {
	n := sampleRows(o)
	s.rows = cut.Tensor(kernels.I32, 1, n)
	s.hidden = cut.Rows(n, c.Dim)
	s.logits = cut.Tensor(kernels.F32, n, (c.Vocab+15)&^15)
}

func (s *sampler) allocate(arena *weights.Arena, c *model.Config, o Options) (err error) {
	count := weights.NewCarver(nil)
	s.layout(count, c, o)
	if s.mem, err = arena.Alloc("sampler", count.Bytes()); err != nil {
		return err
	}
	s.arena = arena
	s.layout(weights.NewCarver(s.mem), c, o)
	n := sampleRows(o)
	s.specs, s.out, s.raw = make([]kernels.SampleRow, n), make([]kernels.Sampled, n), make([]byte, 4*n)
	head := o.head().Rows
	s.logp, s.ent = make([]float32, head), make([]float32, head)
	return nil
}

func (s *sampler) free(arena *weights.Arena) {
	if s.mem != nil {
		arena.Free(s.mem)
		s.mem = nil
	}
}

func (s *sampler) reset() { s.picks, s.drawn = s.picks[:0], s.drawn[:0] }

func (s *sampler) want(row int32, seq *sequence) { s.picks = append(s.picks, pick{row, seq}) }

// draw draws for every pick. A row that can not be drawn (logits that are not finite, every token
// banned) is an error of its sequence only.
func (s *sampler) draw(m *model.Model, hidden kernels.Tensor) {
	for block := s.picks; len(block) > 0; {
		n := min(len(s.specs), len(block))
		for i, p := range block[:n] {
			s.place(i, p.row)
			p.seq.spec(&s.specs[i])
		}
		s.gather(m, hidden, n)
		s.penalize(m, block[:n])
		whole := s.sample(m, 0, n)
		for i, p := range block[:n] {
			err := whole
			if whole != nil {
				err = s.sample(m, i, i+1)
			}
			d := drawn{Sampled: s.out[i], seq: p.seq}
			if d.Top = nil; p.seq.req.params.TopLogProbs > 0 {
				d.Top = slices.Clone(s.out[i].Top) // the slot's own is used again
			}
			if err != nil {
				d.err = fmt.Errorf("infer: token %d can not be drawn: %w", p.seq.generated, err)
			}
			s.drawn = append(s.drawn, d)
		}
		block = block[n:]
	}
	s.picks = s.picks[:0]
}

func (s *sampler) place(i int, row int32) { binary.NativeEndian.PutUint32(s.raw[4*i:], uint32(row)) }

// gather brings the n rows that were placed together.
func (s *sampler) gather(m *model.Model, hidden kernels.Tensor, n int) {
	rows := s.rows.Columns(0, n)
	rows.Stride = n
	m.Backend().Upload(rows, s.raw[:4*n])
	m.Backend().Gather(s.hidden.Slice(0, n), hidden, rows)
}

// sample runs the head on gathered rows [from, to).
func (s *sampler) sample(m *model.Model, from, to int) error {
	s.args = kernels.SampleArgs{
		Hidden: s.hidden.Slice(from, to), W: m.Head.W, Softcap: m.Config.FinalSoftcap,
		Logits: s.logits.Slice(from, to), Rows: s.specs[from:to], Out: s.out[from:to],
	}
	m.Backend().Sample(&s.args)
	return m.Backend().Sync()
}

// spec says how the sequence's next token is drawn, but for the penalties.
func (q *sequence) spec(r *kernels.SampleRow) {
	p := &q.req.params
	*r = kernels.SampleRow{
		InvT: p.invT(), Greedy: p.Temperature == 0, TopK: p.TopK, TopP: float32(p.TopP), MinP: float32(p.MinP), NumTop: p.TopLogProbs,
	}
	if !r.Greedy {
		r.U = q.source.Uniform(p.Draw[0], p.Draw[1], p.Draw[2]+uint32(q.index), uint32(len(q.Tokens)))
	}
	if q.generated < p.MinTokens {
		r.Banned = p.StopIDs
	}
}

// penalize fills the biases of a block: logit_bias, and the penalties on tokens so far. The
// repetition penalty scales logits, so the head runs once before to see them.
func (s *sampler) penalize(m *model.Model, block []pick) {
	scale := false
	for _, p := range block {
		scale = scale || p.seq.req.params.RepetitionPenalty != 1
	}
	if scale {
		kept := slices.Clone(s.specs[:len(block)])
		for i := range block {
			s.specs[i] = kernels.SampleRow{InvT: 1, Greedy: true}
		}
		// A row that fails here fails again when it is drawn.
		_ = s.sample(m, 0, len(block))
		copy(s.specs, kept)
	}
	for i, p := range block {
		if p.seq.req.params.biased() {
			s.specs[i].Bias = p.seq.penalties(func(ids []int32) []float32 { return s.logitsOf(m, i, ids) })
		}
	}
}

// logitsOf reads raw logits of row i.
func (s *sampler) logitsOf(m *model.Model, i int, ids []int32) []float32 {
	row := make([]byte, 4*s.logits.Cols)
	m.Backend().Download(row, s.logits.Slice(i, i+1))
	out := make([]float32, len(ids))
	for j, id := range ids {
		out[j] = float32FromBytes(row[4*id:])
	}
	return out
}
