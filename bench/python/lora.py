"""LoRA steps of PEFT: log-probs of the completions, their gradient, AdamW. One step for every line
of input, which says its shape; one JSON line of output for every step.

The model is the same GGUF file, dequantized by transformers into the given precision; adapters are
float32, as PEFT keeps them.
"""
import json
import os
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

job = json.loads(sys.argv[1])
torch.set_num_threads(job["threads"])
torch.manual_seed(1)
folder, name = os.path.split(job["path"])
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=getattr(torch, job["dtype"]))
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"))
model.train()
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0)
vocab = model.config.vocab_size


def step(ids, prompt, new):
    # The head sees the rows that predict completion tokens only, as in TRL.
    logits = model(input_ids=ids, logits_to_keep=new + 1, use_cache=False).logits[:, :-1]
    logp = torch.log_softmax(logits.float(), -1).gather(-1, ids[:, prompt:, None])
    (-logp.mean()).backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()


for line in sys.stdin:
    shape = json.loads(line)
    rows, groups, prompt, new = shape["rows"], shape["groups"], shape["prompt"], shape["new"]
    prompts = torch.randint(vocab, (groups, prompt)).repeat_interleave(rows // groups, 0)
    ids = torch.cat([prompts, torch.randint(vocab, (rows, new))], 1)
    cpu, begin = time.process_time(), time.perf_counter()
    step(ids, prompt, new)
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "tokens": ids.numel(), "cpu_seconds": time.process_time() - cpu}), flush=True)
