// Command bench compares Graft with what a user would take instead, on the machine it runs on:
// llama.cpp for sampling, transformers with PEFT for a LoRA step, TRL for a whole GRPO step, and the
// machine's own roof for all of them.
//
//	go run ./bench [--json] [--quick] [--models DIR] [--threads N] [--peers DIR|none] [--only REGEXP]
//	               [--rounds N] [--precision f32|int8|f32,int8] [--profiles DIR]
//
// It installs the peers into a cache folder, measures the roof, then runs ours and theirs in turns
// (ours, theirs, ours, theirs ...) on the same model files and shapes and the same cores, and prints
// one table, what is asked beside what is reached, and, last, one JSON line. What other processes
// took of the cores meanwhile is measured too and printed beside every row that it may have spoilt.
// docs/bench.md says what each row is.
//
// The package knows the product's packages and the peers' command lines. It owns the child
// processes that it starts and the folder that it installs the peers into; nothing else.
package main
