// Package weights owns the bytes of a run: the arena with its named spans (base weights, adapters,
// gradients, moments, pages, scratch), the linears and adapters that view them, and the memory
// plan. It knows formats and shapes; it may not know what a layer computes, a schedule or a loss.
//
// Base weights exist once. Training writes adapter (or base) parameters in place and counts
// Version up; whoever sampled under an older version can tell by the number.
package weights

import (
	"fmt"
	"sort"
	"sync"

	"graft/kernels"
	"graft/kernels/quant"
)

// Span is a named piece of the arena.
type Span struct {
	Name  string
	Bytes int64
}

// Arena hands out memory under a limit that the plan set before anything was allocated.
type Arena struct {
	backend kernels.Backend

	mu    sync.Mutex
	limit int64 // 0: none
	used  int64
	peak  int64
	spans map[string]int64
	held  map[*kernels.Memory]string
}

// NewArena makes an arena on a backend. Allocations beyond limit bytes fail; 0 means no limit.
func NewArena(b kernels.Backend, limit int64) *Arena {
	return &Arena{backend: b, limit: limit, spans: map[string]int64{}, held: map[*kernels.Memory]string{}}
}

// Backend is where the arena's bytes live.
func (a *Arena) Backend() kernels.Backend { return a.backend }

// Alloc gets zeroed bytes under a name; the same name may be used several times and adds up.
func (a *Arena) Alloc(name string, bytes int64) (*kernels.Memory, error) {
	if bytes < 0 {
		panic(fmt.Sprintf("weights: Alloc of %d bytes for %s", bytes, name))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limit > 0 && a.used+bytes > a.limit {
		return nil, fmt.Errorf("weights: %s needs %d bytes, but %d of the planned %d are in use; lower the batch or the context, or raise --memory-limit",
			name, bytes, a.used, a.limit)
	}
	m, err := a.backend.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %d bytes: %w", name, bytes, err)
	}
	a.used += bytes
	a.peak = max(a.peak, a.used)
	a.spans[name] += bytes
	a.held[m] = name
	return m, nil
}

// Tensor allocates a dense tensor.
func (a *Arena) Tensor(name string, d kernels.DType, rows, cols int) (kernels.Tensor, error) {
	m, err := a.Alloc(name, int64(rows)*int64(cols)*d.Size())
	if err != nil {
		return kernels.Tensor{}, err
	}
	return kernels.Tensor{Mem: m, DType: d, Rows: rows, Cols: cols, Stride: cols}, nil
}

// Weight allocates a packed weight; its content is zero until packed.
func (a *Arena) Weight(name string, f quant.Format, out, in int) (kernels.Weight, error) {
	n := a.backend.PackedBytes(f, out, in)
	m, err := a.Alloc(name, n)
	if err != nil {
		return kernels.Weight{}, err
	}
	return kernels.Weight{Mem: m, Bytes: n, Format: f, Out: out, In: in}, nil
}

// Free returns one allocation.
func (a *Arena) Free(m *kernels.Memory) {
	if m == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	name, ok := a.held[m]
	if !ok {
		panic("weights: Free of memory that the arena does not hold")
	}
	delete(a.held, m)
	a.used -= m.Bytes
	if a.spans[name] -= m.Bytes; a.spans[name] == 0 {
		delete(a.spans, name)
	}
	a.backend.Free(m)
}

// Close returns everything.
func (a *Arena) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for m := range a.held {
		a.backend.Free(m)
	}
	clear(a.held)
	clear(a.spans)
	a.used = 0
}

// Used is the number of bytes in use now, Peak the most there ever were.
func (a *Arena) Used() int64 { a.mu.Lock(); defer a.mu.Unlock(); return a.used }

// Peak is the most bytes that were in use at once.
func (a *Arena) Peak() int64 { a.mu.Lock(); defer a.mu.Unlock(); return a.peak }

// Spans lists the named pieces by name.
func (a *Arena) Spans() []Span {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]Span, 0, len(a.spans))
	for name, bytes := range a.spans {
		out = append(out, Span{name, bytes})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Carver cuts many tensors out of one allocation whose size a dry run of the same code found: call
// the layout function once with a counting Carver, allocate Bytes(), and call it again.
type Carver struct {
	mem *kernels.Memory // nil while counting
	off int64
}

// NewCarver cuts from m; with nil it only counts.
func NewCarver(m *kernels.Memory) *Carver { return &Carver{mem: m} }

// Bytes is what has been cut so far.
func (c *Carver) Bytes() int64 { return c.off }

// Tensor cuts one contiguous tensor, aligned to 64 bytes.
func (c *Carver) Tensor(d kernels.DType, rows, cols int) kernels.Tensor {
	t := kernels.Tensor{Mem: c.mem, Off: c.off, DType: d, Rows: rows, Cols: cols, Stride: cols}
	c.off += (int64(rows)*int64(cols)*d.Size() + 63) &^ 63
	return t
}

// Rows cuts a float32 tensor whose rows are computed on side by side. Rows of a multiple of 1 KiB would
// fall on the same few sets of a processor's first-level cache and push each other out: products over
// them ran at a third to two thirds of their speed. Such rows are cut 64 bytes longer.
func (c *Carver) Rows(rows, cols int) kernels.Tensor {
	stride := cols
	if rows > 1 && cols%256 == 0 {
		stride += 16
	}
	t := c.Tensor(kernels.F32, rows, stride)
	t.Cols = cols
	return t
}

// Weight cuts one packed F32 weight.
func (c *Carver) Weight(b kernels.Backend, out, in int) kernels.Weight {
	n := b.PackedBytes(quant.F32, out, in)
	w := kernels.Weight{Mem: c.mem, Off: c.off, Bytes: n, Format: quant.F32, Out: out, In: in}
	c.off += (n + 63) &^ 63
	return w
}
