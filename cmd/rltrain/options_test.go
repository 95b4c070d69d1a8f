package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parsed returns the GRPO command that arguments make.
func parsed(t *testing.T, args ...string) (*grpoCmd, error) {
	t.Helper()
	var tree commands
	_, err := parse(&tree, args, &console{out: os.Stderr, talk: newTalk(os.Stderr)})
	return &tree.GRPO, err
}

func TestFlagsBeatEnvironmentBeatsFile(t *testing.T) {
	config := file(t, "c.yaml", "model: from-file\nmax_steps: 1\nlora-r: 2\nreward: ['length:at_most=3,unit=words', math]\nfull: false\n")
	t.Setenv("GRAFT_MAX_STEPS", "5")
	t.Setenv("GRAFT_LORA_R", "6")
	g, err := parsed(t, "grpo", "--config", config, "--lora_r=7")
	require.NoError(t, err)
	assert.Equal(t, "from-file", g.Model)
	assert.Equal(t, 5, g.MaxSteps, "the environment is stronger than the file")
	assert.Equal(t, 7, g.LoraR, "the flag is stronger than both, underscores and all")
	assert.Equal(t, []string{"length:at_most=3,unit=words", "math"}, g.Reward, "a comma belongs to the reward")
}

// Arguments of a schedule come as JSON, or as a mapping in a file; a run follows them, and its config.yaml gives them back.
func TestSchedulerKwargs(t *testing.T) {
	inFile := file(t, "c.yaml", "lr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs:\n  num_decay_steps: 2\n  decay_type: linear\n")
	dir := filepath.Join(t.TempDir(), "run")
	ok(t, quick(t, dir, "--config", inFile, "--learning-rate", "1", "--eval-size", "0", "--dry-run")...)
	ok(t, quick(t, dir, "--config", inFile, "--eval-size", "0", "--warmup-steps", "1")...)
	raw, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	var rates []float64
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		rates = append(rates, m["learning_rate"].(float64))
	}
	assert.Equal(t, []float64{0, 1e-3, 1e-3, 5e-4}, rates, "one step up, one on top, two down")
	g, err := parsed(t, "grpo", "--config", filepath.Join(dir, "config.yaml"))
	require.NoError(t, err)
	assert.JSONEq(t, `{"num_decay_steps": 2, "decay_type": "linear"}`, g.LrSchedulerKwargs)
	g, err = parsed(t, "grpo", "--config", inFile, "--lr-scheduler-kwargs", `{"num_decay_steps": 5}`)
	require.NoError(t, err)
	assert.Equal(t, `{"num_decay_steps": 5}`, g.LrSchedulerKwargs)

	data := sums(t, 20)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--lr-scheduler-type", "warmup_stable_decay"}, "needs num_decay_steps"},
		{[]string{"--lr-scheduler-kwargs", `{"num_cycles": 2}`}, "linear does not read num_cycles"},
		{[]string{"--lr-scheduler-kwargs", `num_cycles`}, "no JSON object"},
		{[]string{"--lr-scheduler-type", "cosine_with_min_lr", "--min-lr-rate", "0.1", "--lr-scheduler-kwargs", `{"min_lr_rate": 0.2}`}, "give one of them"},
	} {
		r := rltrain(t, "", append([]string{"sft", "--model", "tiny", "--dataset", data, "--output-dir", dir + "2"}, c.args...)...)
		assert.Equal(t, exitUsage, r.code)
		assert.Contains(t, r.err, c.want)
	}
}

func TestFileMistakesNameLineAndNearest(t *testing.T) {
	for text, want := range map[string]string{
		"model: a\nmax_stepz: 3\n":               "line 2: no option is called max_stepz; did you mean max_steps?",
		"model: a\nmodel: b\n":                   "model",
		"model: a\nmax-steps: 1\nmax_steps: 2\n": "line 3: max-steps was given in line 2 already",
		"lora:\n  r: 3\n":                        "options are one level deep",
		"- 1\n":                                  "want options as NAME: VALUE",
		"max_steps: many\n":                      "max-steps",
		"model: a\nconfig: b.yaml\n":             "line 2: a file of options names no further file",
		"command: sft\n":                         `is for "sft", not for "grpo"`,
	} {
		_, err := parsed(t, "grpo", "--config", file(t, "c.yaml", text))
		require.ErrorContains(t, err, want, text)
		assert.ErrorAs(t, err, &errUsage{}, text)
	}
}

