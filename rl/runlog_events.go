package rl

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"time"
)

// events.log is a magic and then one record a step:
//
//	length of the payload, uint32 · CRC-32C of the payload, uint32 · payload
//
// all little endian. The payload holds integers as varints and every float as its bits, so that a
// replay can compare exactly.
const (
	eventsMagic = "GRAFTEV\x01"
	maxEvent    = 1 << 30
)

// EventStep is a step as the event log tells it.
type EventStep struct {
	StepLog
	Rewards []string // names of the reward functions
}

func appendEvent(dst []byte, s StepLog, rewards []string) ([]byte, error) {
	start := len(dst)
	e := eventWriter{append(dst, 0, 0, 0, 0, 0, 0, 0, 0)}
	e.uint(uint64(s.Step))
	e.uint(s.Seed)
	e.uint(s.Version)
	e.text(s.Hash)
	e.int(s.Time.UnixNano())
	e.uint(uint64(len(rewards)))
	for _, r := range rewards {
		e.text(r)
	}
	e.uint(uint64(len(s.Stats.Names)))
	for _, n := range s.Stats.Names {
		e.text(n)
		e.float(s.Stats.Values[n])
	}
	e.uint(uint64(len(s.Rollouts)))
	for i := range s.Rollouts {
		e.rollout(&s.Rollouts[i])
	}
	payload := e.b[start+8:]
	if len(payload) > maxEvent {
		return nil, fmt.Errorf("rl: step %d takes %d bytes in the event log, at most %d fit", s.Step, len(payload), maxEvent)
	}
	binary.LittleEndian.PutUint32(e.b[start:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(e.b[start+4:], crc32.Checksum(payload, castagnoli()))
	return e.b, nil
}

// castagnoli returns the shared table of CRC-32C, which the library makes once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

type eventWriter struct{ b []byte }

func (e *eventWriter) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *eventWriter) int(v int64)   { e.b = binary.AppendVarint(e.b, v) }
func (e *eventWriter) float(v float64) {
	e.b = binary.LittleEndian.AppendUint64(e.b, math.Float64bits(v))
}
func (e *eventWriter) text(s string) { e.uint(uint64(len(s))); e.b = append(e.b, s...) }

func (e *eventWriter) flag(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

// floats keeps nil and empty apart: nil means something else in a rollout.
func (e *eventWriter) floats(v []float32) {
	e.flag(v != nil)
	if v == nil {
		return
	}
	e.uint(uint64(len(v)))
	for _, x := range v {
		e.b = binary.LittleEndian.AppendUint32(e.b, math.Float32bits(x))
	}
}

func (e *eventWriter) rollout(r *Rollout) {
	e.int(int64(r.Row))
	e.int(int64(r.Group))
	e.int(int64(r.Sample))
	e.uint(r.Version)
	e.uint(uint64(r.PromptLen))
	e.flag(r.Truncated)
	e.flag(r.Scored)
	e.uint(uint64(len(r.Tokens)))
	for _, t := range r.Tokens {
		e.int(int64(t))
	}
	e.floats(r.LogP)
	e.floats(r.RefLogP)
	e.floats(r.Mask)
	e.uint(uint64(len(r.Rewards)))
	for _, v := range r.Rewards {
		e.float(v)
	}
	e.float(r.Reward)
	e.float(r.Advantage)
}

// errShort is a payload that ends early or says what cannot be.
var errShort = errors.New("the record's content does not fit its length")

// eventReader reads a payload; the first failure sticks and everything after is zero.
type eventReader struct {
	b   []byte
	err error
}

func (e *eventReader) uint() uint64 {
	v, n := binary.Uvarint(e.b)
	if n <= 0 {
		e.b, e.err = nil, errShort
		return 0
	}
	e.b = e.b[n:]
	return v
}

func (e *eventReader) int() int64 {
	v, n := binary.Varint(e.b)
	if n <= 0 {
		e.b, e.err = nil, errShort
		return 0
	}
	e.b = e.b[n:]
	return v
}

// count reads a number of items of at least size bytes each, which the rest must be able to hold.
func (e *eventReader) count(size int) int {
	n := e.uint()
	if n > uint64(len(e.b)/size) {
		e.b, e.err = nil, errShort
		return 0
	}
	return int(n)
}

func (e *eventReader) float() float64 {
	if len(e.b) < 8 {
		e.b, e.err = nil, errShort
		return 0
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(e.b))
	e.b = e.b[8:]
	return v
}

func (e *eventReader) text() string {
	n := e.count(1)
	s := string(e.b[:n])
	e.b = e.b[n:]
	return s
}

func (e *eventReader) flag() bool {
	if len(e.b) == 0 || e.b[0] > 1 {
		e.b, e.err = nil, errShort
		return false
	}
	v := e.b[0] == 1
	e.b = e.b[1:]
	return v
}

func (e *eventReader) floats() []float32 {
	if !e.flag() {
		return nil
	}
	v := make([]float32, e.count(4))
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(e.b[4*i:]))
	}
	e.b = e.b[4*len(v):]
	return v
}

