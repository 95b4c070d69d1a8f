// Package loop joins the engine, the rewards and the trainers: it answers prompts and has the
// answers scored, for training (Sampler, Rewarder) and for evaluation (Measure, Compare).
//
// It may not know flags, files or a backend. It keeps no state but the prompts of the step under way.
package loop

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"graft/infer"
	"graft/kernels/rng"
	"graft/model/tokenizer"
	"graft/rewards"
	"graft/rl"
	"graft/weights"
)

// Judge scores completions.
type Judge struct {
	Tokenizer *tokenizer.Tokenizer
	Rewards   []rewards.Weighted
	Deadline  time.Duration // for one batch of one reward; 0: none
}

// Sampling says how prompts are answered in an evaluation.
type Sampling struct {
	N           int     // answers to each prompt
	MaxTokens   int     // of an answer
	Temperature float64 // 0: greedy
	TopP        float64 // 0 or 1: off
	TopK        int     // 0: off
	MinP        float64 // 0: off
	Seed        uint64
	Stop        []string
}

// Answer is one completion of a prompt with its verdict.
type Answer struct {
	Prompt     int // which one
	Sample     int
	Completion infer.Completion
	Scores     []rewards.Score // by reward
	Reward     float64         // weighted total
	Scored     bool            // some reward applied
}

// Result is a policy measured on prompts.
type Result struct {
	Names   []string  // of the rewards
	Mean    float64   // reward, averaged over answers, then prompts
	Share   float64   // of answers with a reward of at least 1: accuracy for rewards of 0 and 1
	Each    []float64 // mean reward of each prompt; NaN where no reward applied
	By      []float64 // mean of each reward over the answers it applied to
	Answers []Answer  // in order of prompts, then samples
	Scored  int       // prompts with a reward
	Tokens  int       // sampled
	Seconds float64
}

// evaluation is the step number of draws that are not training: training counts from 0.
const evaluation = math.MaxUint32

// Measure answers every prompt under an adapter (nil: the base) and scores the answers. The same
// sampling gives every policy the same draws, so that two results compare prompt by prompt.
func Measure(ctx context.Context, e *infer.Engine, j *Judge, prompts []rl.Prompt, s Sampling, ad *weights.Adapter) (Result, error) {
	begin := time.Now()
	requests := make([]infer.Request, len(prompts))
	for i, p := range prompts {
		requests[i] = infer.Request{Prompt: p.IDs, Params: infer.Params{N: s.N, MaxTokens: s.MaxTokens, Temperature: s.Temperature,
			TopP: s.TopP, TopK: s.TopK, MinP: s.MinP, Stop: s.Stop, Seed: s.Seed, Draw: [3]uint32{evaluation, uint32(i), 0}, Adapter: ad}}
	}
	done, err := e.Generate(ctx, requests)
	if err != nil {
		return Result{}, err
	}
	samples := make([]rewards.Sample, len(done))
	for i := range done {
		c := &done[i]
		samples[i] = j.sample(&prompts[c.Request], c.Tokens, c.Text, c.Truncated, 0, c.Request, c.Index)
	}
	verdict, err := rewards.Run(ctx, j.Rewards, samples, j.Deadline)
	if err != nil {
		return Result{}, err
	}
	r := Result{Names: verdict.Names, Seconds: time.Since(begin).Seconds()}
	for i, c := range done {
		a := Answer{Prompt: c.Request, Sample: c.Index, Completion: c, Reward: verdict.Total[i], Scored: verdict.Scored[i]}
		for k := range verdict.Scores {
			a.Scores = append(a.Scores, verdict.Scores[k][i])
		}
		r.Tokens += len(c.Tokens)
		r.Answers = append(r.Answers, a)
	}
	r.average(len(prompts), len(verdict.Names))
	return r, nil
}

// sample is a completion as rewards see it.
func (j *Judge) sample(p *rl.Prompt, tokens []int32, text string, truncated bool, step, group, index int) rewards.Sample {
	return rewards.Sample{
		Prompt: j.Tokenizer.Decode(p.IDs, false), Messages: p.Messages, Completion: text, CompletionIDs: tokens,
		PromptIDs: p.IDs, Truncated: truncated, Columns: p.Columns, Step: step, Group: group, Index: index,
	}
}

