package infer

import (
	"slices"

	"graft/infer/paged"
	"graft/kernels"
	"graft/kernels/rng"
	"graft/weights"
)

// request is one Submit: N siblings of one prompt under one adapter version.
type request struct {
	params  Params
	prompt  []int32
	stream  *Stream
	seqs    []*sequence
	live    int              // sequences not finished
	asked   *weights.Adapter // as submitted
	adapter *weights.Adapter // as computed: asked, or a copy of the version it began with
	version uint64           // of the adapter, or of the base without one
	base    uint64           // version of the base
	started bool
	scored  int // prompt positions whose log-probs are known
	scores  *PromptScores
	broken  error // what is wrong with the prompt's log-probs
}

// sequence is one sibling.
type sequence struct {
	paged.Sequence
	req       *request
	index     int
	generated int
	over      bool
	source    rng.Source
	text      *textReader // nil: ids only
	stops     stopMatcher
	bias      []kernels.TokenBias
}

// PromptScores are the log-probs of a prompt's tokens: entry i is that of token i given those
// before it. Entry 0 is 0 and means nothing.
type PromptScores struct {
	LogP    []float32
	Entropy []float32             // of the distribution that follows token i
	Top     [][]kernels.TokenLogP // with TopLogProbs; Top[0] is nil
}

func owner(s *paged.Sequence) *sequence { return s.Owner.(*sequence) }

func (e *Engine) newRequest(r *Request) *request {
	q := &request{params: r.Params, prompt: slices.Clone(r.Prompt), asked: r.Params.Adapter, adapter: r.Params.Adapter}
	q.params.Stop, q.params.StopIDs = slices.Clone(r.Params.Stop), slices.Clone(r.Params.StopIDs)
	if !q.params.IgnoreEOS {
		q.params.StopIDs = append(q.params.StopIDs, e.eos...)
	}
	if n := len(q.prompt); q.params.PromptLogProbs {
		q.scores = &PromptScores{LogP: make([]float32, n), Entropy: make([]float32, n)}
		if q.params.TopLogProbs > 0 {
			q.scores.Top = make([][]kernels.TokenLogP, n)
		}
	}
	q.stream = &Stream{engine: e, req: q, ready: make(chan struct{}, 1)}
	q.live = q.params.N
	var group *paged.Group
	if q.live > 1 {
		group = &paged.Group{}
	}
	for i := range q.live {
		s := e.newSequence(q, i, group)
		q.seqs = append(q.seqs, s)
		if group != nil {
			group.Members = append(group.Members, &s.Sequence)
		}
	}
	return q
}

func (e *Engine) newSequence(q *request, index int, group *paged.Group) *sequence {
	s := &sequence{req: q, index: index, source: rng.New(q.params.Seed, "sample")}
	total := len(q.prompt) + q.params.MaxTokens
	s.Sequence = paged.Sequence{
		Tokens: append(make([]int32, 0, total), q.prompt...), PromptLen: len(q.prompt),
		Priority: q.params.Priority, NoCache: q.params.PromptLogProbs, Group: group, Owner: s,
		Table: make([]int32, 0, paged.PagesFor(total)),
	}
	if e.tok != nil {
		s.text = newTextReader(e.tok, q.prompt, !q.params.KeepSpecial)
		s.stops = stopMatcher{stops: q.params.Stop, include: q.params.IncludeStop}
	}
	return s
}

// begin queues the sequences of a request.
func (e *Engine) begin(q *request) {
	e.requests[q] = struct{}{}
	if q.stream.closed.Load() {
		e.end(q, FinishAbort, nil)
		return
	}
	space := e.space(q)
	for _, s := range q.seqs {
		s.Space = space
		e.sched.Add(&s.Sequence)
	}
}

// end finishes whatever of a request is not finished.
func (e *Engine) end(q *request, why FinishReason, err error) {
	if _, ok := e.requests[q]; !ok {
		return
	}
	for _, s := range q.seqs {
		if !s.over {
			e.finish(s, Event{Finish: why, Err: err, Text: s.flush()})
		}
	}
}