func (e *eventReader) rollout() (r Rollout) {
	r.Row, r.Group, r.Sample = int(e.int()), int(e.int()), int(e.int())
	r.Version, r.PromptLen = e.uint(), int(e.uint())
	r.Truncated, r.Scored = e.flag(), e.flag()
	r.Tokens = make([]int32, e.count(1))
	for i := range r.Tokens {
		t := e.int()
		if t != int64(int32(t)) {
			e.b, e.err = nil, errShort
			return r
		}
		r.Tokens[i] = int32(t)
	}
	r.LogP, r.RefLogP, r.Mask = e.floats(), e.floats(), e.floats()
	if n := e.count(8); n > 0 {
		r.Rewards = make([]float64, n)
		for i := range r.Rewards {
			r.Rewards[i] = e.float()
		}
	}
	r.Reward, r.Advantage = e.float(), e.float()
	if e.err == nil && (r.PromptLen < 0 || r.PromptLen > len(r.Tokens)) {
		e.b, e.err = nil, errShort
	}
	return r
}

func parseEvent(payload []byte) (EventStep, error) {
	e := eventReader{b: payload}
	var s EventStep
	s.Step, s.Seed, s.Version, s.Hash = int(e.uint()), e.uint(), e.uint(), e.text()
	s.Time = time.Unix(0, e.int())
	for range e.count(1) {
		s.Rewards = append(s.Rewards, e.text())
	}
	for range e.count(9) {
		name := e.text()
		s.Stats.Set(name, e.float())
	}
	for range e.count(smallestRollout) {
		s.StepLog.Rollouts = append(s.StepLog.Rollouts, e.rollout())
		if e.err != nil {
			break
		}
	}
	if e.err == nil && len(e.b) > 0 {
		e.err = errShort
	}
	return s, e.err
}

// smallestRollout is the size of a rollout without tokens: five varints, two flags, a count, three
// flags, a count and two floats.
const smallestRollout = 5 + 2 + 1 + 3 + 1 + 16

// EventReader reads an event log step by step.
type EventReader struct {
	r      *bufio.Reader
	f      io.Closer
	size   int64
	offset int64
	torn   bool
}

// OpenEvents opens an event log.
func OpenEvents(path string) (*EventReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("rl: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rl: %w", err), f.Close())
	}
	e, err := newEventReader(f, info.Size())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	e.f = f
	return e, nil
}

func newEventReader(r io.Reader, size int64) (*EventReader, error) {
	e := &EventReader{r: bufio.NewReaderSize(r, 1<<20), size: size, offset: int64(len(eventsMagic))}
	head := make([]byte, len(eventsMagic))
	if _, err := io.ReadFull(e.r, head); err != nil || string(head) != eventsMagic {
		return nil, errors.New("rl: this is no event log")
	}
	return e, nil
}

// Next returns the next step, and io.EOF behind the last whole one. A step that was being written
// when the machine stopped is the end (see Torn); damage before that is an error.
func (e *EventReader) Next() (EventStep, error) {
	if e.torn || e.offset == e.size {
		return EventStep{}, io.EOF
	}
	left := e.size - e.offset - 8
	var head [8]byte
	if left < 0 {
		e.torn = true
		return EventStep{}, io.EOF
	}
	if _, err := io.ReadFull(e.r, head[:]); err != nil {
		return EventStep{}, fmt.Errorf("rl: event log: %w", err)
	}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	if n > left {
		e.torn = true
		return EventStep{}, io.EOF
	}
	if n > maxEvent {
		return EventStep{}, fmt.Errorf("rl: event log: a record of %d bytes at byte %d, at most %d are written", n, e.offset, maxEvent)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(e.r, payload); err != nil {
		return EventStep{}, fmt.Errorf("rl: event log: %w", err)
	}
	if crc32.Checksum(payload, castagnoli()) != binary.LittleEndian.Uint32(head[4:]) {
		if n == left { // the last record: its length reached the disk before its content
			e.torn = true
			return EventStep{}, io.EOF
		}
		return EventStep{}, fmt.Errorf("rl: event log: the record at byte %d is damaged", e.offset)
	}
	s, err := parseEvent(payload)
	if err != nil {
		return EventStep{}, fmt.Errorf("rl: event log: byte %d: %w", e.offset, err)
	}
	e.offset += 8 + n
	return s, nil
}

// Torn reports whether the log ended within a record.
func (e *EventReader) Torn() bool { return e.torn }

// Offset is where the next record begins: behind the last whole one at the end.
func (e *EventReader) Offset() int64 { return e.offset }

// Close closes the file.
func (e *EventReader) Close() error { return e.f.Close() }
