package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// exportGGUF keeps the tokenizer keys of a GGUF file.
func exportGGUF(kv map[string]any) map[string]any {
	kept := map[string]any{}
	for key, value := range kv {
		if strings.HasPrefix(key, "tokenizer.") {
			kept[key] = value
		}
	}
	return kept
}

// exportJSON returns the GGUF keys of a tokenizer.json, or nil where they would give other ids.
func exportJSON(t *Tokenizer, doc *document) map[string]any {
	m, ok := t.model.(*bpe)
	if !ok || t.normalized != nil {
		return nil
	}
	for _, a := range doc.added {
		if a.SingleWord || a.LStrip || a.RStrip {
			return nil
		}
	}
	var kv map[string]any
	if m.bytes {
		kv = t.exportByteBPE(m, doc)
	} else {
		kv = t.exportSPM(m, doc)
	}
	if kv == nil {
		return nil
	}
	bos, hasBOS := t.BOS()
	eos, hasEOS := t.EOS()
	switch {
	case len(t.before) > 1, len(t.before) == 1 && !(hasBOS && t.before[0] == bos):
		return nil
	case len(t.after) > 1, len(t.after) == 1 && !(hasEOS && t.after[0] == eos):
		return nil
	}
	kv[ggmlPrefix+"add_bos_token"] = len(t.before) == 1
	kv[ggmlPrefix+"add_eos_token"] = len(t.after) == 1
	for role, key := range map[string]string{roleBOS: "bos", roleEOS: "eos", rolePAD: "padding", roleUNK: "unknown"} {
		if id, ok := t.special[role]; ok {
			kv[ggmlPrefix+key+"_token_id"] = uint32(id)
		}
	}
	maps.Copy(kv, t.exportTokens())
	if t.template != "" {
		kv["tokenizer.chat_template"] = t.template
	}
	return kv
}

// exportTokens returns pieces and kinds; holes become unused tokens with names of their own.
func (t *Tokenizer) exportTokens() map[string]any {
	tokens, types := make([]string, t.VocabSize()), make([]int32, t.VocabSize())
	for id, piece := range t.vocab.pieces {
		tokens[id], types[id] = piece, int32(t.vocab.kinds[id])
		if t.vocab.kinds[id] == kindHole {
			tokens[id], types[id] = holeName(id), int32(kindUnused)
		}
	}
	return map[string]any{ggmlPrefix + "tokens": tokens, ggmlPrefix + "token_type": types}
}

// exportByteBPE writes merges and the name of the pre-tokenizer.
func (t *Tokenizer) exportByteBPE(m *bpe, doc *document) map[string]any {
	name, ok := preName(doc.pre, m.ignoreMerges)
	if !ok || doc.normalizer != nil && doc.normalizer.Type != "NFC" || m.unk != dead {
		return nil
	}
	return map[string]any{
		ggmlPrefix + "model":  "gpt2",
		ggmlPrefix + "pre":    name,
		ggmlPrefix + "merges": t.mergeLines(m.merges),
	}
}

