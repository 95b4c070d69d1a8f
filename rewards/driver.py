"""Runs a reward function for its parent: one JSON line in, one out.

Arguments: the file or module, the function, the parent's process id.
"""
import importlib
import importlib.util
import inspect
import json
import math
import os
import signal
import sys
import threading
import time
import traceback
import types


def open_pipes():
    """Takes the pipes away from user code, whose prints then go to stderr."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    return requests, answers


def follow(parent):
    """Ends this process group when the parent is gone, also while user code runs."""
    if not hasattr(os, "getppid") or os.name == "nt":
        return

    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def load(target, name):
    if target.endswith(".py"):
        path = os.path.abspath(target)
        sys.path.insert(0, os.path.dirname(path))
        stem = os.path.splitext(os.path.basename(path))[0]
        if stem in sys.modules:
            stem = "graft_reward_" + stem
        spec = importlib.util.spec_from_file_location(stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[stem] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(target)
    function = getattr(module, name, None)
    if not callable(function):
        named = [k for k, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        raise LookupError("%s has no function %r; it has: %s" % (target, name, ", ".join(named) or "none"))
    return function


class Rejected(Exception):
    """A result that breaks the contract; kind is the parent's word for it."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class Reward:
    def __init__(self, function):
        self.function = function
        self.loop = None
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # some builtins have no signature
            self.names, self.open = set(), True
        else:
            keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            self.names = {p.name for p in parameters if p.kind in keyword}
            self.open = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        self.single = "completion" in self.names and "completions" not in self.names

    def chosen(self, arguments):
        if self.open:
            return arguments
        return {k: v for k, v in arguments.items() if k in self.names}

    def batch(self, samples):
        chat = all(s.get("messages") is not None for s in samples)
        columns = {}
        for s in samples:
            columns.update(dict.fromkeys(s["columns"]))
        arguments = {k: [s["columns"].get(k) for s in samples] for k in columns}
        for s in samples:
            text = s["completion"]
            s["reply"] = [{"role": "assistant", "content": text}] if chat else text
        arguments.update(
            prompts=[s["messages"] if chat else s["prompt"] for s in samples],
            completions=[s["reply"] for s in samples],
            completion_ids=[s["completion_ids"] for s in samples],
            prompt_ids=[s["prompt_ids"] for s in samples],
            truncated=[s["truncated"] for s in samples],
            trainer_state=types.SimpleNamespace(global_step=samples[0]["step"]),
        )
        return arguments

    def wait(self, awaitable):
        import asyncio  # slow to import, and most rewards do without

        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(awaitable)

    def score(self, samples):
        arguments = self.batch(samples)
        if self.single:
            return self.score_each(arguments, len(samples))
        result = self.function(**self.chosen(arguments))
        if inspect.isawaitable(result):
            result = self.wait(result)
        return self.entries(result, len(samples))

    def score_each(self, arguments, count):
        state = arguments.pop("trainer_state")
        singular = {"prompts": "prompt", "completions": "completion"}
        results = []
        for i in range(count):
            one = {singular.get(k, k): v[i] for k, v in arguments.items()}
            one["trainer_state"] = state
            results.append(self.function(**self.chosen(one)))
        if any(inspect.isawaitable(r) for r in results):

            async def gather():
                async def value(r):
                    return await r if inspect.isawaitable(r) else r

                import asyncio

                return await asyncio.gather(*[value(r) for r in results])

            results = self.wait(gather())
        return [self.entry(r) for r in results]

    def entries(self, result, count):
        if not isinstance(result, (list, tuple)) and hasattr(result, "tolist"):
            result = result.tolist()  # numpy arrays, torch tensors
        if not isinstance(result, (list, tuple)):
            shown = repr(result)[:80]
            raise Rejected("count", "returned %s (a %s) for %d samples, not a list" % (shown, type(result).__name__, count))
        return [self.entry(r) for r in result]

    @staticmethod
    def entry(value):
        if value is None:
            return None
        if not isinstance(value, (str, bytes, bytearray)):
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                pass
            else:
                return number if math.isfinite(number) else str(number)
        return {"type": type(value).__name__, "shown": repr(value)[:80]}


def describe(error):
    """The traceback from the first frame of user code on, its end if it is long."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace)).strip()
    return text if len(text) <= 4000 else "…" + text[-4000:]


def main():
    target, name, parent = sys.argv[1:4]
    requests, answers = open_pipes()
    follow(int(parent))

    def answer(message):
        answers.write(json.dumps(message).encode("ascii") + b"\n")
        answers.flush()

    try:
        reward = Reward(load(target, name))
    except BaseException as error:
        answer({"id": 0, "kind": "start", "error": describe(error)})
        return
    answer({"id": 0, "scores": []})
    for line in requests:
        request = json.loads(line)
        try:
            answer({"id": request["id"], "scores": reward.score(request["samples"])})
        except Rejected as error:
            answer({"id": request["id"], "kind": error.kind, "error": str(error)})
        except BaseException as error:
            answer({"id": request["id"], "kind": "raised", "error": describe(error)})


main()
