package paged

// Sequence is one row of text being computed: a prompt that grows by what is sampled. Its fields up
// to Owner are the caller's; the Scheduler changes the rest.
type Sequence struct {
	Tokens    []int32 // prompt, then what was generated: the truth
	PromptLen int
	Space     Space
	Priority  int    // lower runs first
	NoCache   bool   // read no cached prefix: every row's hidden state is wanted
	Group     *Group // siblings with the same prompt; nil: none
	Owner     any    // whose it is; never looked at

	ID       uint64  // order of arrival
	Table    []int32 // page of positions [16i, 16i+16)
	Computed int     // positions whose keys and values are in pages
	Hit      int     // prompt tokens found in the cache, or at a sibling's, when it first began

	state   state
	planned bool
	began   bool
	chained int    // pages of chain
	chain   digest // of the first chained pages
}

type state uint8

const (
	idle state = iota
	waiting
	running
	finished
)

// Group links the siblings of one prompt. Whoever of them is computed first lets the others, if they
// still wait, begin with its pages.
type Group struct{ Members []*Sequence }

// before is the order of service.
func (s *Sequence) before(o *Sequence) bool {
	if s.Priority != o.Priority {
		return s.Priority < o.Priority
	}
	return s.ID < o.ID
}

// missing is the number of tokens to compute before the next one can be sampled.
func (s *Sequence) missing() int { return len(s.Tokens) - s.Computed }

// Running tells whether the sequence holds pages and is being computed.
func (s *Sequence) Running() bool { return s.state == running }

// inPrompt tells whether s is on its first way through the prompt, and will let siblings begin.
func (s *Sequence) inPrompt() bool {
	return s.state == running && len(s.Tokens) == s.PromptLen && s.Computed < s.PromptLen
}

// led tells whether a sibling computes the prompt that s needs.
func (s *Sequence) led() bool {
	if s.Group == nil || len(s.Tokens) > s.PromptLen {
		return false
	}
	for _, m := range s.Group.Members {
		if m != s && m.inPrompt() {
			return true
		}
	}
	return false
}