// average fills in the means.
func (r *Result) average(prompts, kinds int) {
	sum, count := make([]float64, prompts), make([]int, prompts)
	r.Each, r.By = make([]float64, prompts), make([]float64, kinds)
	applied := make([]int, kinds)
	full, scored := 0, 0
	for _, a := range r.Answers {
		for k, s := range a.Scores {
			if !s.Skip {
				r.By[k] += s.Value
				applied[k]++
			}
		}
		if !a.Scored {
			continue
		}
		scored++
		sum[a.Prompt] += a.Reward
		count[a.Prompt]++
		if a.Reward >= 1 {
			full++
		}
	}
	for k := range r.By {
		r.By[k] /= float64(max(1, applied[k]))
	}
	total := 0.0
	for i := range r.Each {
		r.Each[i] = math.NaN()
		if count[i] > 0 {
			r.Each[i] = sum[i] / float64(count[i])
			total += r.Each[i]
			r.Scored++
		}
	}
	r.Mean, r.Share = total/float64(max(1, r.Scored)), float64(full)/float64(max(1, scored))
}

// PassAt is the unbiased estimate of the chance that one of k answers has a reward of at least 1
// (Chen et al. 2021, arXiv 2107.03374), averaged over prompts.
func (r *Result) PassAt(k int) (float64, error) {
	right, n := make([]int, len(r.Each)), make([]int, len(r.Each))
	for _, a := range r.Answers {
		n[a.Prompt]++
		if a.Scored && a.Reward >= 1 {
			right[a.Prompt]++
		}
	}
	total := 0.0
	for i := range n {
		if k < 1 || k > n[i] {
			return 0, fmt.Errorf("pass@%d needs at least %d answers to each prompt, there are %d", k, k, n[i])
		}
		miss := 1.0
		for j := n[i] - right[i] + 1; j <= n[i]; j++ {
			miss *= 1 - float64(k)/float64(j)
		}
		if n[i]-right[i] < k {
			miss = 0
		}
		total += 1 - miss
	}
	return total / float64(max(1, len(n))), nil
}

// Difference is the change from one policy to another on the same prompts.
type Difference struct {
	Mean    float64 `json:"difference"`
	Low     float64 `json:"low"` // of the 95 % interval
	High    float64 `json:"high"`
	Prompts int     `json:"prompts"` // that both were scored on
}

// resamples is how often the bootstrap draws.
const resamples = 10000

// fewest is how many pairs a verdict needs: with fewer, even changes that all point one way come by
// chance more than once in twenty times (2·2⁻⁵ > 0.05), whatever the bootstrap says.
const fewest = 6

// Verdict says what a difference means for the second policy: better or worse where the interval
// leaves 0 out, not told apart where it does not, or where there are too few prompts to tell.
func (d Difference) Verdict() string {
	switch {
	case d.Prompts >= fewest && d.Low > 0:
		return "better"
	case d.Prompts >= fewest && d.High < 0:
		return "worse"
	}
	return "not told apart"
}

// Compare pairs two results prompt by prompt.
func Compare(before, after Result) Difference {
	var d []float64
	for i := range before.Each {
		if x := after.Each[i] - before.Each[i]; !math.IsNaN(x) {
			d = append(d, x)
		}
	}
	out := Difference{Prompts: len(d)}
	for _, x := range d {
		out.Mean += x / float64(len(d))
	}
	out.Low, out.High = bootstrap(d)
	return out
}

// Interval is the 95 % interval of Mean.
func (r *Result) Interval() (low, high float64) {
	var each []float64
	for _, x := range r.Each {
		if !math.IsNaN(x) {
			each = append(each, x)
		}
	}
	return bootstrap(each)
}

// bootstrap is the 95 % interval of a mean over prompts: the percentiles of means of resampled
// prompts (Efron 1979), with draws that are always the same.
func bootstrap(x []float64) (low, high float64) {
	if len(x) == 0 {
		return 0, 0
	}
	src := rng.New(0, "bootstrap")
	means := make([]float64, resamples)
	for b := range means {
		sum := 0.0
		for i := range x {
			sum += x[src.Below(uint32(len(x)), uint32(b), uint32(i), 0)]
		}
		means[b] = sum / float64(len(x))
	}
	slices.Sort(means)
	return means[resamples*25/1000], means[resamples*975/1000-1]
}
