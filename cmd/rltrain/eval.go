package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"graft/cmd/internal/launch"
	"graft/cmd/internal/loop"
	"graft/infer"
	"graft/infer/paged"
	"graft/model"
	"graft/rewards"
	"graft/rl"
	"graft/weights"
)

// samplingOptions are the flags of an evaluation's answers.
type samplingOptions struct {
	NumGenerations      int      `help:"Answers to each prompt." default:"1" placeholder:"N" group:"sampling"`
	MaxCompletionLength int      `help:"Most tokens of an answer." default:"256" placeholder:"N" group:"sampling"`
	Temperature         float64  `help:"0 takes the most probable token; above 0 draws." default:"0" placeholder:"T" group:"sampling"`
	TopP                float64  `help:"Draw from the most probable tokens with this much probability; 1: all." default:"1" placeholder:"P" group:"sampling"`
	TopK                int      `help:"Draw from the K most probable tokens; 0: all." placeholder:"K" group:"sampling"`
	MinP                float64  `help:"Draw from tokens at least this probable, relative to the best; 0: all." placeholder:"P" group:"sampling"`
	Stop                []string `help:"End an answer where one of these texts begins." sep:"none" placeholder:"TEXT" group:"sampling"`
	Seed                uint64   `help:"Decides every draw." default:"42" placeholder:"N" group:"sampling"`
	MaxNumSeqs          int      `help:"Answers computed at once. Results do not depend on it." default:"32" placeholder:"N" group:"sampling"`
}

func (o samplingOptions) check() error {
	return checks(
		between("num-generations", o.NumGenerations, 1, infer.MaxN, "one answer is enough to be greedy"),
		between("max-completion-length", o.MaxCompletionLength, 1, 1<<24, "an answer has at least one token"),
		checkTemperature("temperature", o.Temperature, true),
		between("top-p", o.TopP, 1e-9, 1, "1 turns it off"),
		between("top-k", o.TopK, 0, math.MaxInt32, "0 turns it off"),
		between("min-p", o.MinP, 0, 1, "0 turns it off"),
		between("max-num-seqs", o.MaxNumSeqs, 1, 4096, "32 suits most machines"),
		o.checkGreedy(),
	)
}

func (o samplingOptions) checkGreedy() error {
	if o.Temperature == 0 && (o.NumGenerations > 1 || o.TopP != 1 || o.TopK != 0 || o.MinP != 0) {
		return usage("--temperature 0 always takes the most probable token, so --num-generations, --top-p, --top-k and --min-p have no effect; give a temperature above 0")
	}
	return nil
}

// checkTemperature holds a temperature to what the engine computes.
func checkTemperature(name string, t float64, greedy bool) error {
	if t == 0 && greedy || drawable(t) {
		return nil
	}
	if greedy {
		return usage("--%s is %v, want 0 (greedy) or 0.0001 to 100", name, t)
	}
	return usage("--%s is %v, want 0.0001 to 100; training draws, so 0 is not possible", name, t)
}

// drawable tells whether logits can be divided by a temperature.
func drawable(t float64) bool { return t >= 1e-4 && t <= 100 }

func (o samplingOptions) draws() loop.Sampling {
	return loop.Sampling{N: o.NumGenerations, MaxTokens: o.MaxCompletionLength, Temperature: o.Temperature, TopP: o.TopP, TopK: o.TopK,
		MinP: o.MinP, Seed: o.Seed, Stop: o.Stop}
}

type evalCmd struct {
	modelOptions
	datasetOptions
	rewardOptions
	samplingOptions
	CompareBase bool   `help:"Measure the base model too and pair the answers prompt by prompt."`
	PassAt      []int  `help:"Report pass@K: the chance that one of K answers has a reward of at least 1." placeholder:"K,…"`
	Completions string `help:"Write every answer with its scores to this file, JSON lines." placeholder:"FILE"`
	JSON        bool   `help:"One line of JSON on standard output." name:"json"`
}

