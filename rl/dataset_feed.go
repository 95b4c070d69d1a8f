package rl

import (
	"fmt"

	"graft/kernels/rng"
)

// Cursor is a place in the endless sequence of a dataset's epochs.
type Cursor struct {
	Epoch uint32 `json:"epoch"`
	Index int    `json:"index"` // items of this epoch already given
	Items int    `json:"items"` // of the dataset; another number cannot be resumed
	Seed  uint64 `json:"seed"`
}

// Feed gives the items of a dataset epoch after epoch. The order of an epoch is a function of seed
// and epoch alone, so a place is two numbers.
type Feed[T any] struct {
	items   []T
	cursor  Cursor
	shuffle bool
	order   []int // of the current epoch
}

// NewFeed makes a feed at its beginning. Without shuffle every epoch is in file order.
func NewFeed[T any](items []T, seed uint64, shuffle bool) (*Feed[T], error) {
	if len(items) == 0 {
		return nil, fmt.Errorf("rl: no rows to train on")
	}
	f := &Feed[T]{items: items, shuffle: shuffle, cursor: Cursor{Items: len(items), Seed: seed}}
	f.reorder()
	return f, nil
}

func (f *Feed[T]) reorder() {
	if f.shuffle {
		f.order = rng.New(f.cursor.Seed, "shuffle").Permutation(len(f.items), f.cursor.Epoch)
		return
	}
	if f.order == nil {
		f.order = make([]int, len(f.items))
		for i := range f.order {
			f.order[i] = i
		}
	}
}

// Len is the number of items of an epoch.
func (f *Feed[T]) Len() int { return len(f.items) }

// Next returns the next n items; a batch may span epochs.
func (f *Feed[T]) Next(n int) ([]T, error) {
	if n < 1 {
		return nil, fmt.Errorf("rl: a batch of %d items", n)
	}
	out := make([]T, 0, n)
	for len(out) < n {
		if f.cursor.Index == len(f.items) {
			f.cursor.Epoch++
			f.cursor.Index = 0
			f.reorder()
		}
		out = append(out, f.items[f.order[f.cursor.Index]])
		f.cursor.Index++
	}
	return out, nil
}

// Epochs is how far the feed is, in epochs.
func (f *Feed[T]) Epochs() float64 {
	return float64(f.cursor.Epoch) + float64(f.cursor.Index)/float64(len(f.items))
}

// Cursor returns the place of the next item.
func (f *Feed[T]) Cursor() Cursor { return f.cursor }

// Seek goes to a place that Cursor returned.
func (f *Feed[T]) Seek(c Cursor) error {
	switch {
	case c.Items != len(f.items):
		return fmt.Errorf("rl: the checkpoint was made with %d usable rows, the dataset has %d now; resume with the same dataset and limits", c.Items, len(f.items))
	case c.Index < 0 || c.Index > c.Items:
		return fmt.Errorf("rl: the checkpoint's place in the data, %d of %d, is damaged", c.Index, c.Items)
	case c.Seed != f.cursor.Seed:
		return fmt.Errorf("rl: the checkpoint was made with data seed %d, not %d", c.Seed, f.cursor.Seed)
	}
	f.cursor = c
	f.reorder()
	return nil
}
