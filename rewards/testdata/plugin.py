import asyncio
import os
import subprocess
import sys
import time

print("imported")  # must not reach the protocol


def sees(prompts, completions, completion_ids, answer, trainer_state, truncated, **kwargs):
    """1 where every argument is as TRL passes it to a plain dataset."""
    assert kwargs["extra"][1] is None, kwargs
    assert trainer_state.global_step == 7
    assert truncated == [False, True]
    return [float(p == "p%d" % i and c == a and ids == [i]) for i, (p, c, a, ids) in enumerate(zip(prompts, completions, answer, completion_ids))]


def chat(prompts, completions, **kwargs):
    assert prompts[0] == [{"role": "user", "content": "hi"}], prompts
    return [len(c[0]["content"]) + (c[0]["role"] == "assistant") for c in completions]


def narrow(completions):
    return [len(c) for c in completions]


def mixed(completions, **kwargs):
    return [True, None, 2, 0.5][: len(completions)]


def single(prompt, completion, answer, **kwargs):
    return 1.0 if completion == answer else None


async def slow(completions, **kwargs):
    await asyncio.sleep(0.01)
    return [1.5] * len(completions)


async def slow_single(completion):
    await asyncio.sleep(0.01)
    return len(completion)


def noisy(completions, **kwargs):
    print('{"id":1,"scores":[9]}')
    sys.stderr.write("to stderr\n")
    os.write(1, b"raw\n")
    subprocess.run(["sh", "-c", "echo from a child; cat"], check=True)
    return [1.0] * len(completions)


def scalar(completions, **kwargs):
    return 1.0


def short(completions, **kwargs):
    return [1.0]


def nan(completions, **kwargs):
    return [0.0, float("nan")]


def infinite(completions, **kwargs):
    return [float("-inf"), 0.0]


def text(completions, **kwargs):
    return ["0.5", 1.0]


def raises(completions, **kwargs):
    return [1.0 / (len(c) - len(c)) for c in completions]


def leaves(completions, **kwargs):
    sys.stderr.write("goodbye\n")
    sys.stderr.flush()
    os._exit(3)


def hangs(completions, **kwargs):
    child = subprocess.Popen(["sleep", "600"])
    with open(completions[0], "w") as f:
        f.write("%d %d" % (os.getpid(), child.pid))
    time.sleep(600)


def leaves_once(completions, **kwargs):
    if not os.path.exists(completions[0]):
        open(completions[0], "w").close()
        os._exit(1)
    return [1.0] * len(completions)


not_callable = 5