// Help is the manual's long text.
func (evalCmd) Help() string {
	return `Answers every prompt of a dataset, scores the answers, and prints the mean reward and the share of answers with a reward of at least 1. With an adapter and --compare-base both policies answer with the same draws; the difference comes with a 95 % interval (bootstrap over prompts).

It names the model and the adapter (path, step of its run, hash) that were measured, and ends with a verdict: the reward with its 95 % interval and, with --compare-base, whether the adapter is better, worse, or not told apart from the base. --json has the same as model, adapter, adapter_step, adapter_sha256, reward, reward_interval, difference, interval and verdict.`
}

// evalSummary is the last line of --json: a run's summary, where eval_after is the mean reward and
// eval_before the base model's with --compare-base, and what an evaluation says besides.
type evalSummary struct {
	rl.Summary
	Model       string             `json:"model"`
	Adapter     string             `json:"adapter,omitempty"`
	AdapterStep *int               `json:"adapter_step,omitempty"` // of the run that made it
	Prompts     int                `json:"prompts"`                // that a reward applied to
	Skipped     int                `json:"skipped"`                // rows too long
	Reward      float64            `json:"reward"`
	RewardRange *[2]float64        `json:"reward_interval,omitempty"` // 95 %
	Accuracy    float64            `json:"accuracy"`                  // share of answers with a reward of at least 1
	Rewards     map[string]float64 `json:"rewards"`
	PassAt      map[string]float64 `json:"pass_at,omitempty"`
	Difference  *float64           `json:"difference,omitempty"`
	Interval    *[2]float64        `json:"interval,omitempty"` // 95 %
	Verdict     string             `json:"verdict,omitempty"`  // of the adapter: better, worse, not told apart
}

// Run measures.
func (e evalCmd) Run(c *console) error {
	if err := checks(e.modelOptions.check(), e.datasetOptions.check(), e.samplingOptions.check()); err != nil {
		return err
	}
	for _, k := range e.PassAt {
		if err := between("pass-at", k, 1, e.NumGenerations, "pass@K needs --num-generations of at least K"); err != nil {
			return err
		}
	}
	ctx, done := c.stop.immediate()
	defer done()
	judge := &loop.Judge{Deadline: e.RewardTimeout}
	var err error
	if judge.Rewards, err = e.parse(); err != nil {
		return err
	}
	defer rewards.Close(judge.Rewards)
	if err := rewards.Prepare(ctx, judge.Rewards); err != nil {
		return err
	}
	s, err := e.modelOptions.open(c, launch.Answering, model.Options{})
	if err != nil {
		return err
	}
	defer s.close()
	if e.CompareBase && s.source.Adapter == "" {
		return usage("--compare-base needs an --adapter to compare with the base")
	}
	judge.Tokenizer = s.source.Files.Tokenizer
	prompts, skipped, err := e.prompts(s, judge.Rewards)
	if err != nil {
		return err
	}
	if err := e.start(c, s, prompts); err != nil {
		return err
	}
	return e.measure(ctx, c, s, judge, prompts, skipped)
}

// prompts renders the dataset, whose rows the rewards can read.
func (e evalCmd) prompts(s *session, list []rewards.Weighted) ([]rl.Prompt, int, error) {
	d, err := e.datasetOptions.open(e.Dataset)
	if err != nil {
		return nil, 0, err
	}
	limit := e.maxLen(s) - e.MaxCompletionLength
	if limit < 1 {
		return nil, 0, usage("--max-completion-length %d leaves no room for a prompt in %d positions", e.MaxCompletionLength, e.maxLen(s))
	}
	r, err := e.renderer(s.source.Files.Tokenizer, limit, nil)
	if err != nil {
		return nil, 0, err
	}
	out, err := r.Prompts(d)
	if err != nil {
		return nil, 0, err
	}
	return out.Items, out.Skipped, readable(list, d, out.Items)
}

