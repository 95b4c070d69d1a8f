"""A whole GRPO step of TRL: sampling, reward, training. Prints one JSON line.

The model is the same GGUF file, dequantized by transformers into the given precision. The first
step warms up, the second one is timed. Every completion has the full length.
"""
import json
import os
import sys
import tempfile
import time

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

job = json.loads(sys.argv[1])
torch.set_num_threads(job["threads"])
folder, name = os.path.split(job["path"])
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
if tokenizer.pad_token is None:
    tokenizer.pad_token = tokenizer.eos_token
tokenizer.padding_side = "left"
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=getattr(torch, job["dtype"]))
model.is_quantized = False  # its weights are plain floats by now, which Trainer's check cannot tell

rows, groups, prompt, new = job["rows"], job["groups"], job["prompt"], job["new"]
torch.manual_seed(1)
words = ["one", "two", "red", "blue", "dog", "cat", "sun", "moon"]
texts = []
for _ in range(groups):
    text = words[0]
    while len(tokenizer(text)["input_ids"]) < prompt:
        text += " " + words[int(torch.randint(len(words), (1,)))]
    texts.append(text)


def reward(completions, **_):
    return [float(hash(c) % 7) for c in completions]


class Clock(TrainerCallback):
    def __init__(self):
        self.begin, self.seconds = 0.0, []

    def on_step_begin(self, *_, **__):
        self.begin = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.seconds.append(time.perf_counter() - self.begin)


clock = Clock()
with tempfile.TemporaryDirectory() as out:
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, reward_funcs=reward, callbacks=[clock],
        train_dataset=Dataset.from_dict({"prompt": texts * 4}),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
        args=GRPOConfig(
            output_dir=out, use_cpu=True, bf16=job["dtype"] == "bfloat16", per_device_train_batch_size=rows, num_generations=rows // groups,
            max_completion_length=new, generation_kwargs={"min_new_tokens": new}, max_steps=2, learning_rate=1e-5, gradient_checkpointing=False,
            report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True))
    trainer.train()
print(json.dumps({"seconds": clock.seconds[-1], "tokens": rows * new}))
