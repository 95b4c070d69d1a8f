package model

import (
	"unsafe"

	"graft/kernels"
	"graft/weights"
)

// Batch is what one forward computes: rows of tokens, each at a position of a sequence whose keys
// and values lie in pages. Rows of one sequence must be adjacent and ascending; a row sees what
// its table holds at its own and earlier positions, so every such position must have been written
// before, by this batch's Writes or an earlier one's.
type Batch struct {
	Tokens    kernels.Tensor // I32 [1, N]
	Positions kernels.Tensor // I32 [1, N]
	Seq       kernels.Tensor // I32 [1, N]: row → table
	Tables    kernels.Tensor // I32 [S, pages]
	Rows      kernels.Tensor // I32 [1, W]: (row, slot) pairs to write; the tail of a shared prompt
	Slots     kernels.Tensor // I32 [1, W]: is written once for each sibling
	Adapter   *weights.Adapter
}

// N is the number of rows.
func (b *Batch) N() int { return b.Tokens.Cols }

// BatchBuffer is the reusable integer storage behind batches; it grows by doubling and otherwise
// allocates nothing.
type BatchBuffer struct {
	tokens, positions, seq []int32
	tables                 []int32
	rows, slots            []int32
	width                  int // pages in a table row
	numSeqs                int
	mem                    [6]kernels.Tensor
}

// Reset empties the buffer for sequences of up to tablePages pages.
func (f *BatchBuffer) Reset(tablePages int) {
	f.tokens, f.positions, f.seq = f.tokens[:0], f.positions[:0], f.seq[:0]
	f.tables, f.rows, f.slots = f.tables[:0], f.rows[:0], f.slots[:0]
	f.width = max(1, tablePages)
	f.numSeqs = 0
}

// Sequence adds a table and returns its number.
func (f *BatchBuffer) Sequence(pages []int32) int32 {
	if len(pages) > f.width {
		panic("model: a block table is longer than Reset said")
	}
	f.tables = append(f.tables, pages...)
	for i := len(pages); i < f.width; i++ {
		f.tables = append(f.tables, 0)
	}
	f.numSeqs++
	return int32(f.numSeqs - 1)
}

// Row adds a token of sequence seq at a position, writes its key and value to the sequence's own
// slot, and returns the row's number.
func (f *BatchBuffer) Row(token, position, seq int32) int32 {
	row := int32(len(f.tokens))
	f.tokens = append(f.tokens, token)
	f.positions = append(f.positions, position)
	f.seq = append(f.seq, seq)
	f.Write(row, position, seq)
	return row
}

// Write stores row's key and value also at a position of another sequence: the tail of a prompt
// that siblings share, where the last page is not full.
func (f *BatchBuffer) Write(row, position, seq int32) {
	page := f.tables[int(seq)*f.width+int(position)/kernels.PageSize]
	f.rows = append(f.rows, row)
	f.slots = append(f.slots, page*kernels.PageSize+position%kernels.PageSize)
}

// N is the number of rows so far.
func (f *BatchBuffer) N() int { return len(f.tokens) }

// Batch uploads what was added. The result is valid until the next Reset.
func (f *BatchBuffer) Batch(b kernels.Backend, ad *weights.Adapter) (Batch, error) {
	var t [6]kernels.Tensor
	for i, src := range [...][]int32{f.tokens, f.positions, f.seq, f.tables, f.rows, f.slots} {
		var err error
		if t[i], err = f.upload(b, i, src); err != nil {
			return Batch{}, err
		}
	}
	tables := t[3].Reshape(f.numSeqs, len(f.tables)/max(1, f.numSeqs))
	return Batch{Tokens: t[0], Positions: t[1], Seq: t[2], Tables: tables, Rows: t[4], Slots: t[5], Adapter: ad}, nil
}

func (f *BatchBuffer) upload(b kernels.Backend, i int, src []int32) (kernels.Tensor, error) {
	if f.mem[i].Cols < len(src) {
		if f.mem[i].Present() {
			b.Free(f.mem[i].Mem)
			f.mem[i] = kernels.Tensor{}
		}
		n := max(256, 2*len(src))
		m, err := b.Alloc(int64(n) * 4)
		if err != nil {
			return kernels.Tensor{}, err
		}
		f.mem[i] = kernels.Tensor{Mem: m, DType: kernels.I32, Rows: 1, Cols: n, Stride: n}
	}
	t := f.mem[i].Columns(0, len(src))
	t.Stride = t.Cols
	if len(src) > 0 {
		b.Upload(t, bytesOf(src))
	}
	return t, nil
}

// Free returns the buffer's memory.
func (f *BatchBuffer) Free(b kernels.Backend) {
	for i := range f.mem {
		if f.mem[i].Present() {
			b.Free(f.mem[i].Mem)
			f.mem[i] = kernels.Tensor{}
		}
	}
}

func bytesOf[T int32 | float32](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x))
}
