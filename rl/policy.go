package rl

import (
	"errors"
	"fmt"
	"math"

	"graft/kernels"
	"graft/model"
	"graft/weights"
)

// ErrDiverged says that log-probs or gradients have left the finite numbers. What comes after would
// do so again: the remedy is other options, not another try.
var ErrDiverged = errors.New("the weights have diverged (lower the learning rate or max_grad_norm), or the model file is damaged")

// PagePool hands out pages of keys and values: infer/paged's pool, shared with the sampler.
type PagePool interface {
	// Take returns n page ids, or an error that says how many there are.
	Take(n int) ([]int32, error)
	// Give returns them.
	Give(pages []int32)
}

// Policy scores rollouts and turns token gradients into parameter gradients, by the same forward
// that samples. The reference policy is the same model without its adapter, or Reference when the
// base itself is trained, or the model with ReferenceAdapter when an adapter is trained further.
type Policy struct {
	Model     *model.Model
	Adapter   *weights.Adapter // nil: the base is trained, or nothing is
	Reference *model.Model     // frozen copy; nil: Model
	// ReferenceAdapter is a frozen copy of the adapter as training found it, no larger than Adapter;
	// nil: the reference has no adapter.
	ReferenceAdapter *weights.Adapter
	Pages            *model.Pages
	Pool             PagePool
	InvT             float32 // 1/temperature of every log-prob

	size   PolicySize // what Allocate was asked for
	acts   *model.Acts
	head   *model.HeadActs
	buffer model.BatchBuffer
	plan   plan
	batch  model.Batch
	pages  []int32
	logp   []float32 // [P] pairs
	ent    []float32 // [M] scored rows
}

// PolicySize bounds a micro-batch.
type PolicySize struct {
	Rows    int // tokens of one forward, shared prompts counted once
	Scored  int // rows that reach the head
	Pairs   int // (row, target) pairs
	Pages   int // pages a micro-batch touches
	Keep    model.Keep
	Threads int
}

// SizeOf is what a micro-batch needs, exactly.
func SizeOf(batch []Rollout) PolicySize {
	var s PolicySize
	for _, g := range groups(batch) {
		p := batch[g.from].PromptLen
		s.Rows += p
		n := g.to - g.from
		if n > 1 {
			s.Pages += pagesFor(p)
		}
		for i := g.from; i < g.to; i++ {
			s.Rows += max(0, batch[i].Len()-1)
			s.Pairs += batch[i].Len()
			if n > 1 {
				s.Pages += pagesFor(p+batch[i].Len()) - p/kernels.PageSize
			} else {
				s.Pages += pagesFor(p + batch[i].Len())
			}
		}
	}
	s.Scored = s.Rows
	return s
}

// Max is the larger of two sizes in every respect.
func (s PolicySize) Max(o PolicySize) PolicySize {
	s.Rows, s.Scored = max(s.Rows, o.Rows), max(s.Scored, o.Scored)
	s.Pairs, s.Pages = max(s.Pairs, o.Pairs), max(s.Pages, o.Pages)
	return s
}

func pagesFor(tokens int) int { return (tokens + kernels.PageSize - 1) / kernels.PageSize }

// PolicyBytes is what Allocate will take from the arena.
func PolicyBytes(c *model.Config, s PolicySize, rankCols int) int64 {
	return model.ActsBytes(c, s.acts(rankCols)) + model.HeadBytes(c, s.head())
}

func (s PolicySize) acts(rankCols int) model.ActsSize {
	return model.ActsSize{Rows: s.Rows, Pages: s.Pages, RankCols: rankCols, Keep: s.Keep}
}

func (s PolicySize) head() model.HeadSize {
	h := model.HeadSize{Rows: s.Scored, Pairs: s.Pairs, Threads: s.Threads}
	if s.Keep != model.KeepNone {
		h.BatchRows = s.Rows
	}
	return h
}

// Allocate takes the policy's buffers from the model's arena.
func (p *Policy) Allocate(s PolicySize) error {
	p.size = s
	var err error
	if p.acts, err = model.NewActs(p.Model.Arena, &p.Model.Config, s.acts(p.Adapter.MaxCols())); err != nil {
		return err
	}
	p.head, err = model.NewHeadActs(p.Model.Arena, &p.Model.Config, s.head())
	return err
}

