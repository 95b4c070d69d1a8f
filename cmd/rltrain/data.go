package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"graft/cmd/internal/launch"
	"graft/model/tokenizer"
	"graft/rewards"
	"graft/rl"
)

// datasetOptions are the flags of every command that reads rows.
type datasetOptions struct {
	Dataset         string `help:"File or folder of rows: .jsonl, .json, .csv, .tsv, .parquet, also .gz and .zst." placeholder:"PATH" group:"data"`
	DatasetSplit    string `help:"Which files of a folder: train, test or validation, by their names." placeholder:"NAME" group:"data"`
	MaxSamples      int    `help:"Read at most N rows; 0: all." placeholder:"N" group:"data"`
	PromptColumn    string `help:"Column of the prompt, text or messages. Default: prompt, else question, else problem." placeholder:"NAME" group:"data"`
	PromptTemplate  string `help:"Prompt made of columns, as 'Q: {question}'." placeholder:"TEXT" group:"data"`
	SystemPrompt    string `help:"System message before every prompt; text prompts become a user's message." placeholder:"TEXT" group:"data"`
	Chat            string `help:"Whether text prompts go through the chat template: auto (questions do, and all text with a system prompt), always, never." default:"auto" enum:"auto,always,never" group:"data"`
	ChatTemplate    string `help:"Jinja file instead of the model's own chat template." placeholder:"FILE" group:"data"`
	MaxPromptLength int    `help:"Most tokens of a prompt; 0: as many as fit." placeholder:"N" group:"data"`
	LongRows        string `help:"Rows beyond a limit: error, skip them and say how many, or truncate completions (sft, dpo)." default:"error" enum:"error,skip,truncate" group:"data"`
}

func (o datasetOptions) check() error {
	return checks(
		needed("dataset", o.Dataset, "a file or folder of rows (.jsonl, .json, .csv, .tsv, .parquet, also .gz and .zst)"),
		between("max-samples", o.MaxSamples, 0, maxCount, "0 reads all rows"),
		between("max-prompt-length", o.MaxPromptLength, 0, 1<<26, "0 takes what fits"),
		oneOf("dataset-split", o.DatasetSplit, "", "train", "test", "validation"),
		o.checkSplit(),
	)
}

// checkSplit refuses to pick among the files of a single file.
func (o datasetOptions) checkSplit() error {
	if info, err := os.Stat(o.Dataset); o.DatasetSplit == "" || err != nil || info.IsDir() {
		return nil // a path that is not there is told when it is opened
	}
	return usage("--dataset-split has no effect on the single file %s: it picks files of a folder by their names", o.Dataset)
}

// open reads the rows.
func (o datasetOptions) open(path string) (*rl.Dataset, error) {
	launch.CollectOften()
	return rl.OpenDataset(path, rl.DatasetOptions{Limit: o.MaxSamples, Split: o.DatasetSplit})
}

// renderer makes token ids of rows; limit is the most tokens that a prompt may have in this run.
func (o datasetOptions) renderer(tok *tokenizer.Tokenizer, limit int, more func(*rl.RenderOptions)) (*rl.Renderer, error) {
	r := rl.RenderOptions{PromptColumn: o.PromptColumn, PromptTemplate: o.PromptTemplate, SystemPrompt: o.SystemPrompt,
		MaxPromptLength: o.MaxPromptLength, TooLong: rl.TooLong(o.LongRows)}
	if o.Chat != "auto" {
		r.Chat = rl.ChatMode(o.Chat)
	}
	if r.MaxPromptLength == 0 || r.MaxPromptLength > limit {
		r.MaxPromptLength = limit
	}
	if o.ChatTemplate != "" {
		raw, err := os.ReadFile(o.ChatTemplate)
		if err != nil {
			return nil, fmt.Errorf("--chat-template %w", err)
		}
		r.ChatTemplate = string(raw)
	}
	if more != nil {
		more(&r)
	}
	return rl.NewRenderer(tok, r)
}

// rewardOptions are the flags of every command that scores completions.
type rewardOptions struct {
	Reward        []string      `help:"How completions are scored; several are added up, each with a weight in front: 0.5*format:think. Built in: ${rewards}; see 'reward test -h'." sep:"none" placeholder:"SPEC" group:"reward"`
	RewardWeights []float64     `help:"Factors of the rewards in their order, instead of weights in the specs." placeholder:"W,…" group:"reward"`
	RewardTimeout time.Duration `help:"Longest that one reward may take for one batch; 0: no limit." default:"60s" placeholder:"TIME" group:"reward"`
}

// rewardNames lists the built-in rewards for help texts.
func rewardNames() string {
	var names []string
	for _, i := range rewards.Describe() {
		names = append(names, i.Name)
	}
	return strings.Join(names, ", ")
}

// parse makes the rewards; none of them is started.
func (o rewardOptions) parse() ([]rewards.Weighted, error) {
	if len(o.Reward) == 0 {
		return nil, usage("--reward is missing: name at least one way to score completions, such as math, exact or py:FILE.py:FUNCTION")
	}
	if o.RewardTimeout < 0 {
		return nil, usage("--reward-timeout is %v, want 0 (no limit) or more", o.RewardTimeout)
	}
	if n := len(o.RewardWeights); n != 0 && n != len(o.Reward) {
		return nil, usage("--reward-weights has %d numbers for %d rewards; give one for each", n, len(o.Reward))
	}
	list, err := rewards.ParseAll(o.Reward)
	if err != nil {
		return nil, mistake(err)
	}
	for i, w := range o.RewardWeights {
		if list[i].Weight != 1 && list[i].Weight != w {
			rewards.Close(list)
			return nil, usage("--reward %s has a weight of its own, and --reward-weights gives it %g; use one way", o.Reward[i], w)
		}
		list[i].Weight = w
	}
	return list, nil
}

// readable refuses rows that lack what the rewards read, before anything is begun: kept are the rows of d that are used.
func readable(list []rewards.Weighted, d *rl.Dataset, kept []rl.Prompt) error {
	for _, p := range kept {
		err := rewards.Check(list, &rewards.Sample{Messages: p.Messages, PromptIDs: p.IDs, Columns: p.Columns})
		if err == nil {
			continue
		}
		for _, row := range d.Rows {
			if row.Index == p.Row {
				return fmt.Errorf("%s: %w", row.Where(), err)
			}
		}
		return err
	}
	return nil
}
