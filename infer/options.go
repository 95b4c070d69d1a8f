package infer

import (
	"fmt"
	"math"
	"runtime"

	"graft/infer/paged"
	"graft/kernels"
	"graft/model"
	"graft/weights"
)

// Options size an engine. The zero value takes the defaults.
type Options struct {
	Pages            int   // pages of keys and values; 0: what MemoryBytes holds
	MemoryBytes      int64 // for pages; 0: 1 GiB, but at least one and at most MaxSeqs full sequences
	MaxBatchedTokens int   // rows of one step; 0: 256
	MaxSeqs          int   // sequences computed at once; 0: 64, at most MaxBatchedTokens
	MaxModelLen      int   // prompt and completion; 0: what the model was loaded for
	MaxWaiting       int   // queued sequences before Submit refuses with ErrBusy; 0: no limit
	NoPrefixCache    bool
	Threads          int // of the backend; 0: ask it (PlanBytes, which has none: GOMAXPROCS)
	RankCols         int // widest adapter (weights.Adapter.MaxCols) that requests may bring; 0: none
}

// Both rooms mean the same page: this does not compile otherwise.
const _ = uint(kernels.PageSize-paged.PageSize) + uint(paged.PageSize-kernels.PageSize)

const (
	defaultBatchedTokens = 256
	defaultSeqs          = 64
	defaultPageBytes     = 1 << 30
	headRows             = kernels.LogProbsRows // rows of prompt log-probs computed at a time
	maxSampleRows        = 64                   // rows whose logits are held at a time
)

// withDefaults fills what was left zero, from the configuration alone.
func (o Options) withDefaults(c *model.Config) Options {
	if o.MaxBatchedTokens == 0 {
		o.MaxBatchedTokens = max(defaultBatchedTokens, o.MaxSeqs)
	}
	if o.MaxSeqs == 0 {
		o.MaxSeqs = min(defaultSeqs, o.MaxBatchedTokens)
	}
	if o.MaxModelLen == 0 {
		o.MaxModelLen = min(c.Context, 8192)
	}
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.Pages == 0 {
		full, size := int64(paged.PagesFor(o.MaxModelLen)), model.PageBytes(c)
		if o.MemoryBytes > 0 {
			o.Pages = int(min(o.MemoryBytes/size, math.MaxInt32/paged.PageSize))
		} else {
			o.Pages = int(min(max(defaultPageBytes/size, full), full*int64(o.MaxSeqs)))
		}
	}
	return o
}

func (o Options) check(c *model.Config) error {
	switch {
	case o.MaxBatchedTokens < 1 || o.MaxBatchedTokens > 1<<20:
		return fmt.Errorf("infer: max batched tokens is %d, want 1 to %d", o.MaxBatchedTokens, 1<<20)
	case o.MaxSeqs < 1 || o.MaxSeqs > o.MaxBatchedTokens:
		return fmt.Errorf("infer: max seqs is %d, want 1 to the %d tokens of a step: each sequence needs one", o.MaxSeqs, o.MaxBatchedTokens)
	case o.MaxModelLen < 2 || o.MaxModelLen > c.Context:
		return fmt.Errorf("infer: max model length is %d, want 2 to the %d positions that the model was made for", o.MaxModelLen, c.Context)
	case o.Pages < 1 || o.Pages > math.MaxInt32/paged.PageSize:
		return fmt.Errorf("infer: %d pages of %d bytes, want at least 1; give the cache more memory", o.Pages, model.PageBytes(c))
	case o.MaxWaiting < 0 || o.RankCols < 0 || o.Threads < 1:
		return fmt.Errorf("infer: max waiting %d, rank columns %d, threads %d: negative", o.MaxWaiting, o.RankCols, o.Threads)
	}
	return nil
}

func (o Options) acts() model.ActsSize {
	return model.ActsSize{Rows: o.MaxBatchedTokens, RankCols: o.RankCols, Keep: model.KeepNone}
}

func (o Options) head() model.HeadSize {
	n := min(headRows, o.MaxBatchedTokens)
	return model.HeadSize{Rows: n, Pairs: n, Threads: o.Threads}
}

// PlanBytes is what New will take from the arena for requests with adapters up to rankCols wide (or
// Options.RankCols, if that is more).
func PlanBytes(c *model.Config, opt Options, rankCols int) int64 {
	opt.RankCols = max(opt.RankCols, rankCols)
	opt = opt.withDefaults(c)
	var s sampler
	cut := weights.NewCarver(nil)
	s.layout(cut, c, opt)
	return int64(opt.Pages)*model.PageBytes(c) + model.ActsBytes(c, opt.acts()) + model.HeadBytes(c, opt.head()) + cut.Bytes()
}
