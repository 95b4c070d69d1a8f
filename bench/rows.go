package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Kinds of rows, by what is measured.
const (
	kindDecode  = "decode"  // one sequence, token after token
	kindPrefill = "prefill" // one prompt, one token
	kindGroup   = "group"   // siblings that share a prompt, token after token
	kindLoRA    = "lora"    // forward, backward and update of an adapter
	kindGRPO    = "grpo"    // sampling, rewards, training: a whole step
	kindContext = "context" // one sequence at growing lengths: a line for each
	kindStart   = "start"   // from the start of a process to the first byte of its answer
	kindSplit   = "split"   // an operation that keeps the row law against one that does not
)

// row is one line of the table: a model and the shape of the work.
type row struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Model   string `json:"model"`   // file name; "" where none is loaded
	Rows    int    `json:"rows"`    // sequences at once
	Groups  int    `json:"groups"`  // training: prompts that the rows share out among them
	Prompt  int    `json:"prompt"`  // tokens of a prompt
	New     int    `json:"new"`     // sampled, or scored, tokens of a sequence
	Against string `json:"against"` // who is measured beside us; "": nobody

	Precision string `json:"precision"` // the contract that ours computes under; "": it makes no difference

	Lengths []int  `json:"lengths,omitempty"` // kindContext: tokens of the sequence
	Split   string `json:"split,omitempty"`   // kindSplit: which
	Second  bool   `json:"second,omitempty"`  // kindGRPO: a forward for "old" log-probs after sampling
	Beside  bool   `json:"beside,omitempty"`  // measured alone and beside another busy process

	goals []goal
	like  string // the row whose peer does the same work: its runs serve this row too
	base  string // the row whose roof share this one should keep (growth)
	part  string // the row whose rate this one is compared with (part)
	quick bool   // part of --quick
}

const (
	smollm2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
	qwen    = "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"
	gemma   = "Gemma-3-270M.Q4_K_M.gguf"
)

// allRows is the comparison. Tokens are few in quick runs, enough for a steady figure in full ones.
func allRows(quick bool) []row {
	return slices.Concat(samplingRows(quick), trainingRows(), exactnessRows(), busyRows(), growthRows(), startRows())
}

func samplingRows(quick bool) []row {
	decode, group := 64, 16
	if quick {
		decode = 48
	}
	var out []row
	for _, m := range []struct {
		file, name     string
		decode, groups []goal
		prefill        []goal
	}{
		{smollm2, "SmolLM2-135M Q4_1", []goal{atLeast(ofRatio, 1.2)}, []goal{atLeast(ofRatio, 3)}, prefillGoals()},
		{qwen, "Qwen2.5-Coder-0.5B Q4_K_M", []goal{atLeast(ofRatio, 1.2), atLeast(ofRoof, 0.65)}, []goal{atLeast(ofRatio, 2)}, prefillGoals()},
		{gemma, "Gemma-3-270M Q4_K_M", nil, nil, nil},
	} {
		prefill := m.name + ", prefill 512"
		out = append(out,
			row{Name: m.name + ", decode 1 row", Kind: kindDecode, Model: m.file, Rows: 1, Prompt: 1, New: decode, Against: llamaName,
				goals: m.decode, quick: m.file != gemma},
			row{Name: prefill, Kind: kindPrefill, Model: m.file, Rows: 1, Prompt: 512, New: 1, Against: llamaName,
				goals: m.prefill, quick: m.file == smollm2})
		if m.groups == nil {
			continue
		}
		for _, n := range []int{8, 16, 32} {
			r := row{Name: fmt.Sprintf("%s, decode %d rows, shared prompt of 256", m.name, n), Kind: kindGroup, Model: m.file,
				Rows: n, Groups: 1, Prompt: 256, New: group, Against: llamaName, goals: m.groups, quick: m.file == smollm2 && n == 8}
			if n == 16 {
				r.part, r.goals = prefill, append(slices.Clone(r.goals), atLeast(ofPart, 0.7))
			}
			out = append(out, r)
		}
	}
	return out
}

func trainingRows() []row {
	const unshared = "SmolLM2-135M LoRA r16 step, 16 x 192 tokens"
	lora := row{Kind: kindLoRA, Model: smollm2, Rows: 16, Prompt: 64, New: 128, Against: peftName}
	alone, groups := lora, lora
	alone.Name, alone.Groups, alone.goals = unshared, 16, []goal{atLeast(ofRatio, 2), atMost(ofMemory, 0.2)}
	groups.Name, groups.Groups, groups.goals = "SmolLM2-135M LoRA r16 step, 2 prompts x 8 samples", 2, []goal{atLeast(ofRatio, 3), atMost(ofMemory, 0.2)}
	groups.like = unshared // PEFT knows no shared prompt: both batches are the same work to it
	return []row{alone, groups,
		{Name: "SmolLM2-135M GRPO step, 4 prompts x 8 samples x 64 tokens", Kind: kindGRPO, Model: smollm2, Rows: 32, Groups: 4, Prompt: 64, New: 64,
			Against: trlName, goals: []goal{atLeast(ofRatio, 5), atMost(ofMemory, 0.15)}}}
}