// An answer that was measured stays until the end: what it takes, and what each of its tokens takes.
const answerBytes, answerToken = 1 << 10, 16

// start plans and loads for the longest prompt there is.
func (e evalCmd) start(c *console, s *session, prompts []rl.Prompt) error {
	if _, err := s.planAdapter(false); err != nil {
		return err
	}
	length := longest(prompts) + e.MaxCompletionLength
	opt := s.planEngine(infer.Options{MaxModelLen: length, MaxSeqs: e.MaxNumSeqs, MaxBatchedTokens: max(256, e.MaxNumSeqs),
		Pages: paged.PagesFor(length) * min(e.MaxNumSeqs, len(prompts)*e.NumGenerations)})
	answers := len(prompts) * e.NumGenerations
	if e.CompareBase {
		answers *= 2
	}
	work := launch.Working{Bytes: int64(answers) * int64(answerBytes+answerToken*e.MaxCompletionLength), What: fmt.Sprintf("%d answers", answers), Less: "lower --max-completion-length, or measure fewer rows"}
	if err := s.load(c, work); err != nil {
		return err
	}
	return s.start(opt)
}

func longest(prompts []rl.Prompt) int {
	n := 0
	for _, p := range prompts {
		n = max(n, len(p.IDs))
	}
	return n
}

func (e evalCmd) measure(ctx context.Context, c *console, s *session, judge *loop.Judge, prompts []rl.Prompt, skipped int) error {
	begin := time.Now()
	var before *loop.Result
	if e.CompareBase {
		r, err := measured(ctx, c, s.engine, judge, prompts, e.draws(), nil, "base")
		if err != nil {
			return err
		}
		before = &r
	}
	what := "base"
	if s.adapter() != nil {
		what = "adapter"
	}
	r, err := measured(ctx, c, s.engine, judge, prompts, e.draws(), s.adapter(), what)
	if err != nil {
		return err
	}
	sum := evalSummary{Model: s.source.Model, Adapter: s.source.Adapter, Prompts: r.Scored, Skipped: skipped, Reward: r.Mean, Accuracy: r.Share,
		Rewards: map[string]float64{}}
	sum.EvalAfter, sum.TokensSampled = &r.Mean, int64(r.Tokens)
	s.account(&sum.Summary)
	if s.adapter() != nil {
		sum.AdapterSHA256, sum.AdapterStep = s.loaded.Model.HashAdapter(s.adapter()), adapterStep(s.source.Adapter)
	}
	for k, name := range r.Names {
		sum.Rewards[name] = r.By[k]
	}
	low, high := r.Interval()
	sum.RewardRange = &[2]float64{low, high}
	for _, k := range e.PassAt {
		if sum.PassAt == nil {
			sum.PassAt = map[string]float64{}
		}
		if sum.PassAt[fmt.Sprint(k)], err = r.PassAt(k); err != nil {
			return err
		}
	}
	if before != nil {
		d := loop.Compare(*before, r)
		sum.EvalBefore, sum.Difference, sum.Interval = &before.Mean, &d.Mean, &[2]float64{d.Low, d.High}
		sum.Verdict = d.Verdict()
		sum.TokensSampled += int64(before.Tokens)
	}
	sum.Seconds, sum.Precision = time.Since(begin).Seconds(), s.loaded.Model.Precision.String()
	if e.Completions != "" {
		if err := writeAnswers(c, e.Completions, judge, prompts, r); err != nil {
			return err
		}
	}
	if r.Scored == 0 {
		return errors.New("no reward applied to any answer: all were skipped")
	}
	if e.JSON {
		return json.NewEncoder(c.out).Encode(sum)
	}
	return e.print(c.out, sum, r)
}

