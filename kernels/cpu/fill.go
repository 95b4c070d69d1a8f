package cpu

import (
	"sync"
	"unsafe"

	"graft/kernels"
	"graft/kernels/cpu/vec"
)

// Sizes of what a worker of Fill does at a time.
const (
	// fillSpan is how much packed memory a task writes: a huge page. When two workers touch a page for
	// the first time at once, both clear one, and one of them for nothing.
	fillSpan = 2 << 20
	// fillBytes is how many raw bytes are read before they are packed: they stay in the second-level
	// cache.
	fillBytes = 256 << 10
)

// fillJob reads and packs whole matrices.
type fillJob struct {
	weights []matrix
	parts   []fillPart
	buffer  int // bytes for the raw rows of the largest read
	read    func(i int, dst []byte, row int) error

	mu  sync.Mutex
	err error
}

// fillPart is panels first … end−1 of a matrix.
type fillPart struct{ matrix, first, end int }

// Fill stores all rows of the matrices ws. read is called for them, by several goroutines at once, and
// writes the raw rows of ws[i] from row on that fill dst. The first error of read ends Fill; then some
// rows are not stored.
func (b *Backend) Fill(ws []kernels.Weight, read func(i int, dst []byte, row int) error) error {
	j := &fillJob{read: read}
	work := int64(0)
	for i, w := range ws {
		j.add(i, matrixOf(w))
		work += w.Bytes
	}
	b.run(len(j.parts), work, j)
	return j.err
}

// add cuts a matrix into parts.
func (j *fillJob) add(i int, m matrix) {
	j.weights = append(j.weights, m)
	j.buffer = max(j.buffer, m.fillStep()*vec.Lanes*m.format.Bytes(m.in))
	for first, end := 0, 0; first < vec.Panels(m.out); first = end {
		for end = first + 1; end < vec.Panels(m.out) && m.span(end) == m.span(first); {
			end++
		}
		j.parts = append(j.parts, fillPart{i, first, end})
	}
}

// span tells in which huge page a panel begins.
func (m *matrix) span(panel int) uintptr { return uintptr(m.at(panel)) / fillSpan }

// fillStep is how many panels are read at a time.
func (m *matrix) fillStep() int { return max(1, fillBytes/(vec.Lanes*m.format.Bytes(m.in))) }

func (j *fillJob) do(w *worker, task int) {
	part := j.parts[task]
	m := &j.weights[part.matrix]
	size, step := m.format.Bytes(m.in), m.fillStep()
	buffer := unsafe.Slice((*byte)(w.big.bytes(j.buffer)), j.buffer)
	for panel := part.first; panel < part.end && !j.failed(); panel += step {
		row := panel * vec.Lanes
		rows := min(min(panel+step, part.end)*vec.Lanes, m.out) - row
		raw := buffer[:rows*size]
		if err := j.read(part.matrix, raw, row); err != nil {
			j.fail(err)
			return
		}
		panels(m, panel, rows, raw, false)
	}
}

func (j *fillJob) failed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err != nil
}

func (j *fillJob) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
}
