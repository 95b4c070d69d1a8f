package infer

import (
	"fmt"

	"graft/infer/paged"
	"graft/weights"
)

// step advances every running sequence by one scheduled chunk or token.
func (e *Engine) step() {
	if e.idle() {
		return
	}
	plan := e.sched.Next()
	if len(plan.Items) == 0 {
		e.stuck()
		return
	}
	e.totals.Steps++
	e.sampler.reset()
	for _, ad := range e.split(plan) {
		if err := e.compute(plan, ad); err != nil {
			e.fail(err)
			return
		}
	}
	e.sched.Commit(plan)
	e.settle(plan)
	for i := range e.sampler.drawn {
		e.accept(&e.sampler.drawn[i])
	}
}

// split lists the adapters of a plan: rows of different adapters can not share a product.
func (e *Engine) split(plan *paged.Plan) []*weights.Adapter {
	e.adapters = e.adapters[:0]
next:
	for i := range plan.Items {
		ad := owner(plan.Items[i].Seq).req.adapter
		for _, known := range e.adapters {
			if known == ad {
				continue next
			}
		}
		e.adapters = append(e.adapters, ad)
	}
	return e.adapters
}

// compute runs the forward of the plan's rows under one adapter, scores prompts and draws tokens.
func (e *Engine) compute(plan *paged.Plan, ad *weights.Adapter) error {
	be := e.model.Backend()
	e.load(plan, ad)
	var err error
	if e.batch, err = e.buffer.Batch(be, ad); err != nil {
		return err
	}
	hidden := e.model.Forward(&e.batch, e.pages, e.acts)
	if err := be.Sync(); err != nil {
		return fmt.Errorf("infer: the step failed: %w", err)
	}
	row := 0
	for i := range plan.Items {
		it := &plan.Items[i]
		s := owner(it.Seq)
		if s.req.adapter != ad {
			continue
		}
		s.req.started = true // from here on it keeps this adapter version
		if s.req.params.PromptLogProbs {
			if err := e.scorePrompt(s.req, hidden.Slice(row, row+it.N), it.From); err != nil {
				return err
			}
		}
		row += it.N
		if it.Sample && s.req.params.MaxTokens > 0 {
			e.sampler.want(int32(row-1), s)
			for _, m := range it.Forks {
				e.sampler.want(int32(row-1), owner(m))
			}
		}
	}
	e.sampler.draw(e.model, hidden)
	return nil
}

// load lays the rows of one adapter out. The last page of a shared prompt is written once for every
// sibling.
func (e *Engine) load(plan *paged.Plan, ad *weights.Adapter) {
	width := 0
	for i := range plan.Items {
		width = max(width, len(plan.Items[i].Seq.Table), paged.PagesFor(plan.Items[i].From+plan.Items[i].N))
	}
	e.buffer.Reset(width)
	for i := range plan.Items {
		it := &plan.Items[i]
		if owner(it.Seq).req.adapter != ad {
			continue
		}
		seq, first := e.buffer.Sequence(it.Seq.Table), int32(e.buffer.N()-it.From)
		for pos := it.From; pos < it.From+it.N; pos++ {
			e.buffer.Row(it.Seq.Tokens[pos], int32(pos), seq)
		}
		for _, m := range it.Forks {
			if it.Tail == it.From+it.N {
				continue // only full pages, and those are shared
			}
			sibling := e.buffer.Sequence(m.Table)
			for pos := it.Tail; pos < it.From+it.N; pos++ {
				e.buffer.Write(first+int32(pos), int32(pos), sibling)
			}
		}
	}
}

// settle counts the prompt tokens computed and ends requests that only wanted their prompt scored, and
// those whose scores are no numbers.
func (e *Engine) settle(plan *paged.Plan) {
	for i := range plan.Items { // all of the step, before anything of it is told
		it := &plan.Items[i]
		e.totals.PromptTokens += uint64(max(0, min(it.From+it.N, it.Seq.PromptLen)-it.From))
	}
	for i := range plan.Items {
		it := &plan.Items[i]
		q := owner(it.Seq).req
		if q.broken != nil {
			e.end(q, FinishError, q.broken)
		}
		if q.params.MaxTokens > 0 || !it.Sample || owner(it.Seq).over {
			continue
		}
		e.finish(owner(it.Seq), Event{Finish: FinishLength})
		for _, m := range it.Forks {
			e.finish(owner(m), Event{Finish: FinishLength})
		}
	}
}

// stuck ends the first request in the queue, which needs pages that no sequence holds.
func (e *Engine) stuck() {
	q := owner(e.sched.Waiting()[0]).req
	e.end(q, FinishError, fmt.Errorf("infer: a request of %d tokens needs pages of keys and values, but %d of %d are taken by training, which must give them back before it leaves Exclusive",
		len(e.sched.Waiting()[0].Tokens), e.pool.Taken(), e.pool.Total()))
}

// fail ends the requests in flight with a device's error.
func (e *Engine) fail(err error) {
	for len(e.sched.Running()) > 0 {
		e.end(owner(e.sched.Running()[0]).req, FinishError, err)
	}
}
