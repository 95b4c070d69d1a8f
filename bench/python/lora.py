"""One LoRA step of PEFT: log-probs of the completions, their gradient, AdamW. Prints one JSON line.

The model is the same GGUF file, dequantized by transformers into the given precision; adapters are
float32, as PEFT keeps them. The first step warms up, the second one is timed.
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
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)

rows, groups, prompt, new = job["rows"], job["groups"], job["prompt"], job["new"]
vocab = model.config.vocab_size
prompts = torch.randint(vocab, (groups, prompt)).repeat_interleave(rows // groups, 0)
ids = torch.cat([prompts, torch.randint(vocab, (rows, new))], 1)


def step():
    # The head sees the rows that predict completion tokens only, as in TRL.
    logits = model(input_ids=ids, logits_to_keep=new + 1, use_cache=False).logits[:, :-1]
    logp = torch.log_softmax(logits.float(), -1).gather(-1, ids[:, prompt:, None])
    (-logp.mean()).backward()
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
    optimizer.step()
    optimizer.zero_grad()


step()
begin = time.perf_counter()
step()
print(json.dumps({"seconds": time.perf_counter() - begin, "tokens": ids.numel()}))
