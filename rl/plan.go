package rl

import (
	"fmt"
	"slices"

	"graft/kernels"
	"graft/model"
)

// span is a run of adjacent siblings in a batch.
type span struct{ from, to int }

// groups finds runs of rollouts that share their prompt token for token.
func groups(batch []Rollout) []span {
	var out []span
	for i := range batch {
		if n := len(out); n > 0 && siblings(&batch[out[n-1].from], &batch[i]) {
			out[n-1].to = i + 1
			continue
		}
		out = append(out, span{i, i + 1})
	}
	return out
}

func siblings(a, b *Rollout) bool {
	return a.Group == b.Group && a.PromptLen == b.PromptLen && slices.Equal(a.Tokens[:a.PromptLen], b.Tokens[:b.PromptLen])
}

// plan lays rollouts out as rows: a group's prompt once, then each completion without its last
// token, which predicts nothing. Completions read the prompt's full pages; the keys and values of
// its last, partial page are written into each sibling's own page as well.
type plan struct {
	scored model.Scored
	token  []int32 // pair → place in the flat per-token slices
}

func (p *plan) lay(buf *model.BatchBuffer, batch []Rollout, pages []int32, invT float32) error {
	p.scored.Rows, p.scored.InvT = p.scored.Rows[:0], p.scored.InvT[:0]
	p.scored.PairRows, p.scored.Targets, p.token = p.scored.PairRows[:0], p.scored.Targets[:0], p.token[:0]
	longest := 0
	for i := range batch {
		if err := batch[i].check(); err != nil {
			return err
		}
		longest = max(longest, len(batch[i].Tokens))
	}
	buf.Reset(pagesFor(longest))
	take := func(n int) []int32 {
		out := pages[:n]
		pages = pages[n:]
		return out
	}
	base := int32(0) // flat place of the group's first completion token
	for _, g := range groups(batch) {
		siblings := batch[g.from:g.to]
		if len(siblings) == 1 {
			r := &siblings[0]
			seq := buf.Sequence(take(pagesFor(len(r.Tokens))))
			last := p.prompt(buf, r, seq)
			p.pair(last, siblings, base, invT)
			p.completion(buf, r, seq, base, invT)
		} else {
			prompt := take(pagesFor(siblings[0].PromptLen))
			last := p.prompt(buf, &siblings[0], buf.Sequence(prompt))
			p.pair(last, siblings, base, invT)
			at := base
			for i := range siblings {
				p.sibling(buf, &siblings[i], prompt, last, take, at, invT)
				at += int32(siblings[i].Len())
			}
		}
		base += int32(Tokens(siblings))
	}
	if buf.N() == 0 {
		return fmt.Errorf("rl: a batch without tokens")
	}
	return nil
}

// prompt adds the prompt's rows and returns the last one.
func (p *plan) prompt(buf *model.BatchBuffer, r *Rollout, seq int32) int32 {
	var row int32
	for i, t := range r.Tokens[:r.PromptLen] {
		row = buf.Row(t, int32(i), seq)
	}
	return row
}

// sibling adds a completion whose prompt lies in shared pages; last is the prompt's last row.
func (p *plan) sibling(buf *model.BatchBuffer, r *Rollout, prompt []int32, last int32, take func(int) []int32, at int32, invT float32) {
	full := r.PromptLen / kernels.PageSize
	table := append(slices.Clone(prompt[:full]), take(pagesFor(len(r.Tokens))-full)...)
	seq := buf.Sequence(table)
	for pos := full * kernels.PageSize; pos < r.PromptLen; pos++ {
		buf.Write(last-int32(r.PromptLen-1-pos), int32(pos), seq)
	}
	p.completion(buf, r, seq, at, invT)
}

// completion adds the rows of all completion tokens but the last; each predicts the next one.
func (p *plan) completion(buf *model.BatchBuffer, r *Rollout, seq, at int32, invT float32) {
	c := r.Completion()
	for t := 0; t+1 < len(c); t++ {
		row := buf.Row(c[t], int32(r.PromptLen+t), seq)
		if r.Weight(t+1) != 0 {
			p.row(row, invT)
			p.target(c[t+1], at+int32(t+1))
		}
	}
}

// pair scores the prompt's last row for the first token of every sibling.
func (p *plan) pair(row int32, siblings []Rollout, at int32, invT float32) {
	added := false
	for i := range siblings {
		if r := &siblings[i]; r.Len() > 0 {
			if r.Weight(0) != 0 {
				if !added {
					p.row(row, invT)
					added = true
				}
				p.target(r.Completion()[0], at)
			}
			at += int32(r.Len())
		}
	}
}

func (p *plan) row(row int32, invT float32) {
	p.scored.Rows = append(p.scored.Rows, row)
	p.scored.InvT = append(p.scored.InvT, invT)
}

// target asks for a token at the row added last.
func (p *plan) target(token, place int32) {
	p.scored.PairRows = append(p.scored.PairRows, int32(len(p.scored.Rows)-1))
	p.scored.Targets = append(p.scored.Targets, token)
	p.token = append(p.token, place)
}
