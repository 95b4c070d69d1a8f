package launch

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Bytes is an amount of memory, written "4GiB", "500MB", "1.5g" or as a plain number of bytes.
type Bytes int64

// UnmarshalText reads an amount. Two-letter and one-letter units are powers of 1000 and 1024: MB is
// 10⁶, MiB and M are 2²⁰.
func (b *Bytes) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	at := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	number, unit := s, ""
	if at >= 0 {
		number, unit = s[:at], strings.ToLower(strings.TrimSpace(s[at:]))
	}
	factor, ok := map[string]float64{
		"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30,
		"t": 1 << 40, "tib": 1 << 40, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !ok || n*factor > 1<<60 {
		return fmt.Errorf("%q is not an amount of memory; write 4GiB, 500MB or a number of bytes", s)
	}
	*b = Bytes(n * factor)
	return nil
}

// String is the amount with three digits and a binary unit.
func (b Bytes) String() string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(b), 0
	for v >= 1000 && i+1 < len(units) {
		v, i = v/1024, i+1
	}
	switch {
	case i == 0:
		return fmt.Sprintf("%d B", int64(b))
	case v < 10:
		return fmt.Sprintf("%.2f %s", v, units[i])
	case v < 100:
		return fmt.Sprintf("%.1f %s", v, units[i])
	}
	return fmt.Sprintf("%.0f %s", v, units[i])
}

// Item is one line of a plan.
type Item struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	What  string `json:"what"`           // what it is for, with the numbers that make it this large
	Less  string `json:"less,omitempty"` // what to change to make it smaller
	// Process says that the bytes are the program's own, not the arena's.
	Process bool `json:"process,omitempty"`
}

// Plan is the memory that the process will take, before anything large is allocated: exactly, what
// comes from the arena; as a bound, the program itself.
type Plan struct {
	Items []Item
	// Before is the most memory that the process had resident before it planned, mostly while it read
	// data. It has been given back, so it is no part of what is still needed.
	Before int64
}

// Add appends a line of the arena; nothing is added for 0 bytes.
func (p *Plan) Add(name string, bytes int64, what, less string) {
	p.add(Item{Name: name, Bytes: bytes, What: what, Less: less})
}

func (p *Plan) add(i Item) {
	if i.Bytes > 0 {
		p.Items = append(p.Items, i)
	}
}

// Total is what the process will have had resident at most: what is still needed, or what was before.
func (p Plan) Total() int64 { return max(p.Needed(), p.Before) }

// Needed is the sum of the lines: what the process will have resident at most from now on.
func (p Plan) Needed() int64 {
	n := p.Arena()
	for _, i := range p.Items {
		if i.Process {
			n += i.Bytes
		}
	}
	return n
}

// Arena is the sum of what comes from the arena: its limit.
func (p Plan) Arena() int64 {
	var n int64
	for _, i := range p.Items {
		if !i.Process {
			n += i.Bytes
		}
	}
	return n
}

// Budget is how much memory a run may take and who says so.
type Budget struct {
	Bytes int64  // 0: nobody knows
	From  string // "--memory-limit" or "available memory"
}

// BudgetOf is the limit that was given, or else what the machine has left.
func BudgetOf(limit Bytes) Budget {
	if limit > 0 {
		return Budget{int64(limit), "--memory-limit"}
	}
	if n, ok := Available(); ok {
		return Budget{n, "available memory"}
	}
	return Budget{}
}

// Write prints the table.
func (p Plan) Write(w io.Writer, b Budget) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, i := range p.Items {
		fmt.Fprintf(t, "%s\t%s\t  %s\n", i.Name, Bytes(i.Bytes), i.What)
	}
	note := ""
	if b.Bytes > 0 {
		note = fmt.Sprintf("of %s (%s)", Bytes(b.Bytes), b.From)
	}
	if p.Before > p.Needed() {
		note = strings.TrimSpace(fmt.Sprintf("%s; reading the data took %s", note, Bytes(p.Before)))
	}
	fmt.Fprintf(t, "planned\t%s\t  %s\n", Bytes(p.Needed()), strings.TrimPrefix(note, "; "))
	return t.Flush()
}

// Fit refuses a plan that is larger than the budget and says what to change.
func (p Plan) Fit(b Budget) error {
	if b.Bytes == 0 || p.Needed() <= b.Bytes {
		return nil
	}
	items := append([]Item(nil), p.Items...)
	sort.SliceStable(items, func(i, j int) bool { return items[i].Bytes > items[j].Bytes })
	var change []string
	for _, i := range items {
		if i.Less != "" && len(change) < 3 {
			change = append(change, fmt.Sprintf("%s takes %s: %s", i.Name, Bytes(i.Bytes), i.Less))
		}
	}
	msg := fmt.Sprintf("this needs %s but %s is %s", Bytes(p.Needed()), b.From, Bytes(b.Bytes))
	if len(change) > 0 {
		msg += "; " + strings.Join(change, "; ")
	}
	return errors.New(msg)
}
