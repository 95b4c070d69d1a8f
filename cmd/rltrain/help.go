package main

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"graft/cmd/internal/launch"
)

// optionHelp is an option's text in the manual: the help, its default where neither the text nor the
// placeholder says it, and the variable that sets it. Switches are off unless it says otherwise.
func optionHelp(v *kong.Value) string {
	text := kong.DefaultHelpValueFormatter(v)
	fallback := v.Default
	switch {
	case v.Flag == nil || strings.Contains(strings.ToLower(v.Help), "default:") || strings.Contains(v.Help, "Default "):
		return text
	case v.HasDefault && v.Target.Kind() == reflect.Bool:
		fallback = map[string]string{"true": "on", "false": "off"}[v.Default]
	case v.HasDefault && v.Flag.PlaceHolder == "" && !v.IsSlice():
		return text // kong shows it as the value: --runs="runs"
	case v.HasDefault:
	case v.Target.Kind() == reflect.Pointer:
		fallback = "none"
	default:
		fallback = zeroOf(v.Target.Type())
	}
	if fallback == "" {
		return text
	}
	return strings.TrimSuffix(text, ".") + fmt.Sprintf(" [default: %s].", fallback)
}

// autoPrecision says in an option's help what auto comes to when nothing else decides.
func autoPrecision() string {
	train, use, score := launch.Training.Precision(), launch.Answering.Precision(), launch.Scoring.Precision()
	if train == use && use == score {
		return train.String()
	}
	return fmt.Sprintf("%s to train, %s to sample, %s to score", train, use, score)
}

// zeroOf is the default of a number that has no other one.
func zeroOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64, reflect.Float64:
		return "0"
	}
	return ""
}

// foreign are options of TRL and its relatives that this program has another way of, or no use for.
var foreign = map[string]string{
	"bf16":                       "weights keep the format of their file; --precision says how activations are multiplied with them",
	"fp16":                       "weights keep the format of their file; --precision says how activations are multiplied with them",
	"dtype":                      "weights keep the format of their file; --precision says how activations are multiplied with them",
	"torch-dtype":                "weights keep the format of their file; --precision says how activations are multiplied with them",
	"load-in-4bit":               "give a quantized GGUF file to --model",
	"load-in-8bit":               "give a quantized GGUF file to --model",
	"use-vllm":                   "sampling runs in this process, on the weights that are trained",
	"report-to":                  "every run writes metrics.jsonl and TensorBoard events into its folder",
	"lora-dropout":               "sampler and trainer must compute the same numbers, so nothing is dropped",
	"use-peft":                   "an adapter is the default; --full trains the whole model",
	"model-name-or-path":         "say --model, with a file or a folder: nothing is downloaded",
	"dataset-name":               "say --dataset, with a file or a folder: nothing is downloaded",
	"reward-funcs":               "say --reward, as often as there are rewards; rltrain reward list shows them",
	"lora-target-modules":        "say --target-modules",
	"resume-from-checkpoint":     "say --resume, or rltrain resume",
	"per-device-eval-batch-size": "evaluation batches by itself; --max-num-seqs bounds it",
	"eval-strategy":              "a run is measured before and after; --eval-size says on how many rows",
	"max-new-tokens":             "say --max-completion-length; chat: --max-tokens",
	"optim":                      "the optimizer is AdamW",
	"deepspeed":                  "a run is one process on this machine",
}

// foreignOption explains an unknown flag that other trainers have.
func foreignOption(err error) error {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag --")
	if !ok {
		return err
	}
	name, _, _ = strings.Cut(name, ",")
	known := name
	if strings.HasPrefix(name, "vllm-") {
		known = "use-vllm"
	}
	if why, ok := foreign[known]; ok {
		return fmt.Errorf("unknown flag --%s: %s", name, why)
	}
	return err
}
