package cpu

import (
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
)

// pageOrder lists, for each distinct page that a batch reads, the ranges of rows that read it, in
// ascending order.
type pageOrder struct {
	pages  []pageVisits
	visits []pageVisit // visits[0] is no visit
	slots  []int32     // by page id: 1 + its place in pages, 0 if the batch does not read it
}

type pageVisits struct{ id, first, last int32 }

type pageVisit struct {
	rows rowRange // of one sequence
	page int32    // logical number
	next int32
}

// build reads the batch.
func (o *pageOrder) build(j *attentionView) {
	for _, p := range o.pages {
		o.slots[p.id] = 0
	}
	if len(o.slots) < j.KV.K.Rows {
		o.slots = make([]int32, j.KV.K.Rows)
	}
	o.pages, o.visits = o.pages[:0], append(o.visits[:0], pageVisit{})
	all := rowRange{0, j.Q.Rows}
	for from := 0; from < all.to; {
		run := j.run(all, from)
		lo, hi := j.span(run)
		for p := lo; p < hi; p++ {
			o.visit(index(j.page(from, p), j.KV.K.Rows, "page"), pageVisit{rows: run, page: int32(p)})
		}
		from = run.to
	}
}

func (o *pageOrder) visit(id int, v pageVisit) {
	n := int32(len(o.visits))
	o.visits = append(o.visits, v)
	if o.slots[id] == 0 {
		o.pages = append(o.pages, pageVisits{int32(id), n, n})
		o.slots[id] = int32(len(o.pages))
		return
	}
	p := &o.pages[o.slots[id]-1]
	o.visits[p.last].next = n
	p.last = n
}

// place is where a page is in pages.
func (o *pageOrder) place(id int32) (place int, ok bool) {
	return int(o.slots[id]) - 1, o.slots[id] != 0
}

// grads are the gradients of a page's keys [D, 16] and values [16, D] in scratch.
func (o *pageOrder) grads(scratch kernels.Tensor, kv kernels.KV, place, g int) (dk, dv unsafe.Pointer) {
	size := kv.Dim * vec.PageSize
	dk = add(unsafe.Pointer(&scratch.Mem.Host[scratch.Off]), (place*2*kv.Heads+g)*size)
	return dk, add(dk, kv.Heads*size)
}