// mergeLines returns the merges in order of rank, without ranks that are not used.
func (t *Tokenizer) mergeLines(table *mergeTable) []string {
	lines := make([]string, len(table.byRank()))
	for _, s := range table.slots {
		if s.key != 0 {
			left, right := int32(s.key>>32), int32(uint32(s.key)-1)
			lines[s.value>>32] = t.vocab.pieces[left] + " " + t.vocab.pieces[right]
		}
	}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

// preName returns the tokenizer.ggml.pre that cuts as the pre-tokenizer does.
func preName(c *component, ignoreMerges bool) (string, bool) {
	var patterns []string
	steps := []component{}
	if c != nil {
		steps = append(steps, *c)
	}
	if c != nil && c.Type == "Sequence" {
		steps = c.Pretokenizers
	}
	for i, step := range steps {
		switch {
		case step.Type == "Split" && step.Behavior == isolated && !step.Invert && step.Pattern != nil && step.Pattern.Regex != nil:
			patterns = append(patterns, strings.ReplaceAll(*step.Pattern.Regex, deepseekEscaped, deepseekPattern))
		case step.Type == "Digits" && step.Individual:
			patterns = append(patterns, digitPattern)
		case step.Type == "ByteLevel" && i == len(steps)-1 && !isSet(step.AddPrefixSpace, true):
			if isSet(step.UseRegex, true) {
				patterns = append(patterns, gpt2Pattern)
			}
		default:
			return "", false
		}
	}
	joined := strings.Join(patterns, "\x00")
	for _, name := range []string{"gpt-2", "llama-bpe", "smaug-bpe", "qwen2", "qwen35", "smollm", "deepseek-v3", "falcon", "tekken", "gpt-4o"} {
		known, _ := prePatterns(name)
		rule, err := ggufPre(name)
		if err == nil && strings.Join(known, "\x00") == joined && rule.ignoreMerges == ignoreMerges {
			return name, true
		}
	}
	return "", false
}

// exportSPM writes BPE with byte fallback as SentencePiece scores.
func (t *Tokenizer) exportSPM(m *bpe, doc *document) map[string]any {
	space, ok := spmLayout(doc)
	if !ok || !m.fallback || m.ignoreMerges || m.unk == dead || m.prefix != "" || m.suffix != "" {
		return nil
	}
	scores, ok := m.asScores()
	if !ok {
		return nil
	}
	return map[string]any{
		ggmlPrefix + "model":            "llama",
		ggmlPrefix + "pre":              "default",
		ggmlPrefix + "scores":           scores,
		ggmlPrefix + "add_space_prefix": space,
	}
}

// asScores returns a score for every piece, [V], by which merging the highest-scored piece is merging by rank. Scores
// rank pieces, not pairs, so this holds only if every way to cut a piece in two is a merge, if the merges of a piece
// have neighbouring ranks, and if a piece of several merges does not overlap itself.
func (m *bpe) asScores() ([]float32, bool) {
	makes := m.merges.byRank()
	scores := make([]float32, len(m.vocab.pieces))
	merges := make([]int, len(m.vocab.pieces))
	for rank, id := range makes {
		if id == dead {
			continue
		}
		if merges[id] > 0 && makes[rank-1] != id {
			return nil, false
		}
		if merges[id]++; merges[id] == 1 {
			scores[id] = -float32(rank) - 1
		}
	}
	lowest := -float32(len(makes)) - 2
	for id, piece := range m.vocab.pieces {
		if !m.vocab.kinds[id].ordinary() {
			continue
		}
		if merges[id] == 0 {
			scores[id] = lowest
		}
		if merges[id] > 1 && overlapsItself(piece) {
			return nil, false
		}
		for at := range piece {
			left, okLeft := m.vocab.plain(piece[:at])
			right, okRight := m.vocab.plain(piece[at:])
			if _, _, ok := m.merges.get(left, right); at > 0 && okLeft && okRight && !ok {
				return nil, false
			}
		}
	}
	return scores, true
}

// overlapsItself reports whether a proper beginning of s is also its end.
func overlapsItself(s string) bool {
	for n := 1; n < len(s); n++ {
		if strings.HasPrefix(s, s[len(s)-n:]) {
			return true
		}
	}
	return false
}

// byRank returns the token that the merge of every rank makes, dead where a rank is not used.
func (m *mergeTable) byRank() []int32 {
	var makes []int32
	for _, s := range m.slots {
		if s.key == 0 {
			continue
		}
		rank := int(s.value >> 32)
		for len(makes) <= rank {
			makes = append(makes, dead)
		}
		makes[rank] = int32(uint32(s.value))
	}
	return makes
}

// spmLayout reports whether the pipeline is that of SentencePiece: spaces written as a visible character, and one
// perhaps put in front of every stretch of text.
func spmLayout(doc *document) (space, ok bool) {
	n := doc.normalizer
	escapes := func(c *component) bool {
		return c.Type == "Replace" && c.Content == spaceMark && c.Pattern != nil && c.Pattern.String != nil && *c.Pattern.String == " "
	}
	switch {
	case n == nil:
		return false, false
	case doc.pre != nil && !(doc.pre.Type == "Split" && doc.pre.Pattern != nil && doc.pre.Pattern.String != nil && *doc.pre.Pattern.String == " "):
		return false, false
	case escapes(n):
		return false, true
	case n.Type == "Sequence" && len(n.Normalizers) == 2:
		first := n.Normalizers[0]
		return true, first.Type == "Prepend" && first.Prepend == spaceMark && escapes(&n.Normalizers[1])
	}
	return false, false
}

// holeName names an id without a token as converters do.
func holeName(id int) string { return fmt.Sprintf("[PAD%d]", id) }
