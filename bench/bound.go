package main

import (
	"graft/kernels/quant"
	"graft/model"
)

// extent is the size of a model's matrices.
type extent struct {
	bodyBytes, headBytes int64 // as stored in the file
	body, head           int64 // weights

	cacheBytes int64 // keys and values of one position, all layers
	attention  int64 // products of one query row with one position, all layers: scores and values
}

// extentOf reads it from the file's description. A tied head counts as the head.
func extentOf(path string) (extent, error) {
	f, err := model.Open(path, model.Options{})
	if err != nil {
		return extent{}, err
	}
	defer f.Close()
	c := &f.Config
	e := extent{
		cacheBytes: 2 * 4 * int64(c.NumLayers) * int64(c.KVDim()),
		attention:  2 * int64(c.NumLayers) * int64(c.QDim()),
	}
	for _, name := range f.Source.Names() {
		q, rows, cols, ok, err := f.Source.Shape(name)
		if err != nil {
			return extent{}, err
		}
		if !ok || rows < 2 {
			continue
		}
		n := int64(rows) * int64(cols)
		bytes := bytesOf(q, rows, cols)
		switch name {
		case "token_embd.weight":
			if f.Config.TiedHead {
				e.head, e.headBytes = n, bytes
			}
		case "output.weight":
			e.head, e.headBytes = n, bytes
		default:
			e.body, e.bodyBytes = e.body+n, e.bodyBytes+bytes
		}
	}
	return e, nil
}

func bytesOf(q quant.Format, rows, cols int) int64 { return int64(rows) * int64(q.Bytes(cols)) }

// bound is the least time that the row's work takes at the roof: every pass over the weights reads
// them once or computes with them at peak, whichever takes longer. Attention, norms, sampling and
// the adapter are left out, so the share of the roof is never flattered; only at growing lengths
// keys and values count, because they are what grows. Work that two sequences share is counted once
// only where the row says that they share it.
func (r *row) bound(e extent, roof Roof) float64 {
	pass := func(rows int, scored int, backward bool) float64 {
		flops := 2 * (float64(e.body)*float64(rows) + float64(e.head)*float64(scored))
		bytes := float64(e.bodyBytes + e.headBytes)
		if backward {
			flops *= 2
			bytes *= 2
		}
		return max(flops/(roof.GFLOPS*1e9), bytes/(roof.GBs*1e9))
	}
	train := func() float64 {
		return pass(r.Groups*r.Prompt+r.Rows*(r.New-1), r.Rows*r.New, true)
	}
	switch r.Kind {
	case kindPrefill:
		return pass(r.Prompt, 1, false)
	case kindLoRA:
		return train()
	case kindGRPO:
		return pass(r.Groups*r.Prompt, r.Groups, false) + float64(r.New-1)*pass(r.Rows, r.Rows, false) + train()
	}
	return float64(r.New) * pass(r.Rows, r.Rows, false)
}

// lengthBound is bound for one token of a sequence of a given length: all weights, keys and values
// are read once, or their products computed at peak.
func lengthBound(e extent, roof Roof, length int) float64 {
	bytes := e.bodyBytes + e.headBytes + int64(length)*e.cacheBytes
	flops := 2 * (e.body + e.head + int64(length)*e.attention)
	return max(float64(flops)/(roof.GFLOPS*1e9), float64(bytes)/(roof.GBs*1e9))
}