func TestFileMistakesAreToldBehindStrongerOptions(t *testing.T) {
	t.Setenv("GRAFT_LORA_R", "6")
	for text, want := range map[string]string{
		"model: a\nmax_steps: foo\n": "line 2: max_steps:",
		"lora_r: many\n":             "line 1: lora_r:",
		"model: a\nloss_type: ppo\n": "line 2: loss_type: must be one of",
	} {
		_, err := parsed(t, "grpo", "--config", file(t, "c.yaml", text), "--max-steps", "3", "--loss-type", "grpo")
		require.ErrorContains(t, err, want, text)
		assert.ErrorAs(t, err, &errUsage{}, text)
	}
	g, err := parsed(t, "grpo", "--config", file(t, "c.yaml", "max_steps: 7\nlora_r: 3\nreward: [exact, math]\n"), "--max-steps", "3", "--reward", "exact")
	require.NoError(t, err)
	assert.Equal(t, []any{3, 6, []string{"exact"}}, []any{g.MaxSteps, g.LoraR, g.Reward}, "the file's values are looked at, not taken")
}

func TestMisspeltVariablesAreTold(t *testing.T) {
	t.Setenv("GRAFT_SEEED", "5")
	t.Setenv("GRAFT_SEED", "5")
	t.Setenv("GRAFT_PYTHON", "python3")
	t.Setenv("GRAFT_SOMETHING_ELSE_ALTOGETHER", "1")
	r := ok(t, "version")
	assert.Equal(t, "warning: no option reads GRAFT_SEEED; did you mean GRAFT_SEED?\n", r.err)
}

// Names with digits too: GRAFT_ADAM_BETA1.
func TestVariablesAreNamedAsFlags(t *testing.T) {
	t.Setenv("GRAFT_ADAM_BETA1", "0.5")
	t.Setenv("GRAFT_LORA_R", "4")
	g, err := parsed(t, "grpo", "--model", "tiny", "--dataset", sums(t, 4), "--reward", "exact")
	require.NoError(t, err)
	assert.Equal(t, []any{0.5, 4}, []any{g.AdamBeta1, g.LoraR})
	t.Setenv("GRAFT_ADAM_BETA_2", "0.9")
	assert.Equal(t, "warning: no option reads GRAFT_ADAM_BETA_2; did you mean GRAFT_ADAM_BETA2?\n", ok(t, "version").err)
}

