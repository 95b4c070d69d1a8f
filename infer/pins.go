package infer

import (
	"context"
	"fmt"

	"graft/infer/paged"
	"graft/weights"
)

// pins keeps requests on the weights they began with.
type pins struct {
	known  map[uint64]*weights.Adapter // by ID: whose cached prefixes carry it
	epochs map[uint64]uint64           // announced changes, by ID
	base   uint64                      // announced changes of the base
	spares map[*weights.Adapter]int    // copies and how many requests run on them
}

func newPins() pins {
	return pins{known: map[uint64]*weights.Adapter{}, epochs: map[uint64]uint64{}, spares: map[*weights.Adapter]int{}}
}

func (p *pins) free() {
	for ad := range p.spares {
		ad.Free()
	}
	clear(p.spares)
}

// release drops an ended request's hold on its adapter: spares and retired adapters go with the
// last one.
func (e *Engine) release(q *request) {
	if n, ok := e.pins.spares[q.adapter]; ok {
		if e.pins.spares[q.adapter] = n - 1; n == 1 {
			delete(e.pins.spares, q.adapter)
			q.adapter.Free()
		}
		return
	}
	if q.adapter == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.retired(q.adapter) && !e.wanted(q.adapter) {
		delete(e.gone, q.adapter)
		q.adapter.Free()
	}
}

// retired tells whether Retire was called for an adapter that is still in use.
func (e *Engine) retired(ad *weights.Adapter) bool {
	_, ok := e.gone[ad]
	return ok
}

// wanted tells whether a request, begun or in the mail, computes with an adapter.
func (e *Engine) wanted(ad *weights.Adapter) bool {
	for q := range e.requests {
		if q.adapter == ad {
			return true
		}
	}
	for _, q := range e.mail.add {
		if q.adapter == ad {
			return true
		}
	}
	return false
}

// Retire frees an adapter as soon as no request uses it any more; new requests with it are refused
// meanwhile. The caller must not use it, nor submit with it, once Retire has returned.
func (e *Engine) Retire(ctx context.Context, ad *weights.Adapter) error {
	return e.Exclusive(ctx, func() error {
		e.forget(ad.ID)
		delete(e.pins.known, ad.ID)
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.wanted(ad) {
			e.gone[ad] = struct{}{}
		} else {
			ad.Free()
		}
		return nil
	})
}

// space is where a request's prefixes are cached, under the version that it will begin with. An ID
// that another adapter had before starts anew.
func (e *Engine) space(q *request) paged.Space {
	s := paged.Space{Base: e.model.Version, BaseEpoch: e.pins.base, Salt: q.params.CacheSalt}
	q.base, q.version = e.model.Version, e.model.Version
	if ad := q.adapter; ad != nil {
		if known, ok := e.pins.known[ad.ID]; ok && known != ad {
			e.forget(ad.ID)
		}
		e.pins.known[ad.ID] = ad
		s.Adapter, s.Version, s.Epoch = ad.ID+1, ad.Version, e.pins.epochs[ad.ID]
		q.version = ad.Version
	}
	return s
}

func (e *Engine) forget(id uint64) {
	e.pins.epochs[id]++
	e.pool.Forget(id + 1)
}

// PrepareUpdate announces, inside Exclusive, that an adapter's parameters (nil: those of the base)
// are about to change in place. Requests that run on the adapter go on with a copy of the present
// version, made only if there are any; cached prefixes of the version are dropped. The base can
// not be copied: while requests run, changing it is an error.
func (e *Engine) PrepareUpdate(ad *weights.Adapter) error {
	var running []*request
	for q := range e.requests {
		if q.started && (ad == nil || q.adapter == ad) {
			running = append(running, q)
		}
	}
	if ad == nil {
		if len(running) > 0 {
			return fmt.Errorf("infer: the base weights can not change while %d requests run on them; drain the engine first", len(running))
		}
		e.pins.base++
		e.pool.ForgetAll()
		return nil
	}
	if len(running) > 0 {
		spare, err := e.spare(ad)
		if err != nil {
			return err
		}
		e.pins.spares[spare] = len(running)
		for _, q := range running {
			q.adapter = spare
		}
	}
	e.forget(ad.ID)
	return nil
}

// spare copies an adapter as it is now.
func (e *Engine) spare(ad *weights.Adapter) (*weights.Adapter, error) {
	var sites []weights.SiteRank
	for _, l := range e.model.Linears {
		if p := ad.Pair(l.Site); p != nil {
			sites = append(sites, weights.SiteRank{Linear: l, Rank: p.Rank, Alpha: p.Alpha})
		}
	}
	spare, err := weights.NewAdapter(e.model.Arena, ad.ID, len(e.model.Linears), sites, ad.RSLoRA, false)
	if err != nil {
		return nil, fmt.Errorf("infer: a copy of the adapter for the requests that run on it: %w", err)
	}
	spare.CopyParams(ad)
	e.totals.BytesCopied += uint64(4 * ad.Params().Cols)
	if err := e.model.Backend().Sync(); err != nil {
		spare.Free()
		return nil, err
	}
	return spare, nil
}

// changed follows Exclusive: requests that have not begun take the present versions; one that has,
// and whose adapter changed under it unannounced, ends with an error.
func (e *Engine) changed() {
	for q := range e.requests {
		if !q.started {
			space := e.space(q)
			for _, s := range q.seqs {
				s.Space = space
			}
			continue
		}
		now := e.model.Version
		if q.adapter != nil {
			now = q.adapter.Version
		}
		if now != q.version || e.model.Version != q.base {
			e.end(q, FinishError, fmt.Errorf("infer: the weights changed from version %d to %d (base: %d to %d) under a running request; call PrepareUpdate before changing them",
				q.version, now, q.base, e.model.Version))
		}
	}
}