// print says what was measured, then the figures, and ends with what they come to.
func (e evalCmd) print(w io.Writer, sum evalSummary, r loop.Result) error {
	var b strings.Builder
	adapter := "none: the model as it is"
	if sum.Adapter != "" {
		adapter = fmt.Sprintf("%s (%ssha256 %.12s)", sum.Adapter, stepText(sum.AdapterStep), sum.AdapterSHA256)
	}
	fmt.Fprintf(&b, "model     %s\nadapter   %s\nprompts   %d (%d skipped)\nreward    %.4f\naccuracy  %.1f %%\n", sum.Model, adapter, sum.Prompts, sum.Skipped, sum.Reward, 100*sum.Accuracy)
	if len(r.Names) > 1 {
		for k, name := range r.Names {
			fmt.Fprintf(&b, "  %-30s %.4f\n", name, r.By[k])
		}
	}
	for _, k := range e.PassAt {
		fmt.Fprintf(&b, "pass@%-4d %.1f %%\n", k, 100*sum.PassAt[fmt.Sprint(k)])
	}
	fmt.Fprintf(&b, "verdict   reward %.4f, 95 %% interval %.4f to %.4f", sum.Reward, sum.RewardRange[0], sum.RewardRange[1])
	if d := sum.Difference; d != nil {
		fmt.Fprintf(&b, "; base %.4f, change %+.4f, 95 %% interval %+.4f to %+.4f: %s", *sum.EvalBefore, *d, sum.Interval[0], sum.Interval[1], sum.Verdict)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

func stepText(step *int) string {
	if step == nil {
		return ""
	}
	return fmt.Sprintf("step %d, ", *step)
}

// adapterStep is the step of the run that left an adapter: its checkpoint's, or the run's last one.
// It is nil for an adapter that lies elsewhere.
func adapterStep(path string) *int {
	dir := filepath.Dir(filepath.Clean(path))
	if text, ok := strings.CutPrefix(filepath.Base(dir), "checkpoint-"); ok {
		if n, err := strconv.Atoi(text); err == nil {
			return &n
		}
	}
	if sum, err := rl.ReadSummary(dir); err == nil {
		return &sum.Steps
	}
	return nil
}

// measured is loop.Measure with a status line.
func measured(ctx context.Context, c *console, e *infer.Engine, judge *loop.Judge, prompts []rl.Prompt, s loop.Sampling, ad *weights.Adapter, what string) (loop.Result, error) {
	end := watch(c, e, what, len(prompts)*s.N)
	defer end()
	return loop.Measure(ctx, e, judge, prompts, s, ad)
}

// watch shows how far the engine is with n sequences, until the function it returns is called.
func watch(c *console, e *infer.Engine, what string, n int) func() {
	if !c.talk.screen {
		return func() {}
	}
	return c.talk.every(sampled(e, what, n))
}

// sampled is a status line that says how far the engine is with n sequences that begin now.
func sampled(e *infer.Engine, what string, n int) func() string {
	first := e.Stats()
	begin := time.Now()
	return func() string {
		s := e.Stats()
		done := int(s.Stopped + s.Truncated - first.Stopped - first.Truncated)
		rate := float64(s.GeneratedTokens-first.GeneratedTokens) / time.Since(begin).Seconds()
		return fmt.Sprintf("%s sampling %s %d/%d  %.0f tokens/s", what, bar(done, n, 24), done, n, rate)
	}
}

// writeAnswers writes one line for each answer.
func writeAnswers(c *console, path string, judge *loop.Judge, prompts []rl.Prompt, r loop.Result) error {
	return lines{Output: path}.write(c, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		for _, a := range r.Answers {
			scores := map[string]*float64{}
			for k, s := range a.Scores {
				scores[r.Names[k]] = nil
				if !s.Skip {
					scores[r.Names[k]] = &s.Value
				}
			}
			p := prompts[a.Prompt]
			err := encoder.Encode(map[string]any{"row": p.Row, "sample": a.Sample, "prompt": judge.Tokenizer.Decode(p.IDs, false),
				"completion": a.Completion.Text, "completion_ids": a.Completion.Tokens, "finish": a.Completion.Finish, "scores": scores, "reward": a.Reward})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