func TestUsageMistakesExitWithTwo(t *testing.T) {
	data := sums(t, 4)
	base := []string{"grpo", "--model", "tiny", "--dataset", data, "--reward", "exact"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"grpo", "--max-stepz", "3"}, "--max-steps"},
		{[]string{"plan", "--model"}, "--model needs a value"},
		{[]string{"plan", "--model", "--lora-r", "4"}, "--model needs a value, and --lora-r is the next option"},
		{[]string{"grpo", "--bf16"}, "unknown flag --bf16: weights keep the format"},
		{[]string{"grpo", "--report_to", "none"}, "TensorBoard events"},
		{[]string{"sft", "--model_name_or_path=x"}, "say --model"},
		{[]string{"grpo", "--vllm_mode", "colocate"}, "sampling runs in this process"},
		{[]string{"grop"}, "no command is called grop. Did you mean grpo?"},
		{[]string{"gropo"}, "no command is called gropo. Did you mean grpo?"},
		{[]string{"grpo", "--dataset", data, "--reward", "exact"}, "--model is missing"},
		{[]string{"grpo", "--model", "tiny", "--reward", "exact"}, "--dataset is missing"},
		{[]string{"grpo", "--model", "tiny", "--dataset", data}, "--reward is missing"},
		{append(base, "--temperature", "0"), "--temperature is 0, want 0.0001 to 100"},
		{append(base, "--temperature", "NaN"), "--temperature is NaN"},
		{append(base, "--eval-temperature=-1"), "--eval-temperature is -1, want 0 (greedy) or 0.0001 to 100"},
		{append(base, "--epsilon", "2"), "--epsilon is 2, want more than 0 and less than 1"},
		{append(base, "--epsilon", "1"), "--epsilon is 1, want more than 0"},
		{append(base, "--epsilon", "NaN"), "--epsilon is NaN, want more than 0"},
		{append(base, "--dataset-split", "train"), "--dataset-split has no effect on the single file " + data},
		{[]string{"sft", "--model", "tiny", "--dataset", data, "--dataset-split", "test"}, "--dataset-split has no effect on the single file"},
		{[]string{"eval", "--model", "tiny", "--dataset", data, "--reward", "exact", "--dataset-split", "test"}, "--dataset-split has no effect on the single file"},
		{append(base, "--lora-r", "0"), "--lora-r is 0, want 1 to 512"},
		{append(base, "--learning-rate=-1"), "--learning-rate is -1"},
		{append(base, "--learning-rate", "Inf"), "--learning-rate is +Inf"},
		{append(base, "--num-generations", "1"), "--num-generations is 1, want 2"},
		{append(base, "--num-generations", "3"), "do not divide into groups of num_generations 3"},
		{append(base, "--loss-type", "ppo"), "loss-type"},
		{append(base, "--lr-scheduler-type", "wavy"), "wavy"},
		{append(base, "--full", "--lora-r", "4"), "--lora-r has no effect with --full"},
		{append(base, "--adapter", "x", "--lora-r", "4"), "--lora-r has no effect with --adapter"},
		{append(base, "--max-steps", "3", "--num-train-epochs", "2"), "--num-train-epochs has no effect with --max-steps"},
		{append(base, "--warmup-steps", "3", "--warmup-ratio", "0.1"), "--warmup-ratio has no effect"},
		{append(base, "--vespo-k-pos", "3"), "--vespo-k-pos has no effect but with --loss-type vespo"},
		{append(base, "--use-bias-correction-kl"), "--use-bias-correction-kl has no effect with --beta 0"},
		{append(base, "--loss-type", "cispo"), "--loss-type cispo needs --epsilon-high, the cap of the ratio itself: 5 in ScaleRL"},
		{append(base, "--loss-type", "cispo", "--epsilon-high", "5", "--epsilon", "0.1"), "--epsilon has no effect with --loss-type cispo"},
		{append(base, "--memory-limit", "4 apples"), "amount of memory"},
		{append(base, "--reward", "exakt"), "did you mean exact?"},
		{append(base, "--reward-weights", "1,2"), "--reward-weights has 2 numbers for 1 rewards"},
		{append(base, "--eval-size", "0", "--eval-dataset", data), "--eval-dataset has no effect"},
		{append(base, "--eval-size", "4"), "leave nothing to train on"},
		{append(base, "--max-completion-length", "600"), "leaves no room for a prompt in the 512 positions"},
		{append(base, "--max-model-len", "100000"), "was made for 512 positions"},
		{append(base, "--target-modules", "q_porj"), "q_porj"},
		{[]string{"eval", "--model", "tiny", "--dataset", data, "--reward", "exact", "--top-k", "3"}, "have no effect"},
		{[]string{"eval", "--model", "tiny", "--dataset", data, "--reward", "exact", "--compare-base"}, "--compare-base needs an --adapter"},
		{[]string{"dpo", "--model", "tiny", "--dataset", data, "--discopop-tau", "1"}, "--discopop-tau has no effect"},
		{[]string{"tokenize", "--model", "tiny", "--skip-special"}, "--skip-special is for --decode"},
	} {
		r := rltrain(t, "", c.args...)
		assert.Contains(t, r.err, c.want, "%v", c.args)
		assert.Equal(t, exitUsage, r.code, "%v\n%s", c.args, r.err)
		assert.Empty(t, r.out, "stdout is for data: %v", c.args)
	}
}

