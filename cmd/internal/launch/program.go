package launch

import (
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"

	"graft/model"
)

// What the program takes whatever it does, measured on linux/amd64 and rounded up (docs/memory.md).
const (
	// codeBytes is the pages of the executable and of the system's libraries that become resident,
	// Go's own tables, and stacks.
	codeBytes = 24 << 20
	// threadBytes is a computing thread's tiles and stack, and its part of a file while a model loads.
	threadBytes = 1 << 20
	// sampleBytes is a computing thread's scratch for an entry of the vocabulary: two float32, grown
	// by a quarter.
	sampleBytes = 10
	// garbagePercent is how much of Go's heap may be garbage, relative to what is alive.
	garbagePercent = 50
	// openingPercent is the same while a model is opened. What that allocates stays, so looking for
	// garbage while it grows is time lost before the first answer.
	openingPercent = 300
	// heapBytes is what any command keeps in Go's heap while it works.
	heapBytes = 4 << 20
)

// Working is what a command will keep in Go's heap at once, beyond what is there when it plans.
type Working struct {
	Bytes int64
	What  string // what it is, for the table
	Less  string // what makes it smaller
}

// CollectSeldom is how a program begins. CollectOften ends it, and so does Held.
func CollectSeldom() { collect(openingPercent) }

// CollectOften holds garbage in Go's heap to what the plan counts: from the plan on, and before that
// while data is read.
func CollectOften() { collect(garbagePercent) }

// collect sets how much garbage there may be. Whoever sets GOGC knows better.
func collect(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// Resident is the most memory that the process had resident. On a system that does not say, it is
// the arena's peak and what Go's runtime has now.
func Resident(arenaPeak int64) int64 {
	if n, ok := Peak(); ok {
		return n
	}
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return arenaPeak + int64(s[0].Value.Uint64()-s[1].Value.Uint64())
}

// Held is the bytes alive in Go's heap: tokenizer, dataset, rewards. Garbage goes back to the system,
// so that what is loaded next does not come on top of it, and is held to what the plan counts from
// now on.
func Held() int64 {
	debug.FreeOSMemory() // collects first
	CollectOften()
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(s[0].Value.Uint64())
}

// AddProgram plans what the process takes beside the arena: code, threads, and Go's heap with what
// it holds by now and what the command will add.
func (p *Plan) AddProgram(s *Source, threads int, held int64, w Working) {
	p.Before, _ = Peak()
	c := &s.Files.Config
	rounding := int64(len(s.Files.Source.Names())+64) * int64(os.Getpagesize()) // an allocation of the arena ends on a page
	code := codeBytes + rounding + int64(threads)*(threadBytes+sampleBytes*int64(c.Vocab))
	p.add(Item{Name: "program", Bytes: code, What: fmt.Sprintf("code, Go's runtime, %d threads", threads), Process: true})
	what := fmt.Sprintf("%s now", Bytes(held))
	if tok := s.Files.Tokenizer; tok != nil {
		what += fmt.Sprintf(" (tokenizer of %d, data)", tok.VocabSize())
	}
	if w.What != "" {
		what += ", " + w.What
	}
	heap := (held + heapBytes + w.Bytes) * (100 + garbagePercent) / 100
	p.add(Item{Name: "heap", Bytes: heap, What: what, Less: w.Less, Process: true})
}

// FullWorking is what saving a fully trained model takes: the largest matrix, a few times, as it is
// on its way from the arena to the file.
func FullWorking(f *model.Files) int64 {
	largest := 0
	for _, name := range f.Source.Names() {
		if _, rows, cols, ok, err := f.Source.Shape(name); err == nil && ok {
			largest = max(largest, rows*cols)
		}
	}
	return 4 * int64(largest) * fullCopies
}

// fullCopies is how often a matrix is in Go's heap while a fully trained model is written.
const fullCopies = 3