// exactnessRows are ours against ours: docs/bench.md says what each inexact variant gives up.
func exactnessRows() []row {
	cheap := []goal{atMost(ofCost, 0.1)}
	return []row{
		{Name: "exactness: attention of 1 row over 512 positions", Kind: kindSplit, Split: splitPositions, Rows: 1, Prompt: 512, Against: inexactName, goals: cheap},
		{Name: "exactness: attention of 1 row over 4096 positions", Kind: kindSplit, Split: splitPositions, Rows: 1, Prompt: 4096, Against: inexactName, goals: cheap},
		{Name: "exactness: products of a layer, 1 row", Kind: kindSplit, Split: splitChannels, Rows: 1, Against: inexactName, goals: cheap},
		{Name: "exactness: products of a layer, 8 rows", Kind: kindSplit, Split: splitChannels, Rows: 8, Against: inexactName, goals: cheap},
		{Name: stepName, Kind: kindGRPO, Model: smollm2, Rows: 8, Groups: 1, Prompt: 64, New: 64,
			Against: secondName, goals: cheap},
	}
}

// Names of lines that others refer to.
const (
	stepName    = "exactness: GRPO step, 1 prompt x 8 samples x 64 tokens"
	mixName     = "exactness: the same step, sampler and trainer apart"
	contextName = "growth: SmolLM2-135M, decode 1 row at 1K to 8K tokens"
)

// busyRows are measured alone and beside a process that never rests, on the same cores.
func busyRows() []row {
	kept := []goal{atLeast(ofKept, 0.6)}
	return []row{
		{Name: "beside a busy process: SmolLM2-135M, decode 1 row", Kind: kindDecode, Model: smollm2, Rows: 1, Prompt: 1, New: 32, Against: llamaName, Beside: true, goals: kept},
		{Name: "beside a busy process: SmolLM2-135M, prefill 128", Kind: kindPrefill, Model: smollm2, Rows: 1, Prompt: 128, New: 1, Against: llamaName, Beside: true, goals: kept},
		{Name: "beside a busy process: SmolLM2-135M LoRA r16 step, 8 x 64 tokens", Kind: kindLoRA, Model: smollm2, Rows: 8, Groups: 1, Prompt: 32, New: 32, Beside: true, goals: kept},
	}
}

func growthRows() []row {
	const few = "growth: GRPO step, 1 prompt x 4 samples x 32 tokens"
	step := row{Name: few, Kind: kindGRPO, Model: smollm2, Rows: 4, Groups: 1, Prompt: 64, New: 32}
	many := step
	many.Name, many.Rows, many.base, many.goals = "growth: GRPO step, 1 prompt x 32 samples x 32 tokens", 32, few, []goal{atMost(ofGrowth, 1)}
	return []row{
		{Name: contextName, Kind: kindContext, Model: smollm2, Rows: 1, New: 16, Lengths: []int{1024, 2048, 4096, 8192}, goals: []goal{atMost(ofGrowth, 1)}},
		step, many,
	}
}

func startRows() []row {
	return []row{{Name: "start: rltrain chat on Qwen2.5-Coder-0.5B, first byte of the answer", Kind: kindStart, Model: qwen, Rows: 1, New: 1,
		goals: []goal{atMost(ofSeconds, 1)}, quick: true}}
}

// choose gives the rows to run and the names of those that are not.
func choose(opt *options) (rows []row, left []string) {
	for _, r := range allRows(opt.quick) {
		switch {
		case !opt.only.MatchString(r.Name), opt.quick && !r.quick:
			left = append(left, r.Name)
		default:
			rows = append(rows, r)
		}
	}
	return rows, left
}

// needModels checks that the model files are there.
func needModels(folder string, rows []row) error {
	for _, r := range rows {
		if r.Model == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(folder, r.Model)); err != nil {
			return fmt.Errorf("%s is not in %s; scripts/fetch-models.sh brings it, --models names another folder", r.Model, folder)
		}
	}
	return nil
}

// tokens is what one run of the row is said to process: the numerator of its rate.
func (r *row) tokens() int {
	switch r.Kind {
	case kindPrefill:
		return r.Prompt
	case kindLoRA:
		return r.Rows * (r.Prompt + r.New)
	}
	return r.Rows * r.New
}
