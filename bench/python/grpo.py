"""Whole GRPO steps of TRL: sampling, reward, training. One step for every line of input, which says
its shape; one JSON line of output for every step.

The model is the same GGUF file, dequantized by transformers into the given precision. Every
completion has the full length. The trainer is made anew for every step; only the step is timed.
"""
import json
import os
import sys
import tempfile
import time

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

job = json.loads(sys.argv[1])
torch.set_num_threads(job["threads"])
torch.manual_seed(1)
folder, name = os.path.split(job["path"])
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
if tokenizer.pad_token is None:
    tokenizer.pad_token = tokenizer.eos_token
tokenizer.padding_side = "left"
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=getattr(torch, job["dtype"]))
model.is_quantized = False  # its weights are plain floats by now, which Trainer's check cannot tell
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
words = ["one", "two", "red", "blue", "dog", "cat", "sun", "moon"]


def prompts(groups, length):
    texts = []
    for _ in range(groups):
        text = words[0]
        while len(tokenizer(text)["input_ids"]) < length:
            text += " " + words[int(torch.randint(len(words), (1,)))]
        texts.append(text)
    return texts


def reward(completions, **_):
    return [float(sum(c.encode()) % 7) for c in completions]


class Clock(TrainerCallback):
    def on_step_begin(self, *_, **__):
        self.cpu, self.begin = time.process_time(), time.perf_counter()

    def on_step_end(self, *_, **__):
        self.seconds, self.cpu = time.perf_counter() - self.begin, time.process_time() - self.cpu


def step(shape):
    rows, groups, new, clock = shape["rows"], shape["groups"], shape["new"], Clock()
    with tempfile.TemporaryDirectory() as out:
        trainer = GRPOTrainer(
            model=model, processing_class=tokenizer, reward_funcs=reward, callbacks=[clock],
            train_dataset=Dataset.from_dict({"prompt": prompts(groups, shape["prompt"])}),
            args=GRPOConfig(
                output_dir=out, use_cpu=True, bf16=job["dtype"] == "bfloat16", per_device_train_batch_size=rows,
                num_generations=rows // groups, max_completion_length=new, generation_kwargs={"min_new_tokens": new}, max_steps=1,
                learning_rate=1e-5, gradient_checkpointing=False, report_to=[], save_strategy="no", logging_strategy="no",
                disable_tqdm=True))
        trainer.train()
    return clock


for line in sys.stdin:
    shape = json.loads(line)
    clock = step(shape)
    print(json.dumps({"seconds": clock.seconds, "tokens": shape["rows"] * shape["new"], "cpu_seconds": clock.cpu}), flush=True)
