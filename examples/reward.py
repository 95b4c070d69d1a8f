"""Rewards with TRL's signature, for --reward py:examples/reward.py:NAME.

A function gets every argument by keyword, each a list with one entry per completion, and returns
one number per completion, or None where it does not apply. Dataset columns arrive under their own
names. The same functions work as reward_funcs of TRL's GRPOTrainer.
"""
import re


def text(completion):
    """The text of a completion: chat datasets give a list of messages, others a string."""
    return completion if isinstance(completion, str) else completion[-1]["content"]


def close(completions, answer, **kwargs):
    """1 for the right number, less the further away, 0 without a number or far off."""
    scores = []
    for completion, gold in zip(completions, answer):
        numbers = re.findall(r"-?\d+", text(completion).replace(",", ""))
        gold = int(str(gold).split("####")[-1].strip().replace(",", ""))
        if not numbers:
            scores.append(0.0)
            continue
        off = abs(int(numbers[-1]) - gold)
        scores.append(1.0 if off == 0 else 0.5 / (1 + off))
    return scores


def short(completion_ids, **kwargs):
    """Fewer tokens are better: from 1 for an empty completion down to 0 at 64 tokens."""
    return [max(0.0, 1 - len(ids) / 64) for ids in completion_ids]


async def one_by_one(completion, answer, **kwargs):
    """The other form: a function that names `completion` is called once per completion. It may be
    async, for a judge behind a network; then all calls of a batch run at once."""
    found = re.search(r"-?\d+", text(completion))
    return None if found is None else float(found.group() == str(answer))