// Trained lists what an optimizer moves.
func (p *Policy) Trained() []weights.Param {
	if p.Adapter != nil {
		return p.Adapter.Trained()
	}
	return p.Model.Trained
}

// Version counts changes of what is trained.
func (p *Policy) Version() uint64 {
	if p.Adapter != nil {
		return p.Adapter.Version
	}
	return p.Model.Version
}

// Updated is called after parameters changed in place: everything cached under the old version is
// dead from here on.
func (p *Policy) Updated() {
	if p.Adapter != nil {
		p.Adapter.Version++
	} else {
		p.Model.Version++
	}
}

// Score runs the forward that the sampler runs and returns every completion token's log-prob and
// entropy (0 where masked), in order of rollouts, then tokens; Accumulate may follow.
func (p *Policy) Score(batch []Rollout) (logp, entropy []float32, err error) {
	return p.score(p.Model, p.Adapter, batch)
}

// ScoreReference is Score under the reference policy; no Accumulate may follow.
func (p *Policy) ScoreReference(batch []Rollout) ([]float32, error) {
	ref := p.Model
	if p.Reference != nil {
		ref = p.Reference
	}
	logp, _, err := p.score(ref, p.ReferenceAdapter, batch)
	p.release()
	return logp, err
}

func (p *Policy) score(m *model.Model, ad *weights.Adapter, batch []Rollout) (logp, entropy []float32, err error) {
	p.release()
	need := SizeOf(batch)
	if most := p.size.Max(need); most != p.size {
		return nil, nil, fmt.Errorf("rl: a micro-batch needs %d rows, %d pairs and %d pages, %d, %d and %d were planned; lower the batch size, or the prompt or completion length",
			need.Rows, need.Pairs, need.Pages, p.size.Rows, p.size.Pairs, p.size.Pages)
	}
	if p.pages, err = p.Pool.Take(need.Pages); err != nil {
		return nil, nil, err
	}
	if err = p.plan.lay(&p.buffer, batch, p.pages, p.InvT); err != nil {
		return nil, nil, err
	}
	if p.batch, err = p.buffer.Batch(m.Backend(), ad); err != nil {
		return nil, nil, err
	}
	hidden := m.Forward(&p.batch, p.Pages, p.acts)
	p.logp, p.ent = grow(p.logp, len(p.plan.scored.Targets)), grow(p.ent, len(p.plan.scored.Rows))
	if err = m.LogProbs(p.head, hidden, &p.plan.scored, p.logp, p.ent); err != nil {
		return nil, nil, err
	}
	n := Tokens(batch)
	logp, entropy = make([]float32, n), make([]float32, n)
	for i, token := range p.plan.token {
		logp[token] = p.logp[i]
		entropy[token] = p.ent[p.plan.scored.PairRows[i]]
		if math.IsNaN(float64(logp[token])) || math.IsInf(float64(logp[token]), 0) {
			return nil, nil, fmt.Errorf("rl: the log-prob of completion token %d is %g: %w", token, logp[token], ErrDiverged)
		}
	}
	return logp, entropy, nil
}

// Accumulate runs the backward of the last Score and adds to the parameters' gradients.
func (p *Policy) Accumulate(grad TokenGrad) error {
	dlogp, dent := make([]float32, len(p.plan.token)), make([]float32, len(p.plan.scored.Rows))
	for i, token := range p.plan.token {
		dlogp[i] = grad.DLogP[token]
		if grad.DEntropy != nil {
			dent[p.plan.scored.PairRows[i]] += grad.DEntropy[token]
		}
	}
	d := p.Model.LogProbsBackward(p.head, p.batch.N(), &p.plan.scored, dlogp, dent)
	p.Model.Backward(&p.batch, p.Pages, p.acts, d)
	err := p.Model.Backend().Sync()
	p.release()
	return err
}

// release gives the last batch's pages back.
func (p *Policy) release() {
	if p.pages != nil {
		p.Pool.Give(p.pages)
		p.pages = nil
	}
}

// ZeroGrads clears every gradient.
func (p *Policy) ZeroGrads() {
	for _, t := range p.Trained() {
		p.Model.Backend().Zero(t.Grad)
	}
}

func grow(x []float32, n int) []float32 {
	if cap(x) < n {
		return make([]float32, n, 2*n)
	}
	return x[:n]
}