// A command line that names what is not there is no wrong usage, whatever it names: scripts tell the two apart.
func TestWhatIsAbsentExitsWithOne(t *testing.T) {
	data, none := sums(t, 3), filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"resume", t.TempDir()}, "is not a run"},
		{[]string{"resume", none}, "there is no folder"},
		{[]string{"grpo", "--model", "tiny", "--dataset", data, "--reward", "exact", "--resume", "--output-dir", none}, "leave --resume out to begin a new one there"},
		{[]string{"grpo", "--model", "tiny", "--dataset", data, "--reward", "exact", "--resume", none}, "there is no folder"},
		{[]string{"grpo", "--config", none}, "--config"},
		{[]string{"grpo", "--model", "tiny", "--dataset", none, "--reward", "exact"}, "does not exist"},
		{[]string{"grpo", "--model", none, "--dataset", data, "--reward", "exact"}, "does not exist"},
		{[]string{"grpo", "--model", "tiny", "--adapter", none, "--dataset", data, "--reward", "exact"}, none},
		{[]string{"eval", "--model", "tiny", "--dataset", data, "--reward", "py:" + none + ".py:f"}, "none.py"},
		{[]string{"eval", "--model", "tiny", "--dataset", data, "--reward", "exact", "--chat-template", none}, "--chat-template"},
		{[]string{"tokenize", "--model", none}, "does not exist"},
		{[]string{"export", none, "--output", none + "2"}, "there is no folder"},
		{[]string{"reward", "test", "--reward", "exact", "--dataset", none}, "does not exist"},
		{[]string{"runs", none}, "there is no folder"},
		{[]string{"plan", "--model", none}, "does not exist"},
	} {
		r := rltrain(t, "", c.args...)
		assert.Contains(t, r.err, c.want, "%v", c.args)
		assert.Equal(t, exitFailed, r.code, "%v\n%s", c.args, r.err)
	}
}

// What a warning calls idle is idle: the adapter is the same to the bit.
func TestOptionsWithoutAnOlderPolicyAreToldIdle(t *testing.T) {
	with := func(more ...string) (string, string) {
		r := ok(t, quick(t, filepath.Join(t.TempDir(), "run"), append([]string{"--max-steps", "2", "--eval-size", "0", "--temperature", "1.3"}, more...)...)...)
		return summary(t, r)["adapter_sha256"].(string), r.err
	}
	want, quiet := with()
	assert.NotContains(t, quiet, "no effect")
	got, said := with("--epsilon", "0.1", "--epsilon-high", "0.28", "--delta", "1.5", "--off-policy-mask-threshold", "0.01", "--importance-sampling-level", "sequence")
	assert.Contains(t, said, "warning: no effect of --epsilon, --epsilon-high, --delta, --off-policy-mask-threshold, --importance-sampling-level:")
	assert.Equal(t, want, got)

	_, quiet = with("--epsilon", "0.1", "--num-iterations", "2")
	assert.NotContains(t, quiet, "no effect", "the second pass has an older policy")
}

func TestHelpIsOnStandardOutput(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"grpo", "-h"}, {"reward", "test", "--help"}, {"plan", "-h"}} {
		r := rltrain(t, "", args...)
		assert.Equal(t, exitDone, r.code)
		assert.Contains(t, r.out, "Usage: rltrain")
		assert.Empty(t, r.err)
	}
	assert.Contains(t, ok(t, "version").out, "rltrain")
	assert.Equal(t, ok(t, "version").out, ok(t, "--version").out)
}

func TestHelpIsTheManual(t *testing.T) {
	for command, want := range map[string][]string{
		"grpo": {"[default: 8]", "[default: dapo]", "[default: on]", "[default: 1e-8]", "[default: all-linear]", "[default: none]", "grpo 1e-4", "--chat=\"auto\""},
		"dpo":  {"[default: 0.1]", "[default: sigmoid]", "[default: reverse_kl]"},
		"sft":  {"[default: nll]", "[default: 16]"},
		"eval": {"[default: 256]", "[default: 42]", "last run"},
		"chat": {"[default: 512]", "[default: 0]", "last run"},
		"plan": {"[default: 256]", "[default: 64]"},
	} {
		text := strings.Join(strings.Fields(ok(t, command, "-h").out), " ")
		for _, w := range want {
			assert.Contains(t, text, w, command)
		}
		if command != "eval" && command != "chat" {
			assert.NotContains(t, text, "last run's model", "%s does not train what an earlier run left", command)
		}
	}
}

func TestConfigOfARunIsReloadable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	ok(t, quick(t, dir, "--max-steps", "1", "--eval-size", "0", "--beta", "0.01")...)
	again := filepath.Join(t.TempDir(), "again")
	r := ok(t, "--config", filepath.Join(dir, "config.yaml"), "--output-dir", again, "--json")
	first, second := summaryFile(t, dir), summaryFile(t, again)
	assert.Equal(t, first["adapter_sha256"], second["adapter_sha256"], "the file holds all that decides the result")
	assert.Equal(t, second["adapter_sha256"], summary(t, r)["adapter_sha256"])
}
