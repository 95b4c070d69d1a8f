package infer

// Stats are the engine's figures after its last step or, when that is later, the last end of a
// sequence: a sequence whose end has been read is counted in them, and its pages are not.
type Stats struct {
	Running     int // sequences that hold pages
	Waiting     int
	PagesTotal  int
	PagesUsed   int // held by sequences or taken by training
	PagesCached int // findable by prefix, used or not

	Steps           uint64
	PromptTokens    uint64 // computed; cached ones are not
	GeneratedTokens uint64
	CacheQueries    uint64 // prompt tokens looked up in the prefix cache
	CacheHits       uint64 // of these found
	Forked          uint64 // sequences that began with a sibling's prompt
	Preemptions     uint64
	Stopped         uint64 // sequences by how they ended
	Truncated       uint64
	Aborted         uint64
	Failed          uint64
	BytesCopied     uint64 // of adapter parameters, so that a request could stay on its version
}

func (s *Stats) count(why FinishReason) {
	switch why {
	case FinishStop:
		s.Stopped++
	case FinishLength:
		s.Truncated++
	case FinishAbort:
		s.Aborted++
	case FinishError:
		s.Failed++
	}
}

// Stats returns the figures.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// publish makes the figures of the loop readable.
func (e *Engine) publish() {
	t := &e.totals
	t.Running, t.Waiting = len(e.sched.Running()), len(e.sched.Waiting())
	t.PagesTotal, t.PagesUsed, t.PagesCached = e.pool.Total(), e.pool.Used(), e.pool.Cached()
	c := e.sched.Counts()
	t.CacheQueries, t.CacheHits, t.Forked, t.Preemptions = c.Queries, c.Hits, c.Forked, c.Preemptions
	e.mu.Lock()
	e.stats = *t
	e.mu.Unlock()
}
