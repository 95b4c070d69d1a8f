#!/usr/bin/env bash
# Runs every example in small form on the embedded model, in a temporary folder: about a minute, no download.
# Needs Go; python3 for the Python reward, and its package openai for the client (else both are
# skipped by name). Exit code 1 with the output of what failed.
#
#	examples/run.sh            # in any folder
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
go build -o "$work/" ./cmd/rltrain ./cmd/serve
PATH=$work:$PATH
export GRAFT_RUNS=$work/runs

# show NAME COMMAND...: runs it quietly; its output is shown if it fails.
show() {
	local name=$1
	shift
	if "$@" >"$work/out" 2>"$work/err" </dev/null; then
		echo "ok    $name"
	else
		echo "FAIL  $name: $*" >&2
		cat "$work/out" "$work/err" >&2
		exit 1
	fi
}

# summary CHECK: the last line of the output, as Python sees it in s, must satisfy the expression.
summary() {
	command -v python3 >/dev/null || return 0
	python3 -c 'import json,sys; s=json.loads(open(sys.argv[1]).read().splitlines()[-1]); sys.exit(0 if eval(sys.argv[2]) else "%s does not hold: %s" % (sys.argv[2], s))' "$work/out" "$1"
}

small=(--model tiny --max-steps 2 --num-generations 4 --per-device-train-batch-size 8 --max-completion-length 8 --eval-size 4 --json)

show "format" rltrain grpo "${small[@]}" --dataset examples/format/train.jsonl --eval-dataset examples/format/test.jsonl \
	--reward 'regex_full:[^.!?\n]{1,119}[.!?]'
summary 's["steps"] == 2 and s["mismatch_tokens"] == 0 and s["bytes_synced"] == 0'
show "arithmetic" rltrain grpo "${small[@]}" --dataset examples/arithmetic/train.jsonl --eval-dataset examples/arithmetic/test.jsonl --reward math
summary 's["steps"] == 2 and s["mismatch_tokens"] == 0'
show "gsm8k" rltrain grpo "${small[@]}" --dataset examples/gsm8k/train.jsonl --eval-dataset examples/gsm8k/test.jsonl \
	--reward math --reward '0.2*regex:(?m)^#### -?[0-9][0-9,.]*\s*$'
summary 's["steps"] == 2 and s["mismatch_tokens"] == 0'
show "preference: questions" rltrain eval --model tiny --dataset examples/preference/questions.jsonl --max-samples 64 --reward exact --temperature 1 \
	--max-completion-length 6 --completions "$work/answers.jsonl"
show "preference: pairs" go run examples/preference/generate.go pairs examples/preference/questions.jsonl "$work/answers.jsonl"
show "preference" rltrain dpo --model tiny --per-device-train-batch-size 32 --learning-rate 1e-4 --max-steps 40 --output-dir "$work/runs/preference" \
	--json --dataset examples/preference/train.jsonl
summary 's["steps"] == 40 and s["eval_after"] > s["eval_before"]'
show "preference: eval" rltrain eval --model tiny --adapter "$work/runs/preference" --dataset examples/preference/test.jsonl --reward exact \
	--max-completion-length 6 --compare-base --json
summary 's["verdict"] == "better"'

show "reward test: gold answers" rltrain reward test --reward math --dataset examples/gsm8k/test.jsonl
show "reward_exec" rltrain grpo "${small[@]}" --dataset examples/arithmetic/train.jsonl --reward "exec:go run examples/reward_exec/reward.go"
if command -v python3 >/dev/null; then
	for fn in close one_by_one; do
		show "reward.py: $fn" rltrain reward test --reward "py:examples/reward.py:$fn" --dataset examples/arithmetic/test.jsonl --completion 560
	done
	show "reward.py in training" rltrain grpo "${small[@]}" --dataset examples/arithmetic/train.jsonl \
		--reward py:examples/reward.py:close --reward '0.5*py:examples/reward.py:short'
else
	echo "skip  reward.py: no python3"
fi

# The last run's model, without naming it.
show "eval" rltrain eval --dataset examples/arithmetic/test.jsonl --reward math --max-completion-length 8 --max-samples 8 --compare-base
show "export peft" rltrain export --output "$work/peft"
show "export gguf" rltrain export --output "$work/adapter.gguf" --format gguf
show "score" rltrain score --model tiny --adapter "$work/peft" --input <(echo '{"messages":[{"role":"user","content":"37+58="}]}')

# What docs/rewards.md lists is what there is.
rltrain reward list | grep -v '^ ' | while read -r syntax; do
	grep -qF -- "\`${syntax//|/\\|}\`" docs/rewards.md || { echo "FAIL  docs/rewards.md lacks $syntax" >&2; exit 1; }
done
echo "ok    docs/rewards.md"

serve --model tiny --adapter "sums=$work/peft" --port 0 --no-log-requests >"$work/address" 2>"$work/log" &
server=$!
for _ in $(seq 100); do
	[ -s "$work/address" ] && break
	kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
	sleep 0.1
done
url=$(grep -o 'http://[^ /]*' "$work/address" | head -n 1)
if command -v python3 >/dev/null && python3 -c 'import openai' 2>/dev/null; then
	show "openai_client.py" python3 examples/openai_client.py "$url/v1"
else
	echo "skip  openai_client.py: needs python3 with the package openai"
fi
kill "$server"
wait "$server" || { echo "FAIL  serve ended with $?" >&2; cat "$work/log" >&2; exit 1; }
server=
echo "ok    serve"
