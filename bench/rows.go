package main

import (
	"fmt"
	"os"
	"path/filepath"

	"graft/kernels/quant"
	"graft/model"
)

// Kinds of rows, by what is measured.
const (
	kindDecode  = "decode"  // one sequence, token after token
	kindPrefill = "prefill" // one prompt, one token
	kindGroup   = "group"   // siblings that share a prompt, token after token
	kindLoRA    = "lora"    // forward, backward and update of an adapter
	kindGRPO    = "grpo"    // sampling, rewards, training: a whole step
)

// row is one line of the table: a model and the shape of the work.
type row struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Model   string `json:"model"`   // file name
	Rows    int    `json:"rows"`    // sequences at once
	Groups  int    `json:"groups"`  // training: prompts that the rows share out among them
	Prompt  int    `json:"prompt"`  // tokens of a prompt
	New     int    `json:"new"`     // sampled, or scored, tokens of a sequence
	Against string `json:"against"` // who is measured beside us

	quick bool // part of --quick
}

const (
	smollm2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
	qwen    = "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"
	gemma   = "Gemma-3-270M.Q4_K_M.gguf"
)

// allRows is the comparison. Tokens are few in quick runs, enough for a steady figure in full ones.
func allRows(quick bool) []row {
	decode, group := 96, 32
	if quick {
		decode, group = 48, 16
	}
	var out []row
	for _, m := range []struct {
		file, name    string
		groups, quick bool
	}{
		{smollm2, "SmolLM2-135M Q4_1", true, true},
		{qwen, "Qwen2.5-0.5B Q4_K_M", true, true},
		{gemma, "Gemma-3-270M Q4_K_M", false, false},
	} {
		out = append(out,
			row{Name: m.name + ", decode 1 row", Kind: kindDecode, Model: m.file, Rows: 1, Prompt: 1, New: decode, Against: llamaName, quick: m.quick},
			row{Name: m.name + ", prefill 512", Kind: kindPrefill, Model: m.file, Rows: 1, Prompt: 512, New: 1, Against: llamaName, quick: m.quick})
		if !m.groups {
			continue
		}
		for _, n := range []int{8, 16, 32} {
			out = append(out, row{Name: fmt.Sprintf("%s, decode %d rows, shared prompt of 256", m.name, n), Kind: kindGroup, Model: m.file,
				Rows: n, Groups: 1, Prompt: 256, New: group, Against: llamaName, quick: m.file == smollm2 && n == 8})
		}
	}
	return append(out,
		row{Name: "SmolLM2-135M LoRA r16 step, 16 x 192 tokens", Kind: kindLoRA, Model: smollm2, Rows: 16, Groups: 16, Prompt: 64, New: 128, Against: peftName},
		row{Name: "SmolLM2-135M LoRA r16 step, 2 prompts x 8 samples", Kind: kindLoRA, Model: smollm2, Rows: 16, Groups: 2, Prompt: 64, New: 128, Against: peftName},
		row{Name: "SmolLM2-135M GRPO step, 4 prompts x 8 samples x 64 tokens", Kind: kindGRPO, Model: smollm2, Rows: 32, Groups: 4, Prompt: 64, New: 64, Against: trlName})
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

// extent is the size of a model's matrices.
type extent struct {
	bodyBytes, headBytes int64 // as stored in the file
	body, head           int64 // weights
}

// extentOf reads it from the file's description. A tied head counts as the head.
func extentOf(path string) (extent, error) {
	f, err := model.Open(path, model.Options{})
	if err != nil {
		return extent{}, err
	}
	defer f.Close()
	var e extent
	for _, name := range f.Source.Names() {
		q, rows, cols, ok, err := f.Source.Shape(name)
		if err != nil {
			return extent{}, err
		}
		if !ok || rows < 2 {
			continue
		}
		n := int64(rows) * int64(cols)
		bytes := bytesOf(q, rows, cols)
		switch name {
		case "token_embd.weight":
			if f.Config.TiedHead {
				e.head, e.headBytes = n, bytes
			}
		case "output.weight":
			e.head, e.headBytes = n, bytes
		default:
			e.body, e.bodyBytes = e.body+n, e.bodyBytes+bytes
		}
	}
	return e, nil
}

func bytesOf(q quant.Format, rows, cols int) int64 { return int64(rows) * int64(q.Bytes(cols)) }

// bound is the least time that the row's work takes at the roof: every pass over the weights reads
// them once or computes with them at peak, whichever takes longer. Attention, norms, sampling and
// the adapter are left out, so the share of the roof is never flattered. Work that two sequences
// share is counted once only where the row says that they share it.
func (r *row) bound(e extent, roof Roof) float64 {
	pass := func(rows int, scored int, backward bool) float64 {
		flops := 2 * (float64(e.body)*float64(rows) + float64(e.head)*float64(scored))
		bytes := float64(e.bodyBytes + e.headBytes)
		if backward {
			flops *= 2
			bytes *= 2
		}
		return max(flops/(roof.GFLOPS*1e9), bytes/(roof.GBs*1e9))
	}
	train := func() float64 {
		return pass(r.Groups*r.Prompt+r.Rows*(r.New-1), r.Rows*r.New, true)
	}
	switch r.Kind {
	case kindPrefill:
		return pass(r.Prompt, 1, false)
	case kindLoRA:
		return train()
	case kindGRPO:
		return pass(r.Groups*r.Prompt, r.Groups, false) + float64(r.New-1)*pass(r.Rows, r.Rows, false) + train()
	}
	return float64(r.New) * pass(r.Rows, r.Rows, false)
}
