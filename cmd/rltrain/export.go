package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"graft/cmd/internal/launch"
	"graft/infer"
	"graft/infer/paged"
	"graft/kernels"
	"graft/model"
	"graft/weights"
)

type exportCmd struct {
	Folder string `arg:"" name:"run" optional:"" help:"The run's folder, or a checkpoint's; default: the last run."`
	modelOptions
	Output        string `help:"Folder (peft) or file (gguf) to write; it must not exist yet." placeholder:"PATH"`
	Format        string `help:"peft: adapter_config.json and adapter_model.safetensors, for PEFT and vLLM. gguf: an adapter for llama.cpp (--lora), also without this option if --output ends in .gguf. merged-gguf: a model file with the adapter in it, for programs that take one file." default:"peft" enum:"peft,gguf,merged-gguf"`
	MergedWeights string `help:"How merged-gguf stores the matrices that the adapter changed: wide (F16, or the base's own F32 or BF16), base (quantized again as the base is, which loses some of it), f16, f32." default:"wide" enum:"wide,base,f16,f32" placeholder:"HOW"`
}

// Help is the manual's long text.
func (exportCmd) Help() string {
	return "Writes the adapter for other tools. What was written is read back, and its log-probs are compared with those of the adapter it came from: it says done only if they are the same bits. A merged model rounds: it says how far its log-probs are from those of model and adapter, and refuses where the adapter would be lost."
}

// Run exports.
func (e *exportCmd) Run(c *console) error {
	if err := checks(needed("output", e.Output, "the folder (peft) or file (gguf) to write"), e.modelOptions.check()); err != nil {
		return err
	}
	if !c.flags["format"] && strings.EqualFold(filepath.Ext(e.Output), ".gguf") {
		e.Format = "gguf"
	}
	if err := c.unused("merged-weights", e.Format != "merged-gguf", "but with --format merged-gguf"); err != nil {
		return err
	}
	if e.Format == "merged-gguf" {
		if e.Precision == kernels.PrecisionInt8.String() {
			return usage("--precision int8 has no effect with --format merged-gguf: what merging costs is measured under f32, since matrices stored wide have no other contract; leave it out")
		}
		e.Precision = kernels.PrecisionF32.String()
	}
	if _, err := os.Lstat(e.Output); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--output %s exists already; name another place, or remove it first", e.Output)
	}
	if e.Folder != "" {
		if e.Adapter != "" {
			return usage("--adapter has no effect with a run's folder; give one of them")
		}
		run, err := launch.ReadRun(runDir(e.Folder))
		if err != nil {
			return err
		}
		e.Adapter = e.Folder
		if run.Adapter != "" && runDir(e.Folder) == filepath.Clean(e.Folder) {
			e.Adapter = run.Adapter
		}
		if run.Trained != "" {
			return fmt.Errorf("%s trained the whole model, and %s is a model file that other tools read as it is", e.Folder, run.Trained)
		}
		if e.Model == "" {
			e.Model = run.Model
		}
	}
	s, err := e.open(c, launch.Answering, model.Options{})
	if err != nil {
		return err
	}
	defer s.close()
	if s.source.Adapter == "" {
		return usage("there is no adapter to export: name a run, or give --adapter")
	}
	if err := e.load(c, s); err != nil {
		return err
	}
	return e.write(c, s)
}

// checkLength is how many tokens the comparison scores.
const checkLength = 48

func (e *exportCmd) load(c *console, s *session) error {
	shape, err := s.planAdapter(false)
	if err != nil {
		return err
	}
	working := launch.Working{Bytes: shape.Params, What: "the adapter on its way to the file"}
	if e.Format == "merged-gguf" {
		working = launch.Working{Bytes: launch.FullWorking(s.source.Files), What: "matrices on their way to the file"}
	} else {
		s.plan.Add("read back", shape.Params, "the exported adapter", "")
	}
	opt := s.planEngine(infer.Options{MaxModelLen: min(checkLength, e.maxLen(s)), MaxSeqs: 1, MaxBatchedTokens: 64, Pages: paged.PagesFor(checkLength)})
	if err := s.load(c, working); err != nil {
		return err
	}
	return s.start(opt)
}

// write writes aside, checks what was written, and only then gives it its name.
func (e *exportCmd) write(c *console, s *session) error {
	dir, err := os.MkdirTemp(filepath.Dir(filepath.Clean(e.Output)), ".export-*")
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	defer os.RemoveAll(dir)
	if e.Format == "merged-gguf" {
		return e.merge(c, s, dir)
	}
	m, ad := s.loaded.Model, s.adapter()
	made := filepath.Join(dir, "adapter")
	if e.Format == "gguf" {
		made += ".gguf"
		err = m.SaveAdapterGGUF(ad, made)
	} else {
		if ad.Config.BaseModel == "" {
			ad.Config.BaseModel = s.source.Model
		}
		err = m.SavePEFT(ad, made)
	}
	if err != nil {
		return err
	}
	back, err := m.LoadAdapter(made, launch.AdapterID+1, false)
	if err != nil {
		return fmt.Errorf("what was exported cannot be read back: %w", err)
	}
	ctx, done := c.stop.immediate()
	defer done()
	n, err := sameLogProbs(ctx, s, ad, back)
	if err != nil {
		return err
	}
	if err := os.Rename(made, e.Output); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	c.talk.say("%s: read back, %d log-probs equal bit for bit", e.Output, n)
	fmt.Fprintln(c.out, e.Output)
	return nil
}

// checkTokens are tokens spread over the vocabulary.
func checkTokens(s *session) []int32 {
	ids := make([]int32, min(checkLength, s.source.Files.Config.Context))
	for i := range ids {
		ids[i] = int32((i*7919 + 13) % s.source.Files.Config.Vocab)
	}
	return ids
}

// sameLogProbs compares two adapters on tokens spread over the vocabulary.
func sameLogProbs(ctx context.Context, s *session, a, b *weights.Adapter) (int, error) {
	ids := checkTokens(s)
	want, _, err := s.engine.Score(ctx, ids, a, 1)
	if err != nil {
		return 0, err
	}
	got, _, err := s.engine.Score(ctx, ids, b, 1)
	if err != nil {
		return 0, err
	}
	var differ []string
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			differ = append(differ, fmt.Sprintf("token %d: %g became %g", i, want[i], got[i]))
		}
	}
	if differ != nil {
		return 0, fmt.Errorf("the export is not the same: %d of %d log-probs differ (%s); nothing was written", len(differ), len(want), strings.Join(differ[:min(3, len(differ))], ", "))
	}
	return len(want) - 1, nil
}
