package kernelstest

import (
	"math/rand/v2"

	"graft/kernels"
)

// Group is sequences that share a prompt: the prompt's rows are computed once. A lone sequence of n
// tokens is Group{Prompt: n, Completions: []int{0}}.
type Group struct {
	Prompt      int   // tokens
	Completions []int // tokens of each sequence after the prompt
}

// Batch is the integers of a paged batch: every token of every sequence is a row, prompts first in
// their group, positions ascending. Sequences of a group share the full pages of the prompt; of a
// last page that is not full each has its own copy, to which the prompt's rows are written as well.
type Batch struct {
	Seq, Positions []int32 // of each row [N]
	Rows, Slots    []int32 // pairs for WriteKV [W]
	Tables         []int32 // [Seqs, Width], unused entries 0
	Seqs, Width    int
	Pages          int       // ids are below it; a few are unused
	SeqRows        [][]int32 // the rows of each sequence, by position: prompt rows are in several
}

// NewBatch lays out groups over pages in random order.
func NewBatch(r *rand.Rand, groups []Group) *Batch {
	b := &Batch{Width: 1}
	need := 3 // unused pages
	for _, g := range groups {
		for _, c := range g.Completions {
			n := pageCount(g.Prompt + c)
			b.Seqs, b.Width, need = b.Seqs+1, max(b.Width, n+1), need+n
		}
	}
	b.Pages = need
	b.Tables = make([]int32, b.Seqs*b.Width)
	free := r.Perm(need)
	take := func() int32 {
		id := free[0]
		free = free[1:]
		return int32(id)
	}
	seq := 0
	for _, g := range groups {
		b.addGroup(g, seq, take)
		seq += len(g.Completions)
	}
	return b
}

func pageCount(tokens int) int { return (tokens + kernels.PageSize - 1) / kernels.PageSize }

// N is the number of rows.
func (b *Batch) N() int { return len(b.Seq) }

// Slot is where a position of a sequence lies.
func (b *Batch) Slot(seq, position int) int32 {
	return b.Tables[seq*b.Width+position/kernels.PageSize]*kernels.PageSize + int32(position%kernels.PageSize)
}

func (b *Batch) addGroup(g Group, first int, take func() int32) {
	shared := g.Prompt / kernels.PageSize
	for i, c := range g.Completions {
		table := b.Tables[(first+i)*b.Width:]
		for p := range pageCount(g.Prompt + c) {
			if p < shared && i > 0 {
				table[p] = b.Tables[first*b.Width+p]
			} else {
				table[p] = take()
			}
		}
	}
	prompt := make([]int32, g.Prompt)
	for p := range prompt {
		prompt[p] = b.addRow(first, p)
		if p/kernels.PageSize < shared {
			continue
		}
		for i := 1; i < len(g.Completions); i++ {
			b.Rows = append(b.Rows, prompt[p])
			b.Slots = append(b.Slots, b.Slot(first+i, p))
		}
	}
	for i, c := range g.Completions {
		rows := append([]int32(nil), prompt...)
		for p := g.Prompt; p < g.Prompt+c; p++ {
			rows = append(rows, b.addRow(first+i, p))
		}
		b.SeqRows = append(b.SeqRows, rows)
	}
}

func (b *Batch) addRow(seq, position int) int32 {
	row := int32(len(b.Seq))
	b.Seq = append(b.Seq, int32(seq))
	b.Positions = append(b.Positions, int32(position))
	b.Rows = append(b.Rows, row)
	b.Slots = append(b.Slots, b.Slot(seq, position))
	return row
}

// pairs are the WriteKV pairs of the rows of a part, rows counted from its first.
func (b *Batch) pairs(p part) (rows, slots []int32) {
	for i, row := range b.Rows {
		if int(row) >= p.from && int(row) < p.to {
			rows = append(rows, row-int32(p.from))
			slots = append(slots, b.Slots[i])
		}
	}
	return rows, slots
}
